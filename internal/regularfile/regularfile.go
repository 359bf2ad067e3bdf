// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package regularfile opens files in folders that other users may write to.
package regularfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// ErrIrregular means that a path is a folder, a named pipe, a device or a socket.
var ErrIrregular = errors.New("not a regular file")

// Open opens a regular file, or a link to one, for reading. It never waits for the writer of a
// named pipe, and opens no device, which may react. The error names the path; for paths of other
// kinds it is ErrIrregular.
func Open(path string) (*os.File, error) { return OpenFile(path, os.O_RDONLY) }

// OpenFile is like Open, with other flags.
func OpenFile(path string, flags int) (*os.File, error) {
	if info, err := os.Stat(path); err == nil {
		if err := check(path, info); err != nil {
			return nil, err
		}
	}
	f, err := os.OpenFile(path, flags|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat() // the path may be another file by now
	if err == nil {
		err = check(path, info)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func check(path string, info fs.FileInfo) error {
	if info.Mode().IsRegular() {
		return nil
	}
	what := "special file"
	switch mode := info.Mode(); {
	case mode.IsDir():
		what = "directory"
	case mode&fs.ModeNamedPipe != 0:
		what = "named pipe"
	case mode&fs.ModeDevice != 0:
		what = "device"
	case mode&fs.ModeSocket != 0:
		what = "socket"
	}
	return fmt.Errorf("%q is a %s, %w", path, what, ErrIrregular)
}
