// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package event

import (
	"bufio"
	"container/heap"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

// sorter keeps records in an arena of bounded size. A full arena is sorted and written to a
// temporary file (a run); reading merges all runs with what is still in memory. It can be read any
// number of times.
type sorter struct {
	dir    string
	limit  int
	chunks [][]byte // the arena; a record is within one chunk
	used   int      // chunks that hold records
	bytes  int
	index  []entry
	spare  []entry  // as long as index while that is sorted
	file   *os.File // all runs, one after the other; removed at once, so that nothing remains after a crash
	at     int64
	runs   []run
	sorted bool
}

// entry is a record of the arena; key is repeated here, so that sorting mostly stays in the index.
type entry struct {
	key int64
	off uint32 // number of the chunk << chunkBits | offset
}

const (
	chunkBits = 20
	chunkSize = 1 << chunkBits
	// the first ones are smaller, as long as that holds all events
	firstChunk = 1 << 16
)

func (s *sorter) record(e entry) []byte { return s.chunks[e.off>>chunkBits][e.off&(chunkSize-1):] }

type run struct{ off, size int64 }

func newSorter(dir string, limit int) *sorter {
	return &sorter{dir: dir, limit: min(limit, 1<<31)}
}

const entrySize = 2 * 16 // in index and spare

func (s *sorter) add(r *Record) error {
	need := recordHeader + len(r.Detail)
	if need > chunkSize {
		return fmt.Errorf("an event of %d bytes", need)
	}
	if s.bytes+need+(len(s.index)+1)*entrySize > s.limit && len(s.index) > 0 {
		if err := s.spill(); err != nil {
			return err
		}
	}
	if s.used == 0 || len(s.chunks[s.used-1])+need > cap(s.chunks[s.used-1]) {
		if s.used == len(s.chunks) { // few events take a small one
			s.chunks = append(s.chunks, make([]byte, 0, min(max(firstChunk, 2*s.bytes, need), chunkSize)))
		}
		s.used++
	}
	c := &s.chunks[s.used-1]
	if len(s.index) == cap(s.index) { // append alone would allocate five times as much
		s.index = slices.Grow(s.index, max(len(s.index), 1<<10))
	}
	s.index = append(s.index, entry{r.Key, uint32(s.used-1)<<chunkBits | uint32(len(*c))})
	*c = r.appendTo(*c)
	s.bytes += need
	s.sorted = false
	return nil
}

func (s *sorter) sort() {
	if s.sorted {
		return
	}
	s.spare = slices.Grow(s.spare[:0], len(s.index))[:len(s.index)]
	s.index, s.spare = sortByKey(s.index, s.spare)
	for from := 0; from < len(s.index); {
		to := from + 1
		for to < len(s.index) && s.index[to].key == s.index[from].key {
			to++
		}
		if to > from+1 {
			slices.SortFunc(s.index[from:to], s.compare)
		}
		from = to
	}
	s.sorted = true
}

// compare orders records of one key. No two are equal: each has its own position in the file.
func (s *sorter) compare(a, b entry) int {
	var x, y Record
	x.header(s.record(a))
	y.header(s.record(b))
	if x.Less(&y) {
		return -1
	}
	return 1
}

func (s *sorter) spill() error {
	s.sort()
	if s.file == nil {
		f, err := CreateTemp(s.dir)
		if err != nil {
			return fmt.Errorf("cannot create spill file: %w", err)
		}
		s.file = f
	}
	w := bufio.NewWriterSize(io.NewOffsetWriter(s.file, s.at), 256<<10)
	start := s.at
	for _, e := range s.index {
		b := s.record(e)
		n := recordHeader + int(binary.LittleEndian.Uint32(b[36:]))
		if _, err := w.Write(b[:n]); err != nil {
			return fmt.Errorf("cannot write spill file: %w", err)
		}
		s.at += int64(n)
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("cannot write spill file: %w", err)
	}
	s.runs = append(s.runs, run{start, s.at - start})
	for i := range s.chunks {
		s.chunks[i] = s.chunks[i][:0]
	}
	s.used, s.bytes, s.index = 0, 0, s.index[:0]
	return nil
}

func (s *sorter) close() error {
	s.chunks, s.index, s.spare, s.used, s.bytes = nil, nil, nil, 0, 0
	if s.file == nil {
		return nil
	}
	err := CloseTemp(s.file)
	s.file = nil
	return err
}

// each calls f for every record in order. The record is valid during the call.
func (s *sorter) each(f func(*Record) error) error {
	if len(s.runs) > 0 && len(s.index) > 0 { // what reads the records needs the memory
		if err := s.spill(); err != nil {
			return err
		}
		s.chunks, s.index, s.spare = nil, nil, nil
	}
	s.sort()
	if len(s.runs) == 0 {
		var r Record
		for _, e := range s.index {
			r.load(s.record(e))
			if err := f(&r); err != nil {
				return err
			}
		}
		return nil
	}
	size := max(16<<10, min(256<<10, (16<<20)/(len(s.runs)+1)))
	h := make(Ordered[*source], 0, len(s.runs)+1)
	for _, r := range s.runs {
		h = append(h, &source{r: bufio.NewReaderSize(io.NewSectionReader(s.file, r.off, r.size), size)})
	}
	for i := 0; i < len(h); {
		switch err := h[i].next(); {
		case errors.Is(err, io.EOF):
			h = append(h[:i], h[i+1:]...)
		case err != nil:
			return err
		default:
			i++
		}
	}
	heap.Init(&h)
	for len(h) > 0 {
		top := h[0]
		if err := f(&top.rec); err != nil {
			return err
		}
		switch err := top.next(); {
		case errors.Is(err, io.EOF):
			heap.Pop(&h)
		case err != nil:
			return err
		default:
			heap.Fix(&h, 0)
		}
	}
	return nil
}

// load reads a whole record; detail points into b.
func (r *Record) load(b []byte) {
	n := r.header(b)
	r.Detail = b[recordHeader : recordHeader+n : recordHeader+n]
}

// source is one sorted run while it is merged: a part of the file.
type source struct {
	rec Record
	r   *bufio.Reader
	buf []byte
}

func (s *source) next() error {
	head, err := s.r.Peek(recordHeader)
	if err != nil {
		if len(head) > 0 {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	n := s.rec.header(head)
	_, _ = s.r.Discard(recordHeader)
	s.buf = slices.Grow(s.buf[:0], n)[:n]
	s.rec.Detail = s.buf
	_, err = io.ReadFull(s.r, s.buf)
	return err
}

var _ interface{ Less(than *source) bool } = (*source)(nil) // for ordered

func (s *source) Less(than *source) bool { return s.rec.Less(&than.rec) }

// CreateTemp creates a temporary file. Where open files may be removed, it has no name, so that a
// process that is killed leaves nothing. Close it with [CloseTemp].
func CreateTemp(dir string) (*os.File, error) {
	f, err := os.CreateTemp(dir, "otelgpu-spill-*")
	if err == nil {
		_ = os.Remove(f.Name())
	}
	return f, err
}

// CloseTemp closes a file of [CreateTemp], and removes it where it still has a name.
func CloseTemp(f *os.File) error {
	err := f.Close()
	_ = os.Remove(f.Name())
	return err
}
