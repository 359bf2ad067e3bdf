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

	"github.com/otelgpu/otelgpu/internal/spanfiles/chrometrace"
	"github.com/otelgpu/otelgpu/internal/spanfiles/chrometrace/chrometracetest"
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
	for name, f := range chrometracetest.Folder(t, dir) {
		require.Len(t, f.Of("X"), 100, name)
	}
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
	for _, f := range chrometracetest.Folder(t, dir) {
		for _, s := range f.Of("X") {
			spans[s.Name] = true
		}
	}
	require.Len(t, spans, 4*50*20)
}

// One file cannot represent times that are months apart to the nanosecond, and Perfetto drops what
// precedes its base: the times of most spans of a batch decide.
func TestSpansOfOtherTimesGoToTheNextFile(t *testing.T) {
	dir := t.TempDir()
	var left int64
	r, err := chrometrace.NewRotator(chrometrace.Files{
		Path: filepath.Join(dir, "trace.json"), Existing: chrometrace.Replace,
		OnComplete: func(_ string, s chrometrace.Stats) { left += s.NoTime },
	})
	require.NoError(t, err)
	year := int64(365 * 24 * time.Hour)
	at := func(name string, start int64) chrometrace.Event {
		return chrometrace.Event{Name: name, Track: stream(7), Start: start, End: start + 1}
	}
	require.NoError(t, r.Write([]chrometrace.Event{at("now", epoch)}))
	require.NoError(t, r.Write([]chrometrace.Event{
		at("a year ago", epoch-year), at("three days ago", epoch-3*int64(24*time.Hour)), at("later", epoch+100),
	}))
	require.NoError(t, r.Write([]chrometrace.Event{at("another year ago", epoch-year), at("when?", 0)}))
	require.NoError(t, r.Write([]chrometrace.Event{at("again", epoch+200)}))
	require.NoError(t, r.Close())
	require.ErrorIs(t, r.Write([]chrometrace.Event{at("closed", epoch)}), chrometrace.ErrClosed)
	require.ErrorIs(t, r.WriteCounters(nil), chrometrace.ErrClosed)
	require.NoError(t, r.Close())
	got := map[string][]string{}
	for name, f := range chrometracetest.Folder(t, dir) {
		for _, e := range f.Of("X") {
			got[name] = append(got[name], e.Name)
		}
	}
	require.Equal(t, map[string][]string{
		"trace.json": {"now", "three days ago", "later"}, "trace-1.json": {"another year ago"}, "trace-2.json": {"again"},
	}, got)
	require.EqualValues(t, 2, left, "a year ago, when?")
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
	require.Len(t, names(t, dir), 17)
	require.EqualValues(t, 200-17, left, "counted")
}
