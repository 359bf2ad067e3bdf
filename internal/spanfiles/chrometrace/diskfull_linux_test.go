// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chrometrace_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/spanfiles/chrometrace"
	"github.com/otelgpu/otelgpu/internal/spanfiles/chrometrace/chrometracetest"
)

func TestFullDiskLosesOnlyTheRefusedSpans(t *testing.T) {
	limit, ok := chrometracetest.FullDisk(t)
	if !ok {
		return
	}
	path := filepath.Join(t.TempDir(), "trace.json")
	r, err := chrometrace.NewRotator(chrometrace.Files{Path: path})
	require.NoError(t, err)
	require.NoError(t, r.Write(batchOf(100, 0)))
	free := limit(20_000)
	err = r.Write(batchOf(1000, 100))
	require.ErrorContains(t, err, path)
	require.ErrorContains(t, err, "file too large")
	free()
	require.NoError(t, r.Write(batchOf(1000, 100)), "there is room again")
	require.NoError(t, r.Close())
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	f, faults := chrometracetest.Read(data)
	require.Empty(t, faults)
	require.Len(t, f.Of("X"), 1100)
}

func TestFullDiskAtTheEndLeavesNoFileUnderTheFinalName(t *testing.T) {
	limit, ok := chrometracetest.FullDisk(t)
	if !ok {
		return
	}
	for _, c := range []chrometrace.Compression{chrometrace.None, chrometrace.Gzip} {
		dir := t.TempDir()
		r, err := chrometrace.NewRotator(chrometrace.Files{Path: filepath.Join(dir, "trace.json"), Compression: c})
		require.NoError(t, err)
		require.NoError(t, r.Write(batchOf(3, 0)))
		free := limit(150)
		err = r.Close()
		free()
		require.ErrorContains(t, err, "the incomplete file is")
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Len(t, entries, 1)
		require.Contains(t, entries[0].Name(), ".partial")
	}
}

var power = []chrometrace.Counter{{Device: "GPU-1", Label: "gpu0", Name: "power", Unit: "W", Time: epoch, Value: 300}}

func sizeBeforeTheEnd(t *testing.T, batches int) uint64 {
	dir := t.TempDir()
	r, err := chrometrace.NewRotator(chrometrace.Files{Path: filepath.Join(dir, "trace.json")})
	require.NoError(t, err)
	defer r.Close()
	for i := range batches {
		require.NoError(t, r.Write(batchOf(60, i*60)))
		if i == 0 {
			require.NoError(t, r.WriteCounters(power))
		}
	}
	info, err := os.Stat(filepath.Join(dir, names(t, dir)[0]))
	require.NoError(t, err)
	return uint64(info.Size())
}

// A file reaches its size or age limit while the disk has no space for its end. Writing continues,
// and the file is completed later without loss.
func TestFullDiskWhenAFileIsDueLosesNothing(t *testing.T) {
	limit, ok := chrometracetest.FullDisk(t)
	if !ok {
		return
	}
	for _, c := range []chrometrace.Files{{MaxBytes: 10_000}, {MaxAge: time.Hour}} {
		dir := t.TempDir()
		c.Path = filepath.Join(dir, "trace.json")
		now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		c.Now = func() time.Time { return now }
		var told []string
		c.OnError = func(err error) { told = append(told, err.Error()) }
		r, err := chrometrace.NewRotator(c)
		require.NoError(t, err)
		require.NoError(t, r.Write(batchOf(60, 0)))
		require.NoError(t, r.WriteCounters(power))
		batches := 1
		if c.MaxBytes > 0 { // the second one exceeds the limit
			batches = 2
		}
		free := limit(sizeBeforeTheEnd(t, batches) + 10)
		switch {
		case c.MaxBytes > 0:
			require.NoError(t, r.Write(batchOf(60, 60)))
			require.ErrorContains(t, r.Write(batchOf(60, 120)), "file too large")
		case c.MaxAge > 0:
			now = now.Add(time.Hour)
			for range 3 {
				require.NoError(t, r.Sweep())
			}
		}
		require.Len(t, told, 1, "once for the file")
		require.Contains(t, told[0], "its end is written as soon as there is space")
		require.Len(t, names(t, dir), 1)
		require.Contains(t, names(t, dir)[0], ".partial")
		free()

		if c.MaxBytes > 0 {
			require.NoError(t, r.Write(batchOf(60, 120)))
		} else {
			require.NoError(t, r.Sweep())
		}
		complete := chrometracetest.Folder(t, dir) // checked by the strict reader
		require.Len(t, complete, 1)
		for _, f := range complete {
			require.Len(t, f.Slices(), map[bool]int{true: 180, false: 60}[c.MaxBytes > 0])
			require.Len(t, f.Of("C"), 1)
			require.Len(t, f.Tracks(), 1)
		}
		require.NoError(t, r.Close())
		require.Len(t, names(t, dir), 1)
	}
}

func TestCompressedFileThatBreaksIsNotContinued(t *testing.T) {
	limit, ok := chrometracetest.FullDisk(t)
	if !ok {
		return
	}
	dir := t.TempDir()
	r, err := chrometrace.NewRotator(chrometrace.Files{
		Path:        filepath.Join(dir, "trace.json"),
		Compression: chrometrace.Gzip,
	})
	require.NoError(t, err)
	free := limit(10_000)
	for i := range 200 {
		if err = r.Write(batchOf(1000, i*1000)); err != nil {
			break
		}
	}
	free()
	require.ErrorContains(t, err, "file too large")
	require.NoError(t, r.Write(batchOf(3, 0)), "a new file")
	require.NoError(t, r.Close())
	entries, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	require.Len(t, entries, 2, "the broken one keeps its temporary name: %v", entries)
}
