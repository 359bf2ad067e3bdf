// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package section

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/internal/errreport"
	"github.com/otelgpu/otelgpu/gpuspan/internal/hostclock"
	"github.com/otelgpu/otelgpu/gpuspan/internal/sink"
	"github.com/otelgpu/otelgpu/gpuspan/internal/spanattr"
	"github.com/otelgpu/otelgpu/gpuspan/internal/spanid"
	"github.com/otelgpu/otelgpu/gpuspan/internal/statistics"
	"github.com/otelgpu/otelgpu/gpuspan/report"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
	"github.com/otelgpu/otelgpu/semconv"
)

// Statistics are the statistics of sections for reports.
type Statistics = statistics.Collector[report.Info, report.Device, report.Summary]

// Core is the state shared by a profiler's goroutines: its settings, its clock, its lists, and its
// counts. Lists are read by any goroutine and grow under the mutex; counts are atomic. The exported
// fields do not change once the profiler's goroutines run.
type Core struct {
	Cfg      Config
	backend  backend.Backend // nil: host times only
	Clock    *hostclock.Clock
	Errors   errreport.Reporter
	Recorder Statistics // nil: no statistics

	// MetricsEmitted reports whether the metrics of sections leave the process at present.
	MetricsEmitted func() bool

	source  string      // gpu.timing.source
	scope   *Scope      // of spans without a device
	timeAll bool        // sections of unsampled parents are timed too
	refused atomic.Bool // the provider does not use cfg.ids

	level      atomic.Int32 // verbosity in force; VerbosityOff while disabled
	stopped    atomic.Bool
	switchMu   sync.Mutex
	switchedOn bool               // the last call of SetEnabled,
	verbosity  settings.Verbosity // and SetVerbosity

	loops atomic.Int32 // running loops: sections search for their step only while there are any

	mu         sync.Mutex
	ops        atomic.Pointer[[]*OpState] // by Operation.id
	opList     shared[*OpState]           // in order of registration
	positions  shared[*Position]          // of sections within others, parents first
	opCount    int
	overflow   *OpState
	streamList shared[*Stream]
	deviceList shared[*Device]
	names      names // of StartNamed
	phases     names
	steps      names // of loops

	drops     [dropReasons]atomic.Int64
	statuses  [timingStatuses]atomic.Int64
	misuses   [misuses]atomic.Int64
	lostLinks atomic.Int64 // requests to which their batches' spans do not link

	idle               atomic.Bool   // the polling thread sleeps until woken
	passed             atomic.Int64  // hostClock when its last pass started
	cpuNs              atomic.Int64  // processor time of the thread as of the last second
	untimed            atomic.Bool   // untimed sections are pending for the report
	since              atomic.Int64  // hostClock when the exporter started to work on a nest; 0: idle
	polling, exporting chan struct{} // each holds one wake-up
}

// NewCore returns the state of a profiler over a backend, which may be nil. An error means that
// settings are invalid or that no device can be timed; the profiler is usable nevertheless.
func NewCore(b backend.Backend, opts ...func(*Config)) (*Core, error) {
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
	p := &Core{
		Cfg: c, timeAll: c.Metrics == settings.MetricsAll, switchedOn: c.Enabled, verbosity: c.Verbosity,
		polling: make(chan struct{}, 1), exporting: make(chan struct{}, 1),
	}
	p.Errors.Handle = c.OnError
	if c.Annotator != nil && !p.listens() {
		p.Cfg.Annotator = nil
	}
	p.ops.Store(&[]*OpState{})
	p.names.init(c.Names, p.newNamed)
	p.phases.init(MaxPhases, newPhaseOperation)
	p.steps.init(c.Names, newStepOperation)
	p.setLevel()
	p.scope = p.newScope(func() []attribute.KeyValue { return nil })
	errs = append(errs, p.open(b))
	if c.Report {
		now := func() time.Time { return time.Unix(0, p.Clock.Wall(p.Clock.Now())) }
		p.Recorder = statistics.New(now, c.ReportOptions).(Statistics)
	}
	return p, errors.Join(errs...)
}

// open queries the backend's name and clock, and lists its devices. Without any, times are the
// host's.
func (p *Core) open(b backend.Backend) error {
	p.source, p.Clock = SourceHost, hostclock.New(time.Now)
	if b == nil {
		p.Log(slog.LevelInfo, "gpuspan: no backend, sections get host times only")
		return nil
	}
	var infos []backend.Device
	if !own(b) {
		return fmt.Errorf("no device can be timed, sections get host times only: %w", errOwned)
	}
	clock, name, err := meet(b)
	if err == nil {
		p.Clock = clock
		infos, err = openDevices(p, b)
	} else {
		closeBackend(p, b)
	}
	if err != nil {
		p.Log(slog.LevelWarn, "gpuspan: no device can be timed, sections get host times only", slog.Any("error", err))
		return fmt.Errorf("no device can be timed, sections get host times only: %w", err)
	}
	p.backend, p.source = b, name
	for _, info := range infos {
		p.deviceList.add(p.newDevice(info))
	}
	return nil
}

