// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package flightrecorder

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/otelgpu/otelgpu/internal/regularfile"
)

// headSize is how many bytes Sniff needs: the keys of a JSON dump are sorted, and a library's
// version comes early.
const headSize = 512

// ReadFile reads the dump in a file. It returns ErrNotADump for every other file, without reading
// it whole, and never waits for a writer, as opening a FIFO would.
func ReadFile(path string) (*Dump, error) {
	file, err := regularfile.Open(path)
	if errors.Is(err, regularfile.ErrIrregular) {
		return nil, ErrNotADump
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	head := make([]byte, headSize)
	n, err := io.ReadFull(file, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if !Sniff(head[:n]) {
		return nil, ErrNotADump
	}
	if info.Size() > MaxSize {
		return nil, tooLarge(info.Size())
	}
	rest, err := io.ReadAll(io.LimitReader(file, MaxSize+1-int64(n)))
	if err != nil {
		return nil, err
	}
	d, err := Read(path, append(head[:n], rest...))
	if err != nil {
		return nil, err
	}
	d.Written = info.ModTime()
	return d, nil
}

// UnreadableError is why a dump cannot be read.
type UnreadableError struct {
	Path string
	Err  error
}

// Error names the file.
func (e *UnreadableError) Error() string { return fmt.Sprintf("cannot read %q: %s", e.Path, e.Err) }

// Unwrap returns the reason.
func (e *UnreadableError) Unwrap() error { return e.Err }

// ReadFolder reads all dumps directly in a folder. Errors are about single files and name them;
// files that are no dumps are counted in others.
func ReadFolder(folder string) (dumps []*Dump, others int, problems []error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, 0, []error{err}
	}
	for _, entry := range entries {
		path := filepath.Join(folder, entry.Name())
		if entry.IsDir() || entry.Type()&^fs.ModeSymlink != 0 {
			continue
		}
		d, err := ReadFile(path)
		switch {
		case errors.Is(err, ErrNotADump):
			others++
		case err != nil:
			problems = append(problems, &UnreadableError{path, err})
		default:
			dumps = append(dumps, d)
		}
	}
	return dumps, others, problems
}
