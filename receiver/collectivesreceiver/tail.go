// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package collectivesreceiver

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/otelgpu/otelgpu/internal/ncclinspector"
	"github.com/otelgpu/otelgpu/internal/regularfile"
)

// tails follow files that grow. A file that was replaced or removed is read to its end first, and
// one that became shorter, or begins with other bytes, is read again from its beginning.
type tails struct {
	include []string
	max     int
	job     *ncclinspector.Job
	open    map[string]*tail
	buffer  []byte

	refused  int64 // files beyond max, at the last lookup
	bad      int64 // lines and files that cannot be read, since the start
	firstBad error
}

// tail is an open file.
type tail struct {
	path    string
	file    *os.File
	offset  int64
	partial []byte // a line whose end is not written yet
	skip    bool   // until the end of the line
	head    []byte // the first bytes: a file that was truncated may have grown again
	parser  ncclinspector.Parser
	within  bool // the reading began within a batch, whose lines have no origin
}

// portion is how much of a file is read before the next file, so that all ranks proceed together.
const portion = 128 << 10

// read passes new lines of all files to the job. atEnd: the first lines of new files are skipped.
func (t *tails) read(atEnd bool) {
	t.lookup(atEnd)
	for more := true; more; {
		more = false
		for _, f := range t.open {
			more = t.portion(f) || more
		}
	}
}

// lookup opens new files and closes replaced and removed ones.
func (t *tails) lookup(atEnd bool) {
	if t.open == nil {
		t.open, t.buffer = map[string]*tail{}, make([]byte, portion)
	}
	for path, f := range t.open {
		now, err := os.Stat(path)
		was, _ := f.file.Stat()
		if f.rewritten() || was != nil && was.Size() < f.offset {
			f.offset, f.partial, f.skip, f.within = 0, nil, false, false
		}
		if err == nil && was != nil && os.SameFile(was, now) {
			continue
		}
		for t.portion(f) {
		}
		f.file.Close()
		delete(t.open, path)
	}
	var paths []string
	for _, p := range t.include {
		m, _ := doublestar.FilepathGlob(p, doublestar.WithFilesOnly()) // folders that cannot be read have no files
		paths = append(paths, m...)
	}
	slices.Sort(paths)
	t.refused = 0
	for _, path := range slices.Compact(paths) {
		switch {
		case t.open[path] != nil:
		case len(t.open) >= t.max:
			t.refused++
		default:
			if f, err := open(path, atEnd); err != nil {
				t.fail(err)
			} else {
				t.open[path] = f
			}
		}
	}
}

// headSize includes the time stamp and the number of the first operation in a file.
const headSize = 512

// rewritten reports whether the file begins with other bytes than before.
func (f *tail) rewritten() bool {
	head := make([]byte, headSize)
	n, err := f.file.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return false
	}
	before := f.head
	f.head = head[:n]
	return !bytes.HasPrefix(f.head, before)
}

func open(path string, atEnd bool) (*tail, error) {
	file, err := regularfile.Open(path)
	if err != nil {
		return nil, err
	}
	f := &tail{path: path, file: file}
	if !atEnd {
		return f, nil
	}
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		file.Close()
		return nil, err
	}
	if f.offset = size; size > 0 { // the file may end within a line
		f.offset, f.skip, f.within = size-1, true, true
	}
	return f, nil
}

// portion reads a part of a file, and reports whether there may be more.
func (t *tails) portion(f *tail) bool {
	n, err := f.file.ReadAt(t.buffer, f.offset)
	if err != nil && !errors.Is(err, io.EOF) {
		t.fail(err)
	}
	f.offset += int64(n)
	text := t.buffer[:n]
	for len(text) > 0 {
		line, rest, whole := bytes.Cut(text, []byte("\n"))
		text = rest
		switch {
		case f.skip:
			f.skip = !whole
		case !whole && len(f.partial)+len(line) > ncclinspector.MaxLine:
			f.partial, f.skip = nil, true
			t.fail(fmt.Errorf("%s: a line has more than %d bytes", f.path, ncclinspector.MaxLine))
		case !whole:
			f.partial = append(f.partial, line...)
		default:
			if len(f.partial) > 0 {
				line = append(f.partial, line...)
				f.partial = f.partial[:0]
			}
			t.line(f, bytes.TrimRight(line, "\r"))
		}
	}
	return n == len(t.buffer)
}

func (t *tails) line(f *tail, line []byte) {
	if len(line) == 0 {
		return
	}
	switch r, err := f.parser.Parse(line); {
	case errors.Is(err, ncclinspector.ErrNoBatch) && f.within:
	case err != nil:
		t.fail(fmt.Errorf("%s: %w", f.path, err))
	case r.Source != nil:
		f.within = false
		t.job.Add(&r)
	}
}

func (t *tails) fail(err error) {
	t.bad++
	t.firstBad = cmp.Or(t.firstBad, err)
}

func (t *tails) close() {
	for _, f := range t.open {
		f.file.Close()
	}
	t.open = nil
}
