// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan/report"
)

// Profiler turns sections into spans, metrics and statistics. A nil Profiler is a disabled one: its streams and loops are nil
// and do nothing (loops still run their body).
type Profiler struct {
	cfg      config
	backend  Backend // nil: host times only
	source   string  // gpu.timing.source
	clock    *hostClock
	errors   reporter
	tracer   func() trace.Tracer // made at the first span, when it is known whether metrics leave the process
	recorder report.Recorder
	metrics  *metrics
	timeAll  bool        // sections of unsampled parents are timed too
	refused  atomic.Bool // the provider does not use cfg.ids

	level atomic.Int32 // verbosity in force; VerbosityOff while disabled

	loops atomic.Int32 // running loops: sections look for their step only while there are any

	mu         sync.Mutex
	enabled    bool                       // what SetEnabled said last,
	verbosity  Verbosity                  // and SetVerbosity
	ops        atomic.Pointer[[]*opState] // by Operation.id
	opList     atomic.Pointer[[]*opState] // in order of registration
	places     atomic.Pointer[[]*place]   // of sections within others, parents first
	opCount    int
	overflow   *opState
	streamList atomic.Pointer[[]*Stream]
	devices    atomic.Pointer[[]*device]
	names      names // of StartNamed
	phases     names
	steps      names // of loops

	drops    [dropReasons]atomic.Int64
	statuses [timingStatuses]atomic.Int64
	misuse   misuse

	poller   *poller
	watchdog *watchdog
	idle     atomic.Bool // the polling thread sleeps until woken
	wakeups  chan struct{}

	shutdown    sync.Once
	shutdownErr error
	stopped     atomic.Bool
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

// New makes a profiler over a backend: cuda.Open, hip.Open or simgpu.New. The result is never nil and works whatever the error
// says: values that are wrong keep their defaults, and without a device (b is nil, or finds none) sections get host
// times and spans say so (gpu.timing.source `host`): they have gpu.host.duration and no gpu.duration, and gpu.operation.duration has no points of them.
//
// Settings come from [DefaultSettings], then the environment ([SettingsFromEnv]), then options. Call Shutdown in the end: it closes
// the backend, which is this profiler's alone. Operations may serve any number of profilers.
func New(b Backend, opts ...Option) (*Profiler, error) {
	var errs []error
	settings, err := SettingsFromEnv()
	if err != nil {
		errs = append(errs, err)
	}
	c := config{Settings: settings}
	for _, o := range opts {
		if o != nil {
			o.apply(&c)
		}
	}
	if err := c.Validate(); err != nil {
		errs = append(errs, err)
		c.Settings = c.valid()
	}
	c.fill()
	p := &Profiler{cfg: c, wakeups: make(chan struct{}, 1)}
	p.errors.handle = c.onError
	if a := c.annotator; a != nil && !p.listens(a) {
		p.cfg.annotator = nil
	}
	if err := p.meet(b); err != nil {
		errs = append(errs, err)
	}
	p.ops.Store(&[]*opState{})
	p.opList.Store(&[]*opState{})
	p.places.Store(&[]*place{})
	p.streamList.Store(&[]*Stream{})
	p.devices.Store(&[]*device{})
	p.names.init(c.Names, func(name string) *Operation { return NewOperation(name) })
	p.phases.init(maxPhases, newPhaseOperation)
	p.steps.init(c.Names, newStepOperation)
	p.timeAll = c.Metrics == MetricsAll
	p.enabled, p.verbosity = c.Enabled, c.Verbosity
	p.setLevel()

	p.recorder = c.recorder
	if p.recorder == nil && c.Report {
		p.recorder = report.NewCollector(report.WithClock(func() time.Time { return time.Unix(0, p.clock.wall(p.clock.now())) }))
	}
	p.metrics = newMetrics(p)
	p.tracer = sync.OnceValue(func() trace.Tracer { return p.cfg.tracers.Tracer(scopeName, p.metrics.tracerOptions()...) })
	p.poller = newPoller(p)
	go p.poller.run()
	p.watchdog = startWatchdog(p)
	if b == nil {
		p.log(slog.LevelInfo, "gpuspan: no backend, sections get host times only")
	} else if p.backend != nil {
		if err := p.openBackend(); err != nil {
			errs = append(errs, err)
		}
	}
	return p, errors.Join(errs...)
}

// meet asks the backend for its name and its clock. Without one, or with one that panics, times are the host's.
func (p *Profiler) meet(b Backend) (err error) {
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
	p.cfg.logger.LogAttrs(context.Background(), level, text, attrs...)
}

// openBackend lists the devices, on the polling thread. Without any, the profiler falls back to host times.
func (p *Profiler) openBackend() error {
	var err error
	open := func() {
		if err = p.poller.openDevices(); err != nil {
			err = errors.Join(err, p.backend.Close())
		}
	}
	if callErr := p.poller.call(context.Background(), open); callErr != nil {
		err = callErr
	}
	if err != nil {
		p.backend, p.source = nil, sourceHost
		p.log(slog.LevelWarn, "gpuspan: no device can be timed, sections get host times only", slog.Any("error", err))
		return fmt.Errorf("no device can be timed, sections get host times only: %w", err)
	}
	return nil
}

// SetEnabled switches timing on and off at run time. Off costs what a nil Profiler costs. Sections that are open stay open.
func (p *Profiler) SetEnabled(on bool) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.enabled = on
	p.setLevel()
}

