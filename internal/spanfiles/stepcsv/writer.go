// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package stepcsv writes the files that gpuspan/stepcsv describes, for it and for the Collector's
// step_csv exporter.
package stepcsv

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/otelgpu/otelgpu/internal/spanfiles/fileerr"
)

// ErrClosed is returned by writes after Close.
var ErrClosed = errors.New("step CSV is closed")

// Config configures [Open].
type Config struct {
	Path   string   // path of the file, such as "steps.csv"; its folder is created
	Phases []string // further phases, each with a column; the standard ones need not be named
}

// Stats holds the counters of a [Writer].
type Stats struct {
	Rows       int64         // rows written
	Repaired   int64         // incomplete lines that were removed
	Undeclared time.Duration // time of phases without a column
}

// Writer appends rows to a file. It is safe for concurrent use.
type Writer struct {
	cfg   Config
	mu    sync.Mutex
	f     *os.File
	size  int64
	cols  columns
	stats Stats
	buf   bytes.Buffer
	done  bool
}

// Open opens or creates the file. It returns an error if the file cannot be opened or its header
// has other columns. A file with columns for all phases and for further ones keeps them.
func Open(cfg Config) (*Writer, error) {
	if cfg.Path == "" {
		return nil, errors.New("step CSV needs a path")
	}
	w := &Writer{cfg: cfg}
	if err := os.MkdirAll(filepath.Dir(cfg.Path), 0o755); err != nil {
		return nil, fmt.Errorf("cannot create folder for step CSV %q: %w", cfg.Path, fileerr.Cause(err))
	}
	if err := w.open(); err != nil {
		return nil, err
	}
	return w, nil
}

func (w *Writer) open() error {
	cols, err := newColumns(w.cfg.Phases)
	if err != nil {
		return fmt.Errorf("step CSV %q: %w", w.cfg.Path, err)
	}
	create(w.cfg.Path, cols.head())
	f, err := os.OpenFile(w.cfg.Path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("cannot open step CSV %q: %w", w.cfg.Path, fileerr.Cause(err))
	}
	err = w.take(f, cols)
	if err != nil {
		_ = f.Close()
	}
	return err
}

// take continues an open file: it removes an incomplete last line, and uses the columns of the file
// or writes the wanted ones.
func (w *Writer) take(f *os.File, want columns) error {
	size, repaired, err := repair(f, func() { time.Sleep(settle) })
	if err != nil {
		return fmt.Errorf("cannot open step CSV %q: %w", w.cfg.Path, fileerr.Cause(err))
	}
	if size > 0 {
		if want, err = adopt(f, want); err != nil {
			return fmt.Errorf("cannot append to step CSV %q: %w (move it away, or declare the same phases)", w.cfg.Path, err)
		}
	}
	w.f, w.size, w.cols = f, size, want
	if repaired {
		w.stats.Repaired++
	}
	if size > 0 {
		return nil
	}
	w.buf.Reset()
	w.buf.Write(want.head())
	return w.append()
}

// settle is how long an incomplete line must stay unchanged to be considered the result of a crash,
// and not the work of another process.
const settle = 50 * time.Millisecond

// repair truncates the file after the last complete line. It opens the file by name: a handle that
// appends cannot truncate on Windows.
func repair(f *os.File, wait func()) (size int64, repaired bool, err error) {
	for before := int64(-1); ; {
		whole, all, err := lines(f)
		switch {
		case err != nil || whole == all:
			return whole, false, err
		case all == before:
			return whole, true, os.Truncate(f.Name(), whole)
		}
		before = all
		wait()
	}
}

// lines returns the length of the complete lines of a file, and its whole length.
func lines(f *os.File) (whole, all int64, err error) {
	info, err := f.Stat()
	if err != nil {
		return 0, 0, err
	}
	if !info.Mode().IsRegular() {
		return 0, 0, errors.New("it is not a regular file")
	}
	all = info.Size()
	b := make([]byte, 4096)
	for end := all; end > 0; {
		n := min(int64(len(b)), end)
		if _, err := f.ReadAt(b[:n], end-n); err != nil {
			return 0, 0, err
		}
		if i := bytes.LastIndexByte(b[:n], '\n'); i >= 0 {
			return end - n + int64(i) + 1, all, nil
		}
		end -= n
		// One incomplete line. Only a possible beginning of the header may be removed.
		if end == 0 && (all > int64(len(b)) || !strings.HasPrefix("step,epoch,", string(b[:min(n, 11)]))) {
			return 0, 0, errors.New("it contains something other than steps")
		}
	}
	return 0, all, nil
}

