// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpureceiver

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/gpuquantity"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/recording"
)

// recordSimulated records two devices for d, doubling it until enough accepts the recording,
// because a busy machine samples less often.
func recordSimulated(t *testing.T, d time.Duration, enough func(file []byte) bool) ([]byte, RecordSummary) {
	t.Helper()
	for ; d < time.Minute; d *= 2 {
		if file, summary := recordFor(t, d); len(file) > 0 && enough(file) {
			return file, summary
		}
	}
	require.FailNow(t, "the simulated devices give no samples")
	return nil, RecordSummary{}
}

func recordFor(t *testing.T, d time.Duration) ([]byte, RecordSummary) {
	t.Helper()
	cfg := createDefaultConfig().(*Config)
	cfg.Source = sourceSimulated
	cfg.Simulated.Devices = 2
	cfg.SamplingInterval = 5 * time.Millisecond
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	var file bytes.Buffer
	summary, err := Record(ctx, RecordSettings{Config: cfg}, &file)
	require.NoError(t, err)
	return file.Bytes(), summary
}

// values reads all values of a recording.
func values(t *testing.T, file []byte) (list []gpudata.Value) {
	t.Helper()
	r, err := recording.NewReader(bytes.NewReader(file))
	require.NoError(t, err)
	defer r.Close()
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			return list
		}
		require.NoError(t, err)
		list = append(list, rec.Values...)
	}
}

func TestReplayKeepsValuesAndDistances(t *testing.T) {
	file, summary := recordSimulated(t, 200*time.Millisecond, func(file []byte) bool { return len(values(t, file)) > 200 })
	assert.Equal(t, "simulated", summary.Source)
	assert.Equal(t, 2, summary.Devices)
	recorded := values(t, file)

	path := filepath.Join(t.TempDir(), "x.gpurec")
	require.NoError(t, os.WriteFile(path, file, 0o600))
	start := time.Unix(2_000_000_000, 0)
	now := start
	src := recording.NewSource(path, false, 2, func() time.Time { return now })
	require.NoError(t, src.Open())
	require.Len(t, src.Devices(), 2)
	assert.Equal(t, "replay", src.Devices()[0].Source)
	var played []gpudata.Value
	for {
		b := &gpudata.Batch{}
		err := src.Read(b)
		for _, v := range b.Values {
			require.LessOrEqual(t, v.Time, now.UnixNano(), "nothing is played before its time")
		}
		played = append(played, b.Values...)
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		now = now.Add(time.Millisecond)
	}
	require.NoError(t, src.Close())
	require.Len(t, played, len(recorded))
	type key struct {
		device uint16
		q      gpuquantity.Quantity
		offset int64
	}
	want := map[key]float64{}
	for _, v := range recorded {
		want[key{v.Device, v.Quantity, (v.Time - recorded[0].Time) / 2}] = v.V
	}
	for _, v := range played {
		k := key{v.Device, v.Quantity, v.Time - start.UnixNano()}
		got, ok := want[k]
		require.True(t, ok, "%v", k)
		require.Equal(t, got, v.V)
	}
}

func TestReplayLoopsForever(t *testing.T) {
	file, _ := recordSimulated(t, 50*time.Millisecond, func(file []byte) bool { return len(values(t, file)) > 0 })
	recorded := values(t, file)
	n := len(recorded)
	first, end := recorded[0].Time, recorded[0].Time
	for _, v := range recorded {
		first, end = min(first, v.Time), max(end, v.Time)
	}
	const step = 10 * time.Millisecond
	path := filepath.Join(t.TempDir(), "x.gpurec")
	require.NoError(t, os.WriteFile(path, file, 0o600))
	now := time.Unix(2_000_000_000, 0)
	src := recording.NewSource(path, true, 1, func() time.Time { return now })
	require.NoError(t, src.Open())
	defer src.Close()
	total, last := 0, map[gpuquantity.Quantity]int64{}
	for range 100 + 5*(end-first)/int64(step) {
		b := &gpudata.Batch{}
		require.NoError(t, src.Read(b))
		for _, v := range b.Values {
			if v.Device == 0 {
				require.Greater(t, v.Time, last[v.Quantity], "%s", v.Quantity)
				last[v.Quantity] = v.Time
			}
		}
		total += len(b.Values)
		now = now.Add(step)
	}
	assert.Greater(t, total, 3*n)
}

