// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bmatcuk/doublestar/v4"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.uber.org/zap"

	"github.com/otelgpu/otelgpu/internal/resend"
	"github.com/otelgpu/otelgpu/internal/sharedcomponent"
)

// Read reads one file and passes on its batches. It must emit the same ones for the same content,
// whatever the file's name, and others for another. An error means that the file is rejected; it
// names the file.
type Read func(ctx context.Context, path string, emit consumer.ConsumeTracesFunc) error

// ErrRepeated is what emit returns to a Read of a file whose content was passed on before: it was
// renamed, moved, compressed or copied. It ends the Read, which returns it, wrapped or not.
var ErrRepeated = errors.New("read before, under this or another name")

// Follower runs one goroutine that finds and reads files, one at a time.
type Follower struct {
	// Parts means that files are read before they are complete. If identifiers do not depend on the
	// whole file, as for spans written by others, a file that grew starts like the one that was
	// read; so its size is part of its content.
	Parts bool

	cfg    Config
	id     component.ID
	log    *zap.Logger
	read   Read
	next   consumer.ConsumeTracesFunc
	state  *state
	seen   map[string]sighting
	later  map[string]time.Time // when a file that could not be opened or kept is tried again
	retry  time.Duration
	now    func() time.Time
	cancel context.CancelFunc
	wg     sync.WaitGroup
	once   sync.Once
	warned bool

	current atomic.Pointer[string] // the file that is read
}

// sighting is a file that is waited for.
type sighting struct {
	v     version
	since time.Time
}

// New returns a follower; next is a Consumer of batches, or another whose errors are permanent unless
// the context ends.
func New(cfg Config, id component.ID, log *zap.Logger, read Read, next consumer.ConsumeTracesFunc) *Follower {
	return &Follower{
		cfg: cfg, id: id, log: log, read: read, next: next, seen: map[string]sighting{},
		later: map[string]time.Time{}, retry: time.Minute, now: time.Now,
	}
}

// Start opens the storage and begins to read.
func (f *Follower) Start(ctx context.Context, host component.Host) error {
	st, again, err := openState(ctx, host, f.cfg.Storage, f.id, f.cfg.ReplayBatches)
	if err != nil {
		return err
	}
	f.state = st
	if f.cfg.Storage != nil && f.cfg.ReplayBatches > 0 {
		f.log.Warn(
			"storage records what was sent; if the Collector is killed, batches in memory queues of exporters are lost, and "+
				"sent again after the restart (with the same IDs). To avoid loss and repetition, give each exporter a queue on "+
				"disk (sending_queue: {storage: ...}) and set replay_batches: 0", zap.Int("replay_batches", f.cfg.ReplayBatches))
	}
	if again > 0 {
		f.log.Warn("the Collector did not shut down cleanly: the last batches are sent again", zap.Int("batches", again))
	}
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	f.cancel = cancel
	f.current.Store(new(string))
	f.wg.Go(func() { f.run(run) })
	return nil
}

// Shutdown stops reading, even in the middle of a file. It may be called twice, and without Start.
// If a file cannot be left, as on a file system that does not respond, it returns an error that
// names the file when ctx ends.
func (f *Follower) Shutdown(ctx context.Context) error {
	var err error
	f.once.Do(func() {
		if f.cancel == nil {
			return
		}
		f.cancel()
		if err = sharedcomponent.Wait(ctx, &f.wg); err != nil {
			err = fmt.Errorf("cannot stop reading %q: %w", *f.current.Load(), err)
			return
		}
		err = f.state.close(ctx)
	})
	return err
}

func (f *Follower) run(ctx context.Context) {
	if f.cfg.Mode == ModeOnce {
		read, refused := f.poll(ctx, 0)
		if ctx.Err() == nil {
			f.log.Info("all files were read", zap.Int("read", read), zap.Int("refused", refused))
		}
		return
	}
	f.poll(ctx, f.cfg.StableFor)
	t := time.NewTicker(f.cfg.PollInterval)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			f.poll(ctx, f.cfg.StableFor)
		}
	}
}

