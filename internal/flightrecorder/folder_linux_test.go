// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package flightrecorder

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestReadFolderOpensOnlyRegularFiles(t *testing.T) {
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "trace_rank_1.json"), []byte(jsonDump), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "notes.txt"), []byte("hello"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "trace_rank_2"), []byte("\x80\x02}"), 0o600))
	require.NoError(t, syscall.Mkfifo(filepath.Join(folder, "trace_rank_0"), 0o600)) // nobody writes to it
	require.NoError(t, os.Symlink("trace_rank_0", filepath.Join(folder, "trace_rank_3")))
	require.NoError(t, os.Symlink("/dev/zero", filepath.Join(folder, "trace_rank_4")))
	dumps, others, problems := ReadFolder(folder)
	require.Len(t, dumps, 1)
	assert.Equal(t, 1, dumps[0].Rank)
	assert.False(t, dumps[0].Written.IsZero())
	assert.Equal(t, 3, others) // the text and the links; a FIFO is not a file
	require.Len(t, problems, 1)
	assert.ErrorContains(t, problems[0], "trace_rank_2")
}

func TestReadFileRefusesLargeDumps(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trace_rank_0")
	require.NoError(t, os.WriteFile(path, []byte("\x80\x02}"), 0o600))
	require.NoError(t, os.Truncate(path, MaxSize+1))
	_, err := ReadFile(path)
	require.ErrorContains(t, err, "at most 256 are read")
}