// SetVerbosity changes how much is timed, at run time. While profiling is disabled it says what SetEnabled returns to.
func (p *Profiler) SetVerbosity(v Verbosity) {
	if p == nil || v < VerbosityOff || v > VerbosityDebug {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.verbosity = v
	p.setLevel()
}

// setLevel puts into force what was said last. The mutex must be held.
func (p *Profiler) setLevel() {
	level := VerbosityOff
	if p.enabled && !p.stopped.Load() {
		level = p.verbosity
	}
	p.level.Store(int32(level))
}

// Enabled reports whether anything is timed.
func (p *Profiler) Enabled() bool { return p != nil && p.level.Load() > int32(VerbosityOff) }

// Source is gpu.timing.source of the profiler's sections: `cuda_event`, `hip_event`, `simulated`, or `host` without a device.
func (p *Profiler) Source() string {
	if p == nil {
		return ""
	}
	return p.source
}

// Devices lists the devices that the profiler found.
func (p *Profiler) Devices() []Device {
	if p == nil {
		return nil
	}
	var out []Device
	for _, d := range *p.devices.Load() {
		out = append(out, d.info)
	}
	return out
}

// Snapshot is the statistics so far. It never waits for the device: sections that are still running there are missing. It is empty
// with Settings.Report off.
func (p *Profiler) Snapshot() report.Summary {
	if p == nil || p.recorder == nil {
		return report.Summary{}
	}
	p.catchUp()
	return p.summary()
}

// catchUp brings the statistics up to date: what the device has finished, and counts of untimed sections. A polling thread that hangs in the
// driver only costs this.
func (p *Profiler) catchUp() {
	if p.stopped.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	_ = p.poller.call(ctx, func() {
		p.poller.pass()
		p.poller.reportUntimed()
	})
}

func (p *Profiler) summary() (s report.Summary) {
	defer p.guard("the recorder was asked for a summary")
	return p.recorder.Summary()
}

// Reset forgets the statistics of Snapshot. Metrics and occurrence numbers go on.
func (p *Profiler) Reset() {
	if p == nil || p.recorder == nil {
		return
	}
	p.catchUp()
	defer p.guard("the recorder was reset")
	p.recorder.Reset()
}

// Stats is the figures of one operation so far, over every place in which it ran; false when it has not run. Operations of the same name, and
// the launches of one, are one.
func (p *Profiler) Stats(o *Operation) (report.Figures, bool) {
	if p == nil || o == nil {
		return report.Figures{}, false
	}
	return p.Snapshot().ByName(o.info.Name)
}

// Flush waits until every section that has ended is read back and its span has ended, or ctx is done. A context without deadline
// gets Settings.FlushDeadline. Spans then wait in the SDK: flush the TracerProvider too.
func (p *Profiler) Flush(ctx context.Context) error {
	if p == nil || p.stopped.Load() {
		return nil
	}
	ctx, cancel := p.deadline(ctx)
	defer cancel()
	return p.poller.flush(ctx)
}

func (p *Profiler) deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx == nil {
		ctx = context.Background()
	}
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, p.cfg.FlushDeadline,
		fmt.Errorf("`flush_deadline` of %s passed", p.cfg.FlushDeadline))
}

// Shutdown stops timing, flushes until ctx is done, gives up what is then still pending (its spans get host times and
// gpu.timing.status `timeout`), and frees everything, the backend included. Later calls return the same error; all
// else does nothing.
func (p *Profiler) Shutdown(ctx context.Context) error {
	if p == nil {
		return nil
	}
	p.shutdown.Do(func() {
		p.stopped.Store(true)
		p.SetEnabled(false)
		ctx, cancel := p.deadline(ctx)
		defer cancel()
		p.watchdog.stop()
		p.shutdownErr = p.poller.stop(ctx)
		if p.cfg.PrintReport && p.recorder != nil {
			if err := p.summary().WriteText(os.Stderr); err != nil {
				p.shutdownErr = errors.Join(p.shutdownErr, err)
			}
		}
	})
	return p.shutdownErr
}

// wake gets the polling thread out of its sleep.
func (p *Profiler) wake() {
	select {
	case p.wakeups <- struct{}{}:
	default:
	}
}

// untimed counts a run that is not timed.
func (p *Profiler) untimed(o *Operation) Section {
	st := p.known(o)
	if st == nil {
		st = p.register(o)
	}
	return st.outermost.run(p)
}