// meet queries the backend's name and its clock.
func meet(b backend.Backend) (clock *hostclock.Clock, name string, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the backend panicked: %v", r)
		}
	}()
	return hostclock.New(b.Now), b.Name(), nil
}

// wake wakes the polling thread, now or next.
func (p *Core) wake() { wakeUp(p.polling) }

// MarkExporting states that the exporter works on a nest, or that it has come back from the
// application's code.
func (p *Core) MarkExporting(busy bool) {
	since := int64(0)
	if busy {
		since = p.Clock.Now()
	}
	p.since.Store(since)
}

// TakeUntimed reports whether untimed sections are pending for the report, once.
func (p *Core) TakeUntimed() bool { return p.untimed.Load() && p.untimed.CompareAndSwap(true, false) }

// CPU returns the processor time of the polling thread in ns, as of the last second.
func (p *Core) CPU() int64 { return p.cpuNs.Load() }

// AddLostLinks counts requests to which their batch's span does not link.
func (p *Core) AddLostLinks(n int) { p.lostLinks.Add(int64(n)) }

func (p *Core) LostLinks() int64 { return p.lostLinks.Load() }

// Stopped reports whether the profiler is shut down, or about to be.
func (p *Core) Stopped() bool { return p.stopped.Load() }

// Stop ends timing; false if it has ended before.
func (p *Core) Stop() bool {
	if !p.stopped.CompareAndSwap(false, true) {
		return false
	}
	p.SetEnabled(false)
	return true
}

// Streams returns the streams that are not closed or still have sections.
func (p *Core) Streams() []*Stream { return p.streamList.all() }

// Operations returns the states of the operations that have run.
func (p *Core) Operations() []*OpState { return p.opList.all() }

// Positions returns the positions of sections within others, parents first.
func (p *Core) Positions() []*Position { return p.positions.all() }

// TimedDevices returns the devices that the backend listed.
func (p *Core) TimedDevices() []*Device { return p.deviceList.all() }

// At reports whether operations of a verbosity are timed.
func (p *Core) At(v settings.Verbosity) bool { return p.level.Load() >= int32(v) }

// EnterLoop states that a loop runs, until LeaveLoop.
func (p *Core) EnterLoop() { p.loops.Add(1) }

func (p *Core) LeaveLoop() { p.loops.Add(-1) }

// Samples reports whether sections below a span are timed.
func (p *Core) Samples(parent trace.Span) bool { return p.timeAll || !unsampled(parent) }