func TestACutRecordingIsReadableUpToTheCut(t *testing.T) {
	var file bytes.Buffer
	w, err := recording.NewWriter(&file, recording.Header{Source: "dcgm"})
	require.NoError(t, err)
	require.NoError(t, w.Devices(nil))
	require.NoError(t, w.Close())
	whole := file.Len()
	// Complete lines up to the truncation: the first recording has one flush at 1 s, longer ones
	// have more.
	readable := func(cut []byte) (n int) {
		r, err := recording.NewReader(bytes.NewReader(cut))
		if err != nil { // nothing has been flushed yet
			return 0
		}
		defer r.Close()
		for {
			if _, err = r.Next(); err != nil {
				require.ErrorIs(t, err, io.ErrUnexpectedEOF)
				return n
			}
			n++
		}
	}
	recordSimulated(t, 1300*time.Millisecond, func(file []byte) bool { return readable(file[:max(0, len(file)-40)]) > 100 })
	assert.Positive(t, whole)
}

func TestReplayNamesTheProblem(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, b []byte) string {
		p := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(p, b, 0o600))
		return p
	}
	newer := recordingWithHeader(t, `{"format":"otelgpu-recording","version":2}`)
	for _, tc := range []struct{ path, want string }{
		{filepath.Join(dir, "absent"), "cannot replay: open " + filepath.Join(dir, "absent") + ": no such file or directory"},
		{dir, `cannot replay: "` + dir + `" is a directory, not a regular file`},
		{write("empty", nil), `empty": not a recording: empty`},
		{
			write("text", []byte("hello, world, this is no zstd")),
			`text": not a recording: invalid input: magic number mismatch`,
		},
		{write("newer", newer), `newer": recording has version 2, this reader knows 1 to 1 (use a newer otelcol-gpu)`},
		{
			write("foreign", recordingWithHeader(t, `{"traceEvents":[]}`)),
			`foreign": not a recording: the first line is not a header of format "otelgpu-recording"`,
		},
		{
			write("nodevices", recordingWithHeader(t, `{"format":"otelgpu-recording","version":1}`)),
			`nodevices": no devices in it: EOF`,
		},
	} {
		err := recording.NewSource(tc.path, false, 1, time.Now).Open()
		require.Error(t, err)
		assert.Contains(t, err.Error(), tc.want)
	}
}

func recordingWithHeader(t *testing.T, lines string) []byte {
	t.Helper()
	return compress(t, lines+"\n")
}

func TestMalformedLinesOfARecordingAreCountedAndSkipped(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.gpurec")
	require.NoError(t, os.WriteFile(path, compress(t, `{"format":"otelgpu-recording","version":1,"later":true}
{"devices":[{"id":"GPU-1","ordinal":0,"colour":"green"}]}
{"d":0,"t":1000,"v":{"power":100,"flux":3}}
{"d":7,"t":1001,"v":{"power":100}}
{"d":0,"t":10
{"d":0,"t":2000,"v":{"power":200}}
{"d":0,"t":2500,"e":"xid","code":79,"count":1}
`), 0o600))
	now := time.Unix(2_000_000_000, 0)
	src := recording.NewSource(path, false, 1, func() time.Time { return now })
	require.NoError(t, src.Open())
	defer src.Close()
	now = now.Add(time.Second)
	b := &gpudata.Batch{}
	require.ErrorIs(t, src.Read(b), io.EOF)
	require.Len(t, b.Values, 2)
	assert.Equal(t, 200.0, b.Values[1].V)
	assert.Equal(t, int64(1000), b.Values[1].Time-b.Values[0].Time)
	assert.Equal(t, int64(2), b.Dropped[gpudata.DropMalformed])
	require.Len(t, b.Events, 1)
	assert.Equal(t, int64(79), b.Events[0].Code)
}

func TestRecordFailsWhereNothingAnswers(t *testing.T) {
	cfg := createDefaultConfig().(*Config)
	cfg.Source = sourceReplay
	cfg.Replay.File = filepath.Join(t.TempDir(), "absent")
	_, err := Record(context.Background(), RecordSettings{Config: cfg}, io.Discard)
	require.ErrorContains(t, err, "nothing to record")
	require.ErrorContains(t, err, "no such file")
}