// adopt reads the header of a file, and uses its columns if they include all required ones.
func adopt(f *os.File, want columns) (columns, error) {
	header, err := csv.NewReader(bufio.NewReader(io.NewSectionReader(f, 0, 1<<20))).Read()
	if err != nil {
		return columns{}, fmt.Errorf("its header cannot be read: %w", err)
	}
	phases, ok := further(header)
	if !ok {
		return columns{}, fmt.Errorf("its header is %q", strings.Join(header, ","))
	}
	have, err := newColumns(phases)
	if err != nil {
		return columns{}, err
	}
	missing := slices.DeleteFunc(slices.Clone(want.header), func(h string) bool { return slices.Contains(have.header, h) })
	if len(missing) > 0 {
		return columns{}, fmt.Errorf("its header has no column %s", strings.Join(missing, ", "))
	}
	return have, nil
}

// Declare adds columns for further phases if the file has no row yet. Phases that have a column, or
// cannot have one, are ignored.
func (w *Writer) Declare(phases ...string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.done || w.f == nil || w.size != int64(len(w.cols.head())) {
		return nil
	}
	all, _ := further(w.cols.header)
	before := len(all)
	for _, p := range phases {
		c, err := newColumns(append(slices.Clip(all), p))
		if err == nil && len(c.header) > len(w.cols.header)+len(all)-before {
			all = append(all, p)
		}
	}
	if len(all) == before {
		return nil
	}
	if err := os.Truncate(w.cfg.Path, 0); err != nil { // by name: a handle that appends cannot truncate on Windows
		return fmt.Errorf("cannot write the header of step CSV %q: %w", w.cfg.Path, fileerr.Cause(err))
	}
	_ = w.f.Close()
	w.f, w.cfg.Phases = nil, all
	return w.open()
}

// Write appends rows in one write, so that rows of processes that append to the same file do not
// mix. If it returns an error, no row has been written, and the call may be repeated. After Close
// it returns [ErrClosed].
func (w *Writer) Write(rows ...Row) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.done {
		return ErrClosed
	}
	if len(rows) == 0 {
		return nil
	}
	if err := w.reopen(); err != nil {
		return err
	}
	w.buf.Reset()
	var undeclared time.Duration
	for _, r := range rows {
		undeclared += w.cols.line(&w.buf, r)
	}
	if err := w.append(); err != nil {
		return err
	}
	w.stats.Rows += int64(len(rows))
	w.stats.Undeclared += undeclared
	return nil
}

// reopen opens the file of the path again if it was moved or removed, as by a program that
// rotates it; rows would otherwise be written to an abandoned file.
func (w *Writer) reopen() error {
	if w.f != nil {
		there, err := os.Stat(w.cfg.Path)
		if own, oerr := w.f.Stat(); err == nil && oerr == nil && os.SameFile(there, own) {
			w.size = there.Size() // with the rows of other processes
			return nil
		}
		_ = w.f.Close()
		w.f = nil
	}
	return w.open()
}

func (w *Writer) append() error {
	n, err := w.f.Write(w.buf.Bytes())
	if err == nil {
		w.size += int64(n)
		return nil
	}
	err = fmt.Errorf("cannot write step CSV %q: %w", w.cfg.Path, fileerr.Cause(err))
	if n > 0 {
		// Not to the known size: another process may have appended in between.
		if info, serr := w.f.Stat(); serr == nil {
			if terr := os.Truncate(w.cfg.Path, max(info.Size()-int64(n), 0)); terr != nil {
				err = errors.Join(err, fmt.Errorf("and cannot remove the partial data: %w", fileerr.Cause(terr)))
			}
		}
	}
	return err
}

// Stats returns the counters so far.
func (w *Writer) Stats() Stats {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stats
}

// Close closes the file and returns its error. A second Close does nothing.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.done || w.f == nil {
		w.done = true
		return nil
	}
	w.done = true
	if err := w.f.Close(); err != nil {
		return fmt.Errorf("cannot close step CSV %q: %w", w.cfg.Path, fileerr.Cause(err))
	}
	return nil
}

// create creates a file with its header in one step: the ranks of a job open the same path at the
// same moment, and each that found an empty file would write a header. If that is impossible (a
// file system without links) the file is created by opening it.
func create(path string, header []byte) {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return
	}
	// os.CreateTemp would create a file that only its owner may read; this one has the usual mode.
	name := filepath.Join(filepath.Dir(path), fmt.Sprintf(".%s-%016x", filepath.Base(path), rand.Uint64()))
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return
	}
	defer func() { _ = os.Remove(name) }()
	_, err = f.Write(header)
	if err = errors.Join(err, f.Close()); err == nil {
		_ = os.Link(name, path) // fails when another process was faster
	}
}