// wakeUp wakes a goroutine that waits for the channel, now or next.
func wakeUp(wakeups chan<- struct{}) {
	select {
	case wakeups <- struct{}{}:
	default:
	}
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

var dropNames = [dropReasons]string{
	semconv.GpuspanDropReasonPoolFull, semconv.GpuspanDropReasonNestLimit, semconv.GpuspanDropReasonTimeout,
	semconv.GpuspanDropReasonShutdown, semconv.GpuspanDropReasonDeviceError, semconv.GpuspanDropReasonCaptured,
}

// drop counts a section without times.
func (p *Core) drop(r dropReason) { p.drops[r].Add(1) }

// Drops returns the number of sections without times, by gpuspan.drop.reason.
func (p *Core) Drops() map[string]int64 { return byName(dropNames[:], p.drops[:]) }

// Statuses returns the number of resolved sections, by gpu.timing.status.
func (p *Core) Statuses() map[string]int64 { return byName(statusNames[:], p.statuses[:]) }

// byName returns counts by name.
func byName(names []string, counts []atomic.Int64) map[string]int64 {
	out := make(map[string]int64, len(names))
	for i, name := range names {
		out[name] = counts[i].Load()
	}
	return out
}

// Log writes a line; the logger is the application's.
func (p *Core) Log(level slog.Level, text string, attrs ...slog.Attr) {
	defer p.Guard("a line was logged")
	p.Cfg.Logger.LogAttrs(context.Background(), level, text, attrs...)
}

func (p *Core) Source() string {
	if p == nil {
		return ""
	}
	return p.source
}

func (p *Core) Devices() []backend.Device {
	if p == nil {
		return nil
	}
	var out []backend.Device
	for _, d := range p.deviceList.all() {
		out = append(out, d.Info)
	}
	return out
}

func (p *Core) Untimed(o *Operation) Section {
	st := p.known(o)
	if st == nil {
		st = p.register(o)
	}
	return st.Outermost.run(p)
}

// Config configures a profiler.
type Config struct {
	settings.Settings
	Tracers       trace.TracerProvider
	Meters        metric.MeterProvider
	OnError       func(error)
	Logger        *slog.Logger
	ReportOptions []report.Option
	Annotator     Annotator
	IDs           *spanid.Generator
	Outputs       io.Writer
	Attributes    []attribute.KeyValue
	Named         func(name string) []func(*OperationConfig) // options of the operations of StartNamed; may be nil
	Sink          sink.Sink                                  // instead of Tracers, for sections

	OpenTimeout time.Duration // for the driver to list its devices; default 30 s
}

// fill sets defaults for what no option set.
func (c *Config) fill() {
	c.OpenTimeout = cmp.Or(c.OpenTimeout, 30*time.Second)
	if c.OnError == nil {
		c.OnError = otel.Handle
	}
	c.Logger = cmp.Or(c.Logger, slog.Default())
	c.Tracers = cmp.Or(c.Tracers, otel.GetTracerProvider())
	c.Meters = cmp.Or(c.Meters, otel.GetMeterProvider())
	c.Attributes = spanattr.AppendValid(nil, c.Attributes)
}

var statusNames = [timingStatuses]string{
	StatusTimed:       semconv.GPUTimingStatusOk,
	StatusCaptured:    semconv.GPUTimingStatusCaptured,
	statusDropped:     semconv.GPUTimingStatusDropped,
	StatusDeviceError: semconv.GPUTimingStatusDeviceError,
	statusTimeout:     semconv.GPUTimingStatusTimeout,
	statusClockJump:   semconv.GPUTimingStatusClockJump,
}

// SpanOf returns the span of a context that may be nil.
func SpanOf(ctx context.Context) trace.Span { return trace.SpanFromContext(ctx) }

// Quiet reports whether the section only kept events warm: it counts, but its times are discarded.
func (r *Record) Quiet() bool { return r.Step != nil && !r.Step.Recorded }

const SourceHost = semconv.GPUTimingSourceHost

const ScopeName = "github.com/otelgpu/otelgpu/gpuspan"

// Version is the version of this module, on the instrumentation scope of its spans and metrics.
const Version = "0.1.0"

// Guard recovers from panics of code outside of this library: backends, providers, annotators,
// recorders. Use it deferred, never under a mutex: the error handler is the application's.
func (p *Core) Guard(doing string) {
	if r := recover(); r != nil {
		p.Errors.Report("panic", fmt.Errorf("recovered while %s: %v", doing, r))
	}
}

// misuse is a kind of call that the caller cannot have intended (gpuspan.misuse.kind).
type misuse uint8

const (
	ConcurrentSteps   misuse = iota // a step of a loop while another one of it runs
	ForeignStream                   // StartOn or PhaseOn with a stream of another profiler
	staleParent                     // Start within a section that has ended
	unmatchedEnd                    // EndNamed without an open section of the name
	operationOverflow               // sections of operations beyond maxOperations
	InvalidWork                     // impossible values
	Unended                         // sections that were abandoned, and phases that their step ended
	misuses
)

var misuseNames = [misuses]string{
	semconv.GpuspanMisuseKindConcurrentSteps, semconv.GpuspanMisuseKindForeignStream,
	semconv.GpuspanMisuseKindStaleParent, semconv.GpuspanMisuseKindUnmatchedEnd,
	semconv.GpuspanMisuseKindOperationOverflow, semconv.GpuspanMisuseKindInvalidWork, semconv.GpuspanMisuseKindUnended,
}

// CountMisuse counts a call.
func (p *Core) CountMisuse(kind misuse) { p.misuses[kind].Add(1) }

// Misuse returns the counts, by gpuspan.misuse.kind.
func (p *Core) Misuse() map[string]int64 {
	if p == nil {
		return nil
	}
	out := byName(misuseNames[:], p.misuses[:])
	out[semconv.GpuspanMisuseKindNameOverflow] = p.names.dropped.Load() + p.steps.dropped.Load()
	return out
}

func (p *Core) SetEnabled(on bool) {
	p.switchMu.Lock()
	defer p.switchMu.Unlock()
	p.switchedOn = on
	p.setLevel()
}

func (p *Core) SetVerbosity(v settings.Verbosity) {
	if v < settings.VerbosityOff || v > settings.VerbosityDebug {
		return
	}
	p.switchMu.Lock()
	defer p.switchMu.Unlock()
	p.verbosity = v
	p.setLevel()
}

// setLevel applies the last settings. The mutex must be held.
func (p *Core) setLevel() {
	level := settings.VerbosityOff
	if p.switchedOn && !p.stopped.Load() {
		level = p.verbosity
	}
	p.level.Store(int32(level))
}

func (p *Core) Enabled() bool { return p.At(settings.VerbosityOff + 1) }
