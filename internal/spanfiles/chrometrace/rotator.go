// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chrometrace

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/otelgpu/otelgpu/internal/spanfiles/fileerr"
)

// Files configures a [Rotator].
type Files struct {
	// Path is the path of the file, such as "traces/trace.json". Folders are created. With
	// rotation, the files are named trace-<time of opening>.json.
	Path        string
	Compression Compression                // None, Gzip or Zstd; its extension is appended to Path if missing
	Compressor  Compressor                 // nil means the standard library's gzip
	Existing    Existing                   // what happens if the file exists; "" means Number
	MaxBytes    int64                      // a file is complete when it has this size on disk; 0: no limit
	MaxAge      time.Duration              // a file is complete this long after its first span; 0: no limit
	MaxFiles    int                        // number of complete files to keep with rotation, the newest ones; 0: all
	Now         func() time.Time           // the clock of file names and ages; nil means time.Now
	OnComplete  func(path string, s Stats) // called for every completed file, may be nil
	OnError     func(error)                // called for errors in the background and in removing old files; may be nil
}

// Rotator writes spans to files, one after the other. It is safe for concurrent use.
type Rotator struct {
	cfg   Files
	mu    sync.Mutex
	file  *file // nil: none is open
	moved int   // files that were completed because spans did not fit their time
	done  bool
	stop  chan struct{}
	wait  sync.WaitGroup
}

// maxMoves bounds the files that are completed because spans of another time follow; a program with
// a wrong clock could need any number. Further spans of other times are dropped and counted.
const maxMoves = 16

// NewRotator returns a Rotator. It returns an error if the path is empty or a folder, or if files
// cannot be created there, so that mistakes are reported at start and not at the first span.
func NewRotator(cfg Files) (*Rotator, error) {
	if cfg.Path == "" {
		return nil, errors.New("trace file needs a path")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Compressor == nil {
		cfg.Compressor = standard
	}
	cfg.Existing = cmp.Or(cfg.Existing, Number)
	if e := cfg.Compression.Extension(); !strings.HasSuffix(cfg.Path, e) {
		cfg.Path += e
	}
	if s, err := os.Stat(cfg.Path); err == nil && s.IsDir() {
		return nil, fmt.Errorf("cannot create trace file %q: it is a folder (name a file in it)", cfg.Path)
	}
	if err := os.MkdirAll(filepath.Dir(cfg.Path), 0o755); err != nil {
		return nil, fmt.Errorf("cannot create folder for trace file %q: %w", cfg.Path, fileerr.Cause(err))
	}
	r := &Rotator{cfg: cfg, stop: make(chan struct{})}
	probe, err := createFile(r.cfg.Path, cfg.Compression, cfg.Compressor)
	if err != nil {
		return nil, err
	}
	probe.discard()
	if cfg.MaxAge > 0 {
		r.wait.Go(r.watch)
	}
	return r, nil
}

// Write writes spans. If it returns an error, no span has been written and the call may be
// repeated. After Close it returns ErrClosed.
func (r *Rotator) Write(events []Event) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done {
		return ErrClosed
	}
	if len(events) == 0 {
		return nil
	}
	if err := r.fit(events); err != nil {
		return err
	}
	f := r.file
	if err := f.Write(events); err != nil {
		if f.broken != nil {
			r.file = nil
			return f.finish()
		}
		return err
	}
	if r.cfg.MaxBytes > 0 && f.size >= r.cfg.MaxBytes {
		err := r.complete()
		if r.file != f {
			return err
		}
		r.tell(f, err) // the spans are safe, only the end is missing
	}
	return nil
}

// fit opens a file if none is open, or if the open one does not hold the times of the spans, which
// may be of a profile that was recorded months before the others.
func (r *Rotator) fit(events []Event) error {
	other := func(e Event) bool { return e.Start > 0 && !r.file.holds(e.Start) }
	if f := r.file; f != nil && r.moved < maxMoves &&
		slices.ContainsFunc(events, other) && !f.holds(typicalStart(events)) {
		if err := r.complete(); r.file == f {
			return err
		}
		r.moved++
	}
	return r.open()
}

