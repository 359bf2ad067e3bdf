// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gpucapturereceiver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/receiver"
	"go.uber.org/zap"

	"github.com/otelgpu/otelgpu/internal/profiletrace/follow"
	"github.com/otelgpu/otelgpu/internal/sharedcomponent"
	"github.com/otelgpu/otelgpu/receiver/gpucapturereceiver/internal/metadata"
	"github.com/otelgpu/otelgpu/receiver/gpucapturereceiver/internal/ring"
)

// rescanInterval is how often the folder is scanned for new processes.
const rescanInterval = time.Second

// captureReceiver finds rings and opens windows, one goroutine for each process.
type captureReceiver struct {
	cfg  *Config
	log  *zap.Logger
	tel  *metadata.TelemetryBuilder
	emit consumer.ConsumeTracesFunc

	cancel context.CancelFunc
	done   sync.WaitGroup

	mu       sync.Mutex
	sessions map[string]bool   // by path; true while its goroutine runs
	refused  map[string]string // last message about files that cannot be used
	crowded  bool              // more processes than max_processes: reported once
	missing  bool              // the folder does not exist: reported once
}

var _ component.Component = (*captureReceiver)(nil)

func newReceiver(set receiver.Settings, cfg *Config, next consumer.Traces) (*captureReceiver, error) {
	emit, err := follow.Consumer(set, next)
	if err != nil {
		return nil, err
	}
	tel, err := metadata.NewTelemetryBuilder(set.TelemetrySettings)
	if err != nil {
		return nil, err
	}
	own := *cfg
	own.Spans.Version = set.BuildInfo.Version
	return &captureReceiver{
		cfg: &own, log: set.Logger, tel: tel, emit: emit, sessions: map[string]bool{}, refused: map[string]string{},
	}, nil
}

// Start begins to search for processes. A missing folder is not an error: processes may be started
// later.
func (r *captureReceiver) Start(context.Context, component.Host) error {
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	r.done.Go(func() {
		tick := time.NewTicker(rescanInterval)
		defer tick.Stop()
		for {
			r.scan(ctx)
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	})
	return nil
}

// Shutdown ends open windows; their records are lost.
func (r *captureReceiver) Shutdown(ctx context.Context) error {
	if r.cancel != nil {
		r.cancel()
	}
	if err := sharedcomponent.Wait(ctx, &r.done); err != nil {
		return fmt.Errorf("gpu_capture receiver: %w", err)
	}
	r.tel.Shutdown()
	return nil
}

// scan starts a session for each ring that has none.
func (r *captureReceiver) scan(ctx context.Context) {
	entries, err := os.ReadDir(r.cfg.Folder)
	if err != nil {
		if !r.missing {
			r.missing = true
			r.log.Warn(
				"cannot read the folder of the rings, and processes cannot create theirs in it (create it, or set `folder`)",
				zap.String("folder", r.cfg.Folder), zap.Error(err))
		}
		return
	}
	r.missing = false
	r.mu.Lock()
	defer r.mu.Unlock()
	present := map[string]bool{}
	for _, e := range entries {
		path := filepath.Join(r.cfg.Folder, e.Name())
		if filepath.Ext(path) != ".ring" {
			continue
		}
		present[path] = true
		if r.sessions[path] {
			continue
		}
		if len(r.sessions) >= r.cfg.MaxProcesses {
			if !r.crowded {
				r.crowded = true
				r.log.Warn("more processes than `max_processes`; the others are recorded when some end",
					zap.Int("max_processes", r.cfg.MaxProcesses))
			}
			continue
		}
		if r.session(ctx, path) {
			r.sessions[path] = true
		}
	}
	maps.DeleteFunc(r.refused, func(path, _ string) bool { return !present[path] })
}

// session opens a ring and reads it in a separate goroutine; false if it cannot be used. Called
// with the lock held.
func (r *captureReceiver) session(ctx context.Context, path string) bool {
	q, err := ring.Open(path)
	if err != nil {
		if said := r.refused[path]; said != err.Error() && !errors.Is(err, fs.ErrNotExist) && len(r.refused) < 1000 {
			r.refused[path] = err.Error()
			r.log.Warn("ring ignored", zap.Error(err))
		}
		return false
	}
	r.tel.ReceiverGpuCaptureProcesses.Add(ctx, 1)
	log := r.log.With(zap.Uint32("pid", q.Info.PID), zap.String("command", q.Info.Command))
	log.Info("a process can be captured", zap.String("ring", path))
	r.done.Go(func() {
		defer func() {
			q.Close()
			r.tel.ReceiverGpuCaptureProcesses.Add(context.Background(), -1)
			r.mu.Lock()
			delete(r.sessions, path)
			r.mu.Unlock()
		}()
		r.follow(ctx, q, path, log)
	})
	return true
}

// follow opens windows until the process ends, and then removes its ring.
func (r *captureReceiver) follow(ctx context.Context, q *ring.Ring, path string, log *zap.Logger) {
	var said string
	spacing, spaced := pace{every: r.cfg.Every, maxCost: r.cfg.MaxCost}, false
	next := time.NewTimer(0)
	defer next.Stop()
	alive := time.NewTicker(rescanInterval)
	defer alive.Stop()
	if r.cfg.Every == 0 {
		next.Stop()
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-alive.C:
		case <-next.C:
			w := &window{cfg: r.cfg, ring: q}
			res, err := w.run(ctx, r.emit)
			if res.Records > 0 && err != nil {
				log.Error("spans of a window are lost: the next component rejects them", zap.Error(err))
			}
			if ctx.Err() != nil {
				return
			}
			r.count(ctx, res)
			if res.Message != said && res.Message != "" {
				log.Warn("cannot record a window; will retry", zap.String("outcome", res.Outcome),
					zap.String("reason", res.Message))
			}
			if res.Remark != "" {
				log.Warn(res.Remark)
			}
			if said = res.Message; res.Outcome == "broken" {
				return
			}
			interval, lost := spacing.next(w.cost)
			if rare := interval > r.cfg.Every; rare != spaced {
				spaced = rare
				r.logSpacing(log, interval, lost)
			}
			next.Reset(max(interval-time.Since(w.cost.begin), 0))
		}
		if !q.Alive() {
			_ = os.Remove(path)
			log.Info("the process has ended")
			return
		}
	}
}

