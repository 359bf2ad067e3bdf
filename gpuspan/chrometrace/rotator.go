// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chrometrace

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/otelgpu/otelgpu/gpuspan/internal/fileerr"
	"github.com/otelgpu/otelgpu/gpuspan/internal/rotated"
)

// Files configures a [Rotator].
type Files struct {
	// Path is the path of the file, such as "traces/trace.json". Folders are created. With rotation, the files are named
	// trace-<time of opening>.json, and with one file for each trace, trace-<trace id>.json.
	Path        string
	Compression Compression   // None, Gzip or Zstd; its extension is appended to Path if missing
	Compressor  Compressor    // nil means the standard library's gzip
	Existing    Existing      // what happens if the file exists; "" means Number
	MaxBytes    int64         // a file is complete when it has this size on disk; 0: no limit
	MaxAge      time.Duration // a file is complete this long after its first span; 0: no limit
	// one file for each trace, complete when it received no span for this long; 0: one for all
	PerTrace   time.Duration
	MaxFiles   int                        // number of complete files to keep with rotation; the oldest are removed; 0: all
	MaxOpen    int                        // maximum open files with PerTrace; the one idle for longest is completed; 0: 64
	Now        func() time.Time           // the clock of file names and ages; nil means time.Now
	OnComplete func(path string, s Stats) // called for every completed file, may be nil
	OnError    func(error)                // called for errors in the background and in removing old files; may be nil
}

// Rotator writes spans to files, one after the other or one for each trace. It is safe for concurrent use.
type Rotator struct {
	cfg  Files
	mu   sync.Mutex
	open map[fileKey]*file
	done bool
	stop chan struct{}
	wait sync.WaitGroup
}

// fileKey identifies an open file. Spans that are months apart cannot be in one file with exact nanoseconds: spans that
// do not fit into the first file go to a second one with another base time, and so on.
type fileKey struct {
	trace [16]byte // zero without PerTrace
	era   int
}

// maxEras bounds the files that are open for one trace; a program with a wrong clock could need any number.
const maxEras = 16

// NewRotator returns a Rotator. It returns an error if the path is empty or a folder, or if files cannot be created
// there, so that mistakes are reported at start and not at the first span.
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
	if cfg.MaxOpen <= 0 {
		cfg.MaxOpen = 64
	}
	if e := cfg.Compression.Extension(); !strings.HasSuffix(cfg.Path, e) {
		cfg.Path += e
	}
	if s, err := os.Stat(cfg.Path); err == nil && s.IsDir() {
		return nil, fmt.Errorf("cannot create trace file %q: it is a folder (name a file in it)", cfg.Path)
	}
	if err := os.MkdirAll(filepath.Dir(cfg.Path), 0o755); err != nil {
		return nil, fmt.Errorf("cannot create folder for trace file %q: %w", cfg.Path, fileerr.Cause(err))
	}
	r := &Rotator{cfg: cfg, open: map[fileKey]*file{}, stop: make(chan struct{})}
	probe, err := createFile(r.cfg.Path, cfg.Compression, cfg.Compressor)
	if err != nil {
		return nil, err
	}
	probe.discard()
	if cfg.MaxAge > 0 || cfg.PerTrace > 0 {
		r.wait.Go(r.watch)
	}
	return r, nil
}

// Write writes spans; it may reorder the slice. If it returns an error, no span has been written and the call may be
// repeated. If only some files fail, it returns a *[PartialError] with the spans that were not written. After Close
// it returns ErrClosed.
func (r *Rotator) Write(events []Event) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done {
		return ErrClosed
	}
	if len(events) == 0 {
		return nil
	}
	all := len(events)
	if r.cfg.PerTrace <= 0 {
		failed, err := r.write([16]byte{}, events)
		return partial(failed, all, err)
	}
	// Stable: a trace's spans keep their order.
	slices.SortStableFunc(events, func(a, b Event) int { return slices.Compare(a.Trace[:], b.Trace[:]) })
	var failed []Event
	var errs error
	for len(events) > 0 {
		n := slices.IndexFunc(events, func(e Event) bool { return e.Trace != events[0].Trace })
		if n < 0 {
			n = len(events)
		}
		f, err := r.write(events[0].Trace, events[:n])
		failed, errs = append(failed, f...), errors.Join(errs, err)
		events = events[n:]
	}
	return partial(failed, all, errs)
}

// write writes each span of a trace to the file for its time, and returns the spans that are in no file.
func (r *Rotator) write(trace [16]byte, events []Event) (failed []Event, errs error) {
	for era := 0; len(events) > 0; era++ {
		k := fileKey{trace, era}
		f, err := r.file(k)
		if err != nil {
			return append(failed, events...), errors.Join(errs, err)
		}
		if first := f.first(events); first > 0 {
			f.begin(first)
		}
		n := len(events)
		if era < maxEras-1 {
			n = partition(events, func(e *Event) bool { return e.Start <= 0 || f.holds(e.Start) })
		}
		if n > 0 {
			if err := r.writeTo(k, f, events[:n]); err != nil {
				failed, errs = append(failed, events[:n]...), errors.Join(errs, err)
			}
		}
		events = events[n:]
	}
	return failed, errs
}