// tell reports once per file that its end cannot be written.
func (r *Rotator) tell(f *file, err error) {
	if !f.told {
		r.report(err)
	}
	f.told = true
}

func (r *Rotator) report(err error) {
	if err != nil && r.cfg.OnError != nil {
		r.cfg.OnError(err)
	}
}

// WriteCounters writes counter points. After Close it returns ErrClosed.
func (r *Rotator) WriteCounters(points []Counter) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done {
		return ErrClosed
	}
	if len(points) == 0 {
		return nil
	}
	if err := r.open(); err != nil { // samples arrive before the spans that they belong to
		return err
	}
	return r.file.WriteCounters(points)
}

// open opens a file if none is open.
func (r *Rotator) open() error {
	if r.file != nil {
		return nil
	}
	f, err := createFile(r.name(), r.cfg.Compression, r.cfg.Compressor)
	if err != nil {
		return err
	}
	f.began = r.cfg.Now()
	r.file = f
	return nil
}

func (r *Rotator) rotates() bool { return r.cfg.MaxBytes > 0 || r.cfg.MaxAge > 0 }

// name returns the final name of a file that is opened now.
func (r *Rotator) name() string {
	if stem, ext := splitExt(r.cfg.Path); r.rotates() {
		return timedName(stem, ext, r.cfg.Now())
	}
	return withNumber(r.cfg.Path, r.moved)
}

// complete finishes a file and gives it its name. On a full disk the file stays open, to be
// completed later.
func (r *Rotator) complete() error {
	f := r.file
	if s := f.Stats(); s.Events+s.Counters == 0 {
		r.file = nil
		f.discard()
		return nil
	}
	if err := f.end(); err != nil && f.broken == nil && !r.done {
		return err
	}
	r.file = nil
	if err := f.finish(); err != nil {
		return err
	}
	existing := r.cfg.Existing
	if r.rotates() {
		existing = Number // two files of one millisecond must not replace each other
	}
	name, err := f.publish(existing)
	if err == nil && r.cfg.OnComplete != nil {
		r.cfg.OnComplete(name, f.Stats())
	}
	if !r.done { // the spans are safe: an error here must not make the caller write them again
		r.report(err)
		err = nil
	}
	r.report(r.prune())
	return err
}

// prune removes the oldest complete files beyond MaxFiles. Only names that a Rotator of this path
// creates count.
func (r *Rotator) prune() error {
	if stem, ext := splitExt(r.cfg.Path); r.rotates() {
		return prune(stem, ext, r.cfg.MaxFiles)
	}
	return nil
}

// Close completes the open file. A second Close does nothing.
func (r *Rotator) Close() error {
	r.mu.Lock()
	if r.done {
		r.mu.Unlock()
		return nil
	}
	r.done = true
	close(r.stop)
	var err error
	if r.file != nil {
		err = r.complete()
	}
	r.mu.Unlock()
	r.wait.Wait()
	return err
}

// watch completes the file when it is due while no span arrives.
func (r *Rotator) watch() {
	every := min(r.cfg.MaxAge/4, time.Second)
	t := time.NewTicker(max(every, 10*time.Millisecond))
	defer t.Stop()
	for {
		select {
		case <-r.stop:
			return
		case <-t.C:
			r.report(r.Sweep())
		}
	}
}

// Sweep completes the file if it is due by MaxAge. The Rotator calls it periodically.
func (r *Rotator) Sweep() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.file
	if f == nil || r.cfg.MaxAge <= 0 || r.cfg.Now().Sub(f.began) < r.cfg.MaxAge {
		return nil
	}
	err := r.complete()
	if r.file == f {
		r.tell(f, err)
		return nil
	}
	return err
}