func (r *captureReceiver) logSpacing(log *zap.Logger, interval, lost time.Duration) {
	fields := []zap.Field{zap.Duration("interval", interval), zap.Duration("cost_of_a_window", lost)}
	if interval > r.cfg.Every {
		log.Warn("windows would cost the process more than `max_cost`; the next ones are further apart than `every` "+
			"(set a shorter `window` or a longer `every`)", fields...)
		return
	}
	log.Info("windows are opened at the interval of `every` again", fields...)
}

func (r *captureReceiver) count(ctx context.Context, res Result) {
	r.tel.ReceiverGpuCaptureWindows.Add(ctx, 1, sharedcomponent.Label("outcome", res.Outcome))
	r.tel.ReceiverGpuCaptureRecords.Add(ctx, res.Records)
	for reason, n := range res.Dropped {
		r.tel.ReceiverGpuCaptureDropped.Add(ctx, n, sharedcomponent.Label("reason", reason))
	}
}

// Capture records one window of a process and passes its spans to emit. It finds the process in the
// folder of the configuration, by the process's own process ID or, if the Collector is in another
// namespace, by its ID there. It returns an error if there is no such process, with the reason if
// it has no ring, and errors of emit. A rejected window is not an error: Result.Outcome and
// Result.Message have the reason.
func Capture(ctx context.Context, pid int, cfg *Config, emit consumer.ConsumeTracesFunc) (Result, error) {
	paths, err := filepath.Glob(filepath.Join(cfg.Folder, strconv.Itoa(pid)+"-*.ring"))
	if err != nil {
		return Result{}, err
	}
	slices.Sort(paths)
	for _, path := range slices.Backward(paths) {
		q, err := ring.Open(path)
		if err != nil {
			return Result{}, err
		}
		defer q.Close()
		if q.Alive() {
			return (&window{cfg: cfg, ring: q}).run(ctx, emit)
		}
	}
	return Result{}, notFound(pid, cfg.Folder)
}

// notFound reports why there is no ring: the process is not there, was not started with the library
// or with this folder, or has not used CUDA yet. Paths are looked up as the process sees them,
// which may be in a container.
func notFound(pid int, folder string) error {
	proc := fmt.Sprintf("/proc/%d/", pid)
	text, err := os.ReadFile(proc + "environ")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("there is no process %d", pid)
	case err != nil:
		return fmt.Errorf("process %d has no ring in %s, and its environment cannot be read: %w", pid, folder, err)
	}
	environment := map[string]string{}
	for variable := range strings.SplitSeq(string(text), "\x00") {
		name, value, _ := strings.Cut(variable, "=")
		environment[name] = value
	}
	missing := func(path string) bool {
		if filepath.IsAbs(path) {
			path = proc + "root" + path
		} else {
			path = proc + "cwd/" + path
		}
		_, err := os.Stat(path)
		return errors.Is(err, fs.ErrNotExist)
	}
	library := environment["CUDA_INJECTION64_PATH"]
	its := cmp.Or(environment["OTELGPU_CAPTURE_DIR"], defaultFolder)
	switch {
	case library == "":
		return fmt.Errorf(
			"process %d cannot be captured: it was started without CUDA_INJECTION64_PATH=/path/to/libotelgpu_capture.so", pid)
	case missing(library):
		return fmt.Errorf("process %d cannot be captured: its CUDA_INJECTION64_PATH names %s, which does not exist",
			pid, library)
	case missing(its):
		return fmt.Errorf("process %d has no ring: its folder %s does not exist (create it before the process starts: "+
			"mkdir -m 0700 %s)", pid, its, its)
	case filepath.Clean(its) != filepath.Clean(folder):
		return fmt.Errorf("process %d has no ring in %s: its OTELGPU_CAPTURE_DIR is %s (--folder %s)", pid, folder, its, its)
	}
	return fmt.Errorf("process %d has no ring in %s: it has not used CUDA yet, or the folder did not exist when it did "+
		"(OTELGPU_CAPTURE_VERBOSE=1 makes it say why)", pid, folder)
}