func (r *Rotator) writeTo(k fileKey, f *file, events []Event) error {
	f.used = r.cfg.Now()
	if err := f.Write(events); err != nil {
		if f.broken != nil {
			delete(r.open, k)
			return f.finish()
		}
		return err
	}
	if r.cfg.MaxBytes > 0 && f.size >= r.cfg.MaxBytes {
		err := r.complete(k)
		if r.open[k] != f {
			return err
		}
		r.tell(f, err) // the spans are safe, only the end is missing
	}
	return nil
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

// WriteCounters writes counter points to every open file, and returns the joined errors of the files that fail.
// Without an open file the points are dropped: files are only created for spans.
func (r *Rotator) WriteCounters(points []Counter) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done {
		return ErrClosed
	}
	if r.cfg.PerTrace <= 0 && len(points) > 0 {
		// Samples arrive before the spans that they belong to; the writer holds them.
		if _, err := r.file(fileKey{}); err != nil {
			return err
		}
	}
	var errs error
	for _, f := range r.open {
		errs = errors.Join(errs, f.WriteCounters(points))
	}
	return errs
}

func (r *Rotator) file(k fileKey) (*file, error) {
	if f, ok := r.open[k]; ok {
		return f, nil
	}
	var errs error
	if len(r.open) >= r.cfg.MaxOpen {
		oldest := slices.MinFunc(slices.Collect(maps.Keys(r.open)), func(a, b fileKey) int {
			return r.open[a].used.Compare(r.open[b].used)
		})
		f := r.open[oldest]
		if errs = r.complete(oldest); r.open[oldest] == f {
			return nil, errs
		}
	}
	f, err := createFile(r.name(k), r.cfg.Compression, r.cfg.Compressor)
	if err != nil {
		return nil, errors.Join(errs, err)
	}
	f.began = r.cfg.Now()
	f.used = f.began
	r.open[k] = f
	r.report(errs)
	return f, nil
}

func (r *Rotator) rotates() bool { return r.cfg.MaxBytes > 0 || r.cfg.MaxAge > 0 }

// name returns the final name of a file that is opened now.
func (r *Rotator) name(k fileKey) string {
	stem, ext := splitExt(r.cfg.Path)
	switch {
	case r.cfg.PerTrace > 0:
		return fmt.Sprintf("%s-%x%s", stem, k.trace, ext)
	case r.rotates():
		return rotated.Name(stem, ext, r.cfg.Now())
	}
	return withNumber(r.cfg.Path, k.era)
}

// complete finishes a file and gives it its name. On a full disk the file stays open, to be completed later.
func (r *Rotator) complete(k fileKey) error {
	f := r.open[k]
	if s := f.Stats(); s.Events+s.Counters == 0 {
		delete(r.open, k)
		f.discard()
		return nil
	}
	if err := f.end(); err != nil && f.broken == nil && !r.done {
		return err
	}
	delete(r.open, k)
	if err := f.finish(); err != nil {
		return err
	}
	existing := r.cfg.Existing
	if r.rotates() || r.cfg.PerTrace > 0 {
		existing = Number // two files of one millisecond, or late spans of a trace, must not replace each other
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

// prune removes the oldest complete files beyond MaxFiles. Only names that a Rotator of this path creates count.
func (r *Rotator) prune() error {
	stem, ext := splitExt(r.cfg.Path)
	switch {
	case r.cfg.PerTrace > 0:
		return rotated.Prune(stem, ext, r.cfg.MaxFiles, func(mid string) bool {
			return len(mid) >= 32 && strings.Trim(mid[:32], "0123456789abcdef") == ""
		})
	case r.rotates():
		return rotated.Prune(stem, ext, r.cfg.MaxFiles, rotated.Timed)
	}
	return nil
}

// Close completes every file and returns the joined errors of failed files. A second Close does nothing.
func (r *Rotator) Close() error {
	r.mu.Lock()
	if r.done {
		r.mu.Unlock()
		return nil
	}
	r.done = true
	close(r.stop)
	var errs error
	for k := range r.open {
		errs = errors.Join(errs, r.complete(k))
	}
	r.mu.Unlock()
	r.wait.Wait()
	return errs
}

// watch completes files that are due while no span arrives.
func (r *Rotator) watch() {
	every := min(cmp.Or(r.cfg.MaxAge, r.cfg.PerTrace)/4, time.Second)
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

// Sweep completes the files that are due by MaxAge or PerTrace, and returns the joined errors of failed files. The
// Rotator calls it periodically.
func (r *Rotator) Sweep() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.cfg.Now()
	var errs error
	for k, f := range r.open {
		if r.cfg.MaxAge > 0 && now.Sub(f.began) >= r.cfg.MaxAge || r.cfg.PerTrace > 0 && now.Sub(f.used) >= r.cfg.PerTrace {
			if err := r.complete(k); r.open[k] == f {
				r.tell(f, err)
			} else {
				errs = errors.Join(errs, err)
			}
		}
	}
	return errs
}

// PartialError is returned by [Rotator.Write] if some spans were written and others were not. Only those in Failed
// may be written again.
type PartialError struct {
	Failed []Event // events that were not written
	err    error
}

// Error returns the joined errors of the failed files.
func (e *PartialError) Error() string { return e.err.Error() }

// Unwrap returns the errors of the failed files.
func (e *PartialError) Unwrap() error { return e.err }

// partial returns the error of a Write of n spans.
func partial(failed []Event, n int, err error) error {
	if err == nil || len(failed) == n {
		return err
	}
	return &PartialError{Failed: failed, err: err}
}
