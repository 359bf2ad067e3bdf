// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chrometrace

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/otelgpu/otelgpu/gpuspan/internal/fileerr"
)

// Compression of files.
type Compression string

// Compressions. Perfetto, TensorBoard and speedscope open gzip; zstd is smaller and faster, but has to be unpacked
// first.
const (
	None Compression = ""
	Gzip Compression = "gzip"
	Zstd Compression = "zstd"
)

// Extension is what file names of the compression end in.
func (c Compression) Extension() string {
	switch c {
	case Gzip:
		return ".gz"
	case Zstd:
		return ".zst"
	}
	return ""
}

// Existing says what happens when the name of a finished file is taken.
type Existing string

// Policies for names that are taken.
const (
	Number  Existing = "number"  // name-1.json, name-2.json …; the default
	Replace Existing = "replace" // the older file is replaced at once
	Refuse  Existing = "refuse"  // an error; the finished trace keeps its temporary name
)

// file is one trace on disk under a temporary name.
type file struct {
	path     string // final name
	existing Existing
	f        *os.File
	size     int64 // bytes written to f
	pack     io.WriteCloser
	*Writer
	broken error
}

// createFile opens a temporary file beside path and checks that the folder can be written to.
func createFile(path string, c Compression, existing Existing) (*file, error) {
	dir, name := filepath.Split(path)
	if dir == "" {
		dir = "."
	}
	if existing == Refuse {
		if _, err := os.Lstat(path); err == nil {
			return nil,
				fmt.Errorf("cannot create trace file %q: it exists (choose another path, or let names be numbered or replaced)",
					path)
		}
	}
	f, err := os.CreateTemp(dir, name+".*"+partialExtension)
	if err != nil {
		return nil, fmt.Errorf("cannot create trace file %q: %w", path, fileerr.Cause(err))
	}
	if err := f.Chmod(0o644); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		_ = f.Close()
		_ = os.Remove(f.Name())
		return nil, fmt.Errorf("cannot create trace file %q: %w", path, fileerr.Cause(err))
	}
	t := &file{path: path, existing: existing, f: f}
	var to io.Writer = (*sized)(t)
	switch c {
	case None:
	case Gzip:
		t.pack = gzip.NewWriter(to)
		to = t.pack
	case Zstd:
		z, err := zstd.NewWriter(to, zstd.WithEncoderConcurrency(1))
		if err != nil {
			_ = f.Close()
			_ = os.Remove(f.Name())
			return nil, fmt.Errorf("cannot create trace file %q: %w", path, err)
		}
		t.pack = z
		to = z
	default:
		_ = f.Close()
		_ = os.Remove(f.Name())
		return nil, fmt.Errorf("cannot create trace file %q: unknown compression %q (use gzip or zstd)", path, string(c))
	}
	t.Writer = NewWriter(to)
	return t, nil
}

// sized counts what reaches the disk, and takes back a Write that failed in the middle.
type sized file

func (s *sized) Write(p []byte) (int, error) {
	if s.broken != nil {
		return 0, s.broken
	}
	n, err := s.f.Write(p)
	if err == nil {
		s.size += int64(n)
		return n, nil
	}
	err = fmt.Errorf("cannot write trace file %q: %w", s.path, fileerr.Cause(err))
	if s.pack != nil {
		s.broken = err // the compressor has state that cannot be taken back
		return n, err
	}
	if terr := s.f.Truncate(s.size); terr != nil {
		s.broken = err
		return n, err
	}
	if _, serr := s.f.Seek(s.size, io.SeekStart); serr != nil {
		s.broken = err
	}
	return n, err
}

// end writes what stands at the end of a trace. After an error it may be called again, unless the file is broken: what
// was written of the end is taken back.
func (t *file) end() error {
	if t.broken != nil {
		return t.broken
	}
	err := t.Writer.Close()
	if err != nil && t.broken == nil {
		err = fmt.Errorf("%w (its end is written as soon as there is room)", err)
	}
	return err
}

// finish completes the file under its temporary name. It can be called once.
func (t *file) finish() error {
	err := t.broken
	if err == nil {
		err = t.Writer.Close()
	}
	if t.pack != nil {
		if cerr := t.pack.Close(); err == nil && cerr != nil {
			err = fmt.Errorf("cannot complete trace file %q: %w", t.path, fileerr.Cause(cerr))
		}
	}
	if err == nil {
		// Before the rename: a power failure must not leave an empty file under the final name.
		if serr := t.f.Sync(); serr != nil && !errors.Is(serr, errors.ErrUnsupported) && !errors.Is(serr, fs.ErrInvalid) {
			err = fmt.Errorf("cannot complete trace file %q: %w", t.path, fileerr.Cause(serr))
		}
	}
	if cerr := t.f.Close(); err == nil && cerr != nil {
		err = fmt.Errorf("cannot complete trace file %q: %w", t.path, fileerr.Cause(cerr))
	}
	if err != nil {
		return fmt.Errorf("%w (what was written stays in %q)", err, t.f.Name())
	}
	return nil
}

// discard removes a file into which nothing was written.
func (t *file) discard() {
	if t.pack != nil {
		_ = t.pack.Close()
	}
	_ = t.f.Close()
	_ = os.Remove(t.f.Name())
}

// publish gives a complete file its name. A hard link refuses to replace a name that is taken, even when two
// processes try at the same moment; a rename does not.
func publish(temp, path string, existing Existing) (string, error) {
	if existing == Replace {
		return path, fileerr.Cause(os.Rename(temp, path))
	}
	for n := range 1_000_000 {
		name := path
		if n > 0 {
			if existing == Refuse {
				break
			}
			name = numbered(path, n)
		}
		err := os.Link(temp, name)
		switch {
		case err == nil:
			return name, fileerr.Cause(os.Remove(temp))
		case errors.Is(err, fs.ErrExist):
			continue
		}
		// A file system without links: there is a moment between looking and renaming.
		if _, serr := os.Lstat(name); serr == nil {
			continue
		}
		return name, fileerr.Cause(os.Rename(temp, name))
	}
	return "", fmt.Errorf("%q exists", path)
}

// numbered puts a number before the extensions: trace.json.gz becomes trace-1.json.gz.
func numbered(path string, n int) string {
	dir, name := filepath.Split(path)
	stem, ext := splitExt(name)
	return fmt.Sprintf("%s%s-%d%s", dir, stem, n, ext)
}

// splitExt splits a name before the last ".json" or ".pt.trace.json", or else before its last extension.
func splitExt(name string) (stem, ext string) {
	for _, e := range []string{".pt.trace.json", ".json"} {
		if i := strings.LastIndex(name, e); i > 0 {
			return name[:i], name[i:]
		}
	}
	e := filepath.Ext(name)
	return strings.TrimSuffix(name, e), e
}
