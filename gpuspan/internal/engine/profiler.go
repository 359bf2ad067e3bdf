// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package engine is what package gpuspan and package train are made of. Their types and methods are those of the same
// names here, and have the documentation for users.
//
//	caller's side     begin, record, end: take a slot, record events, hand the slot over
//	                  section, operation, stream, register, named, step, loop, boundary, phase: what callers hold
//	polling thread    poller, drain: read events back, many with one question; device: their clocks;
//	                  tidy: what is due each second; watchdog: what hangs
//	placing           hostclock, and package clockmap: GPU times on the wall clock
//	nesting           nest: sections within sections; settlestep: steps and their phases
//	emitting          emit: spans; facts: their numbers; sink: without an SDK;
//	                  metrics, observe: instruments; opstate, place: counts
package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/report"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
)

type Profiler struct {
	cfg      Config
	backend  backend.Backend // nil: host times only
	source   string          // gpu.timing.source
	clock    *hostClock
	errors   reporter
	scope    scope // of spans without a device
	recorder report.Recorder
	metrics  *metrics
	timeAll  bool        // sections of unsampled parents are timed too
	refused  atomic.Bool // the provider does not use cfg.ids

	level atomic.Int32 // verbosity in force; VerbosityOff while disabled

	loops atomic.Int32 // running loops: sections look for their step only while there are any

	mu         sync.Mutex
	enabled    bool                       // what SetEnabled said last,
	verbosity  settings.Verbosity         // and SetVerbosity
	ops        atomic.Pointer[[]*opState] // by Operation.id
	opList     shared[*opState]           // in order of registration
	places     shared[*place]             // of sections within others, parents first
	opCount    int
	overflow   *opState
	streamList shared[*Stream]
	devices    shared[*device]
	names      names // of StartNamed
	phases     names
	steps      names // of loops

	drops    [dropReasons]atomic.Int64
	statuses [timingStatuses]atomic.Int64
	misuse   misuse

	lostLinks atomic.Int64 // requests that their batches' spans do not link to

	poller   *poller
	emitter  *emitter
	watchdog *watchdog
	idle     atomic.Bool // the polling thread sleeps until woken

	stopped     atomic.Bool
	down        chan struct{} // closed when Shutdown is over
	shutdownErr error
}

// dropReason is why a section has no times (gpuspan.drop.reason).
type dropReason uint8

const (
	dropPoolFull dropReason = iota
	dropNestLimit
	dropTimeout
	dropShutdown
	dropDeviceError
	dropCaptured
	dropReasons
)

func (p *Profiler) drop(r dropReason) { p.drops[r].Add(1) }

func New(b backend.Backend, opts ...func(*Config)) (*Profiler, error) {
	set, err := settings.FromEnv()
	errs := []error{err}
	c := Config{Settings: set}
	for _, o := range opts {
		o(&c)
	}
	if err := c.Validate(); err != nil {
		errs = append(errs, err)
		c.Settings = c.Valid()
	}
	c.fill()
	p := &Profiler{cfg: c, down: make(chan struct{})}
	p.errors.handle = c.OnError
	if a := c.Annotator; a != nil && !p.listens(a) {
		p.cfg.Annotator = nil
	}
	errs = append(errs, p.meet(b))
	p.ops.Store(&[]*opState{})
	p.names.init(c.Names, func(name string) *Operation { return NewOperation(name) })
	p.phases.init(maxPhases, newPhaseOperation)
	p.steps.init(c.Names, newStepOperation)
	p.timeAll = c.Metrics == settings.MetricsAll
	p.enabled, p.verbosity = c.Enabled, c.Verbosity
	p.setLevel()

	p.recorder = c.Recorder
	if p.recorder == nil && c.Report {
		now := func() time.Time { return time.Unix(0, p.clock.wall(p.clock.now())) }
		p.recorder = report.NewCollector(report.WithClock(now))
	}
	p.metrics = newMetrics(p)
	p.scope = p.newScope(func() []attribute.KeyValue { return nil })
	p.poller, p.emitter = newPoller(p, p.backend), newEmitter(p)
	go p.poller.run()
	go p.emitter.keep(p.emitter.loop)
	p.watchdog = startWatchdog(p)
	if b == nil {
		p.log(slog.LevelInfo, "gpuspan: no backend, sections get host times only")
	} else if p.backend != nil {
		errs = append(errs, p.openBackend())
	}
	return p, errors.Join(errs...)
}

// meet asks the backend for its name and its clock. Without one, or with one that panics, times are the host's.
func (p *Profiler) meet(b backend.Backend) (err error) {
	p.source, p.clock = sourceHost, newHostClock(time.Now)
	if b == nil {
		return nil
	}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("no device can be timed, sections get host times only: the backend panicked: %v", r)
		}
	}()
	clock, name := newHostClock(b.Now), b.Name()
	p.backend, p.clock, p.source = b, clock, name
	return nil
}

// log writes a line; the logger is the application's.
func (p *Profiler) log(level slog.Level, text string, attrs ...slog.Attr) {
	defer p.guard("a line was logged")
	p.cfg.Logger.LogAttrs(context.Background(), level, text, attrs...)
}

