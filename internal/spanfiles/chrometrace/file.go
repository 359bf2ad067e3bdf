// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chrometrace

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/otelgpu/otelgpu/internal/spanfiles/fileerr"
)

// Compression is the compression of files.
type Compression string

// Compressions. Perfetto, TensorBoard and speedscope open gzip; zstd is smaller and faster, but
// must be decompressed first, and needs [Files.Compressor]: the standard library has no zstd.
const (
	None Compression = ""     // uncompressed
	Gzip Compression = "gzip" // extension .gz
	Zstd Compression = "zstd" // extension .zst
)

// Extension returns the extension of file names with the compression.
func (c Compression) Extension() string {
	switch c {
	case Gzip:
		return ".gz"
	case Zstd:
		return ".zst"
	}
	return ""
}

// Compressor returns a writer that compresses to w, or an error if it does not support c.
type Compressor func(c Compression, w io.Writer) (io.WriteCloser, error)

// standard returns the Compressor of the standard library.
func standard(c Compression, w io.Writer) (io.WriteCloser, error) {
	if c == Gzip {
		return gzip.NewWriter(w), nil
	}
	return nil, fmt.Errorf("no compressor for %q (use gzip, or set Files.Compressor)", string(c))
}

// Existing selects what happens if a file with the final name exists.
type Existing string

// Policies for names that exist.
const (
	Number  Existing = "number"  // name-1.json, name-2.json …; the default
	Replace Existing = "replace" // the new file replaces it once complete
)

// file is one trace on disk under a temporary name.
type file struct {
	path   string // final name
	f      *os.File
	size   int64          // bytes written to f
	pack   io.WriteCloser // nil without compression
	broken error
	*Writer

	began time.Time // by the Rotator's clock
	told  bool      // that its end cannot be written
}

// partialExtension ends the names of files that are not complete: <name>.<number>.partial.
const partialExtension = ".partial"

// createFile opens a temporary file next to path and checks that the folder is writable.
func createFile(path string, c Compression, compress Compressor) (t *file, err error) {
	fail := func(err error) (*file, error) {
		return nil, fmt.Errorf("cannot create trace file %q: %w", path, fileerr.Cause(err))
	}
	// os.CreateTemp would create a file that only its owner may read; this one has the usual mode.
	name := fmt.Sprintf("%s.%d%s", path, rand.Uint64(), partialExtension)
	t = &file{path: path}
	if t.f, err = os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644); err != nil {
		return fail(err)
	}
	if c == None {
		t.Writer = NewWriter((*sized)(t))
		return t, nil
	}
	if t.pack, err = compress(c, (*sized)(t)); err != nil {
		t.pack = nil
		t.discard()
		return fail(err)
	}
	t.Writer = NewWriter(t.pack)
	return t, nil
}

// sized counts the bytes that reach the disk, and undoes a Write that failed in the middle.
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
		s.broken = err // the compressor has state that cannot be undone
		return n, err
	}
	_, serr := s.f.Seek(s.size, io.SeekStart)
	if terr := s.f.Truncate(s.size); terr != nil || serr != nil {
		s.broken = err
	}
	return n, err
}

// end writes the end of a trace. After an error it may be called again, unless the file is broken:
// a partial end is removed.
func (t *file) end() error {
	if t.broken != nil {
		return t.broken
	}
	err := t.Writer.Close()
	if err != nil && t.broken == nil {
		err = fmt.Errorf("%w (its end is written as soon as there is space)", err)
	}
	return err
}

// finish completes the file under its temporary name. It can be called once.
func (t *file) finish() error {
	err := t.broken
	if err == nil {
		err = t.Writer.Close()
	}
	then := func(e error) {
		if err == nil && e != nil {
			err = fmt.Errorf("cannot complete trace file %q: %w", t.path, fileerr.Cause(e))
		}
	}
	if t.pack != nil {
		then(t.pack.Close())
	}
	// Before the rename: a power failure must not leave an empty file under the final name.
	if serr := t.f.Sync(); !errors.Is(serr, errors.ErrUnsupported) && !errors.Is(serr, fs.ErrInvalid) {
		then(serr)
	}
	then(t.f.Close())
	if err != nil {
		return fmt.Errorf("%w (the incomplete file is %q)", err, t.f.Name())
	}
	return nil
}

// discard removes an empty file.
func (t *file) discard() {
	if t.pack != nil {
		_ = t.pack.Close()
	}
	_ = t.f.Close()
	_ = os.Remove(t.f.Name())
}

// publish gives a complete file its name, which it returns.
func (t *file) publish(existing Existing) (string, error) {
	temp := t.f.Name()
	name, err := t.path, error(nil)
	if existing == Replace {
		err = os.Rename(temp, name)
	} else {
		name, err = numbered(temp, t.path)
	}
	if err != nil {
		return "", fmt.Errorf("cannot name trace file %q: %w (the complete trace stays in %q)", t.path, fileerr.Cause(err),
			temp)
	}
	return name, nil
}

// numbered gives a file the first free name: path, and then path with a number. A hard link refuses
// to replace an existing name, even if two processes try at the same moment; a rename does not.
func numbered(temp, path string) (string, error) {
	for n := 0; ; n++ {
		name := withNumber(path, n)
		switch err := os.Link(temp, name); {
		case err == nil:
			return name, os.Remove(temp)
		case errors.Is(err, fs.ErrExist):
			continue
		}
		// A file system without links: another process may create the file between the check and
		// the rename.
		if _, err := os.Lstat(name); err != nil {
			return name, os.Rename(temp, name)
		}
	}
}

// withNumber puts a number other than 0 before the extensions: trace.json.gz becomes
// trace-1.json.gz.
func withNumber(path string, n int) string {
	if n == 0 {
		return path
	}
	stem, ext := splitExt(path)
	return fmt.Sprintf("%s-%d%s", stem, n, ext)
}

// splitExt splits a path before the last ".json" or ".pt.trace.json" of its name, or else before
// its last extension.
func splitExt(path string) (stem, ext string) {
	dir, name := filepath.Split(path)
	for _, e := range []string{".pt.trace.json", ".json"} {
		if i := strings.LastIndex(name, e); i > 0 {
			return dir + name[:i], name[i:]
		}
	}
	ext = filepath.Ext(name)
	return strings.TrimSuffix(path, ext), ext
}