// Find lists the files that match, sorted.
func (c *Config) Find() ([]string, error) {
	set := map[string]bool{}
	for _, p := range c.Include {
		m, err := doublestar.FilepathGlob(p, doublestar.WithFilesOnly(), doublestar.WithFailOnIOErrors())
		if err != nil {
			if m, err = doublestar.FilepathGlob(p, doublestar.WithFilesOnly()); err != nil {
				return nil, fmt.Errorf("pattern %q: %w", p, err)
			}
		}
	files:
		for _, path := range m {
			for _, x := range c.Exclude {
				if ok, _ := doublestar.PathMatch(x, path); ok {
					continue files
				}
			}
			set[path] = true
		}
	}
	return slices.Sorted(maps.Keys(set)), nil
}

func (f *Follower) poll(ctx context.Context, stable time.Duration) (read, refused int) {
	files, err := f.cfg.Find()
	if err != nil {
		f.log.Error("cannot search for files", zap.Error(err))
		return 0, 0
	}
	if len(files) == 0 && !f.warned {
		f.warned = true
		f.log.Warn("no file matches", zap.Strings("include", f.cfg.Include))
	}
	there := make(map[string]bool, len(files))
	for _, p := range files {
		there[p] = true
	}
	f.state.forget(there, f.now())
	gone := func(p string) bool { return !there[p] }
	maps.DeleteFunc(f.seen, func(p string, _ sighting) bool { return gone(p) })
	maps.DeleteFunc(f.later, func(p string, _ time.Time) bool { return gone(p) })
	for _, p := range files {
		if ctx.Err() != nil {
			return read, refused
		}
		info, err := os.Stat(p)
		if err != nil {
			continue // removed since
		}
		v := versionOf(info)
		if f.state.known(p, v) || !f.settled(p, v, stable) || f.now().Before(f.later[p]) {
			continue
		}
		delete(f.later, p)
		f.current.Store(&p)
		content, err := f.file(ctx, p, v)
		switch {
		case ctx.Err() != nil:
			return read, refused
		case errors.Is(err, ErrRepeated):
			f.log.Info("file skipped", zap.Error(err))
		case outside(err):
			refused++
			f.later[p] = f.now().Add(f.retry)
			f.log.Warn("cannot read file; will retry", zap.Duration("after", f.retry), zap.Error(err))
			continue
		case err != nil:
			refused++
			content = 0 // a part of it at most
			f.log.Warn("file rejected; it is read again when it changes", zap.Error(err))
		default:
			read++
		}
		delete(f.seen, p)
		if err := f.state.done(ctx, p, entry{v, content}); err != nil {
			f.log.Error("cannot record which files were read", zap.Error(err))
		}
	}
	return read, refused
}

// outside reports whether the file is not at fault: it cannot be opened, its file system does not
// respond, the folder of temporary files is full. That may change without a change of the file.
func outside(err error) bool {
	_, ok := errors.AsType[*fs.PathError](err)
	return ok
}

func (f *Follower) settled(path string, v version, stable time.Duration) bool {
	if stable == 0 {
		return true
	}
	now := f.now()
	s, ok := f.seen[path]
	if !ok || s.v != v {
		f.seen[path] = sighting{v, now}
		// A file that was last written long ago is not waited for.
		return now.Sub(time.Unix(0, v.Modified)) > max(2*stable, time.Minute)
	}
	return now.Sub(s.since) >= stable
}

// file reads one file and passes its batches on, except batches that were delivered before.
func (f *Follower) file(ctx context.Context, path string, v version) (content uint64, err error) {
	first, skip := true, 0
	err = f.read(ctx, path, func(ctx context.Context, td ptrace.Traces) error {
		if first {
			first, content = false, contentOf(td)
			if f.Parts {
				content ^= uint64(v.Size)
			}
			if f.state.repeats(content) {
				return ErrRepeated
			}
			skip = f.state.taken(content)
		}
		if skip > 0 {
			skip--
			return nil
		}
		if err := f.deliver(ctx, td); err != nil {
			return err
		}
		if err := f.state.took(ctx, content); err != nil {
			f.log.Error("cannot record which files were read", zap.Error(err))
		}
		return nil
	})
	return content, err
}

// deliver passes a batch on. A batch that was rejected permanently is counted by the consumer, and the
// rest of the file follows.
func (f *Follower) deliver(ctx context.Context, td ptrace.Traces) error {
	err := f.next(ctx, td)
	if err == nil || resend.Permanent(err) {
		return nil
	}
	return errors.Join(err, context.Cause(ctx))
}