// openBackend lists the devices, on the polling thread. Without any, the profiler falls back to host times.
func (p *Profiler) openBackend() error {
	var failure error
	t := p.poller
	open := func() {
		if failure = t.openDevices(); failure != nil {
			t.closeBackend()
		}
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), p.cfg.OpenTimeout,
		errors.New("the driver does not answer"))
	defer cancel()
	err := t.call(ctx, open)
	if err != nil && ctx.Err() != nil { // the thread hangs in the driver: it is left behind
		t.left.Store(true)
		close(t.quit)
		p.poller = newPoller(p, nil)
		go p.poller.run()
	} else if err == nil {
		err = failure
	}
	if err != nil {
		p.backend, p.source = nil, sourceHost
		p.log(slog.LevelWarn, "gpuspan: no device can be timed, sections get host times only", slog.Any("error", err))
		return fmt.Errorf("no device can be timed, sections get host times only: %w", err)
	}
	return nil
}

func (p *Profiler) SetEnabled(on bool) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.enabled = on
	p.setLevel()
}

func (p *Profiler) SetVerbosity(v settings.Verbosity) {
	if p == nil || v < settings.VerbosityOff || v > settings.VerbosityDebug {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.verbosity = v
	p.setLevel()
}

// setLevel puts into force what was said last. The mutex must be held.
func (p *Profiler) setLevel() {
	level := settings.VerbosityOff
	if p.enabled && !p.stopped.Load() {
		level = p.verbosity
	}
	p.level.Store(int32(level))
}

func (p *Profiler) Enabled() bool { return p != nil && p.level.Load() > int32(settings.VerbosityOff) }

func (p *Profiler) Source() string {
	if p == nil {
		return ""
	}
	return p.source
}

func (p *Profiler) Devices() []backend.Device {
	if p == nil {
		return nil
	}
	var out []backend.Device
	for _, d := range p.devices.all() {
		out = append(out, d.info)
	}
	return out
}

func (p *Profiler) Snapshot() report.Summary {
	if p == nil || p.recorder == nil {
		return report.Summary{}
	}
	p.catchUp()
	return p.summary()
}

// catchUp brings the statistics up to date: what the device has finished, and counts of untimed sections. A polling
// thread that hangs in the driver only costs this.
func (p *Profiler) catchUp() {
	if p.stopped.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	_ = p.poller.call(ctx, func() {
		p.poller.pass()
		p.poller.anchorNow()
		p.poller.place(false)
	})
	_ = p.emitter.call(ctx, func() {
		p.emitter.drainUntil(p.clock.now())
		p.emitter.reportUntimed()
	})
}

func (p *Profiler) summary() (s report.Summary) {
	defer p.guard("the recorder was asked for a summary")
	s = p.recorder.Summary()
	for _, st := range p.streamList.all() {
		_, pending := st.filled()
		s.Pending += int64(pending)
	}
	return s
}

func (p *Profiler) Reset() {
	if p == nil || p.recorder == nil {
		return
	}
	p.catchUp()
	defer p.guard("the recorder was reset")
	p.recorder.Reset()
}

func (p *Profiler) Stats(o *Operation) (report.Figures, bool) {
	if p == nil || o == nil {
		return report.Figures{}, false
	}
	return p.Snapshot().ByName(o.cfg.Info.Name)
}

func (p *Profiler) Flush(ctx context.Context) error {
	if p == nil || p.stopped.Load() {
		return nil
	}
	ctx, cancel := p.deadline(ctx)
	defer cancel()
	return p.poller.flush(ctx)
}

func (p *Profiler) deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx = cmp.Or(ctx, context.Background())
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, p.cfg.FlushDeadline,
		fmt.Errorf("`flush_deadline` of %s passed", p.cfg.FlushDeadline))
}

// Real is p, or nil for one that New did not make: a zero value does what nil does.
func (p *Profiler) Real() *Profiler {
	if p == nil || p.poller == nil {
		return nil
	}
	return p
}

func (p *Profiler) Shutdown(ctx context.Context) error {
	if p == nil {
		return nil
	}
	ctx, cancel := p.deadline(ctx)
	defer cancel()
	if !p.stopped.CompareAndSwap(false, true) {
		select {
		case <-p.down:
		case <-ctx.Done():
			select {
			case <-p.down: // was already
			default:
				return fmt.Errorf("shutdown: another call of it is not over: %w", context.Cause(ctx))
			}
		}
		return p.shutdownErr
	}
	defer close(p.down)
	p.SetEnabled(false)
	p.watchdog.stop()
	p.shutdownErr = p.poller.stop(ctx)
	p.watchdog.wait(ctx)
	p.metrics.callback.freeze(ctx)
	if p.cfg.PrintReport && p.recorder != nil {
		if err := p.summary().WriteText(os.Stderr); err != nil {
			p.shutdownErr = errors.Join(p.shutdownErr, err)
		}
	}
	return p.shutdownErr
}

func (p *Profiler) untimed(o *Operation) Section {
	st := p.known(o)
	if st == nil {
		st = p.register(o)
	}
	return st.outermost.run(p)
}
