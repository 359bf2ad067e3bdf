// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chrometrace_test

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan/chrometrace"
)

func names(t *testing.T, dir string) []string {
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func batchOf(n, from int) []chrometrace.Event {
	events := make([]chrometrace.Event, n)
	for i := range events {
		k := int64(from + i)
		events[i] = chrometrace.Event{
			Name: fmt.Sprint("kernel ", k), Track: stream(7), Start: epoch + k*1000,
			End: epoch + k*1000 + 500,
		}
	}
	return events
}

func TestFilesRotateBySize(t *testing.T) {
	dir := t.TempDir()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	r, err := chrometrace.NewRotator(chrometrace.Files{
		Path: filepath.Join(dir, "trace.json"), MaxBytes: 10_000, MaxFiles: 2, Now: func() time.Time { return now },
	})
	require.NoError(t, err)
	for i := range 4 {
		require.NoError(t, r.Write(batchOf(100, i*100))) // about 12 kB
		if i == 1 {
			now = now.Add(time.Second)
		}
	}
	require.NoError(t, r.Close())
	require.Equal(t, []string{"trace-20260102T030406.000Z-1.json", "trace-20260102T030406.000Z.json"}, names(t, dir),
		"the two newest, of one moment")
	for name, f := range traces(t, dir) {
		require.Len(t, f.Of("X"), 100, name)
	}
}

func TestLateSpansOfATraceDoNotReplaceIt(t *testing.T) {
	dir := t.TempDir()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	r, err := chrometrace.NewRotator(chrometrace.Files{
		Path: filepath.Join(dir, "trace.json"), PerTrace: time.Hour, Existing: chrometrace.Replace,
		Now: func() time.Time { return now },
	})
	require.NoError(t, err)
	require.NoError(t, r.Write(batchOf(3, 0)))
	now = now.Add(2 * time.Hour)
	require.NoError(t, r.Sweep())
	require.NoError(t, r.Write(batchOf(2, 10)))
	require.NoError(t, r.Close())
	require.ErrorIs(t, r.Write(batchOf(1, 0)), chrometrace.ErrClosed)
	require.ErrorIs(t, r.WriteCounters(nil), chrometrace.ErrClosed)
	require.NoError(t, r.Close())
	got := traces(t, dir)
	require.Len(t, got["trace-00000000000000000000000000000000.json"].Of("X"), 3)
	require.Len(t, got["trace-00000000000000000000000000000000-1.json"].Of("X"), 2)
}

func TestMistakesAreErrorsOfTheConstructor(t *testing.T) {
	for want, f := range map[string]chrometrace.Files{
		"needs a path":              {},
		"no compressor for \"lz4\"": {Path: filepath.Join(t.TempDir(), "t.json"), Compression: "lz4"},
		"it is a folder":            {Path: t.TempDir()},
	} {
		_, err := chrometrace.NewRotator(f)
		require.ErrorContains(t, err, want)
	}
}

func TestUseFromManyGoroutinesLosesNothing(t *testing.T) {
	dir := t.TempDir()
	r, err := chrometrace.NewRotator(chrometrace.Files{
		Path: filepath.Join(dir, "trace.json"), MaxBytes: 50_000,
		MaxAge: 5 * time.Millisecond,
	})
	require.NoError(t, err)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 50 {
				require.NoError(t, r.Write(batchOf(20, g*10_000+i*20)))
				require.NoError(t, r.WriteCounters([]chrometrace.Counter{{
					Device: "GPU-1", Label: "gpu0", Name: "power", Unit: "W",
					Time: epoch, Value: 1,
				}}))
				require.NoError(t, r.Sweep())
			}
		})
	}
	wg.Wait()
	require.NoError(t, r.Close())
	spans := map[string]bool{}
	for _, f := range traces(t, dir) {
		for _, s := range f.Of("X") {
			spans[s.Name] = true
		}
	}
	require.Len(t, spans, 4*50*20)
}

// One file cannot represent spans that are months apart to the nanosecond, and Perfetto drops spans before its base
// time.
func TestSpansOfOtherTimesGoToAFileOfTheirOwn(t *testing.T) {
	dir := t.TempDir()
	r, err := chrometrace.NewRotator(chrometrace.Files{
		Path:     filepath.Join(dir, "trace.json"),
		Existing: chrometrace.Replace,
	})
	require.NoError(t, err)
	year := int64(365 * 24 * time.Hour)
	at := func(name string, start int64) chrometrace.Event {
		return chrometrace.Event{Name: name, Track: stream(7), Start: start, End: start + 1}
	}
	require.NoError(t, r.Write([]chrometrace.Event{at("now", epoch)}))
	require.NoError(t, r.Write([]chrometrace.Event{
		at("a year ago", epoch-year),
		at("three days ago", epoch-3*int64(24*time.Hour)), at("in a year", epoch+year),
	}))
	require.NoError(t, r.Write([]chrometrace.Event{
		at("later", epoch+100), at("a year ago and later", epoch-year+100),
		at("when?", 0),
	}))
	require.NoError(t, r.Close())
	got := map[string][]string{}
	for name, f := range traces(t, dir) {
		for _, e := range f.Of("X") {
			got[name] = append(got[name], e.Name)
		}
	}
	require.Equal(t, map[string][]string{
		"trace.json":   {"now", "three days ago", "later"},
		"trace-1.json": {"in a year"},
		"trace-2.json": {"a year ago", "a year ago and later"},
	}, got)
}

func TestABrokenClockOpensFewFiles(t *testing.T) {
	dir := t.TempDir()
	var left int64
	r, err := chrometrace.NewRotator(chrometrace.Files{
		Path: filepath.Join(dir, "trace.json"), OnComplete: func(_ string, s chrometrace.Stats) { left += s.NoTime },
	})
	require.NoError(t, err)
	century := int64(100 * 365 * 24 * time.Hour)
	for i := range int64(200) {
		start := century - i*(century/200)
		require.NoError(t, r.Write([]chrometrace.Event{{Name: "x", Track: stream(7), Start: start, End: start + 1}}))
	}
	require.NoError(t, r.Close())
	require.Len(t, names(t, dir), 16)
	require.EqualValues(t, 200-16, left, "counted")
}
