// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package regularfile

import (
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestOpenRejectsEverythingButRegularFiles(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, syscall.Mkfifo(path("pipe"), 0o600))
	require.NoError(t, os.Symlink(path("pipe"), path("link to a pipe")))
	require.NoError(t, os.Symlink("/dev/zero", path("link to a device")))
	t.Chdir(dir) // addresses of sockets are short
	l, err := net.Listen("unix", "socket")
	require.NoError(t, err)
	defer l.Close()
	for name, what := range map[string]string{
		"pipe": "named pipe", "link to a pipe": "named pipe", "link to a device": "device", "socket": "socket", ".": "directory",
	} {
		_, err := Open(path(name))
		require.ErrorIs(t, err, ErrIrregular, name)
		assert.EqualError(t, err, `"`+path(name)+`" is a `+what+", not a regular file")
	}

	require.NoError(t, os.WriteFile(path("file"), []byte("text"), 0o600))
	require.NoError(t, os.Symlink(path("file"), path("link")))
	for _, name := range []string{"file", "link"} {
		f, err := Open(path(name))
		require.NoError(t, err)
		text, err := io.ReadAll(f)
		require.NoError(t, err)
		assert.Equal(t, "text", string(text))
		require.NoError(t, f.Close())
	}
	_, err = Open(path("missing"))
	assert.ErrorIs(t, err, fs.ErrNotExist)
	require.NoError(t, os.Symlink(path("loop"), path("loop")))
	_, err = Open(path("loop"))
	assert.ErrorIs(t, err, syscall.ELOOP)
}
