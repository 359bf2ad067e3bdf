// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package section

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/internal/spanattr"
	"github.com/otelgpu/otelgpu/gpuspan/internal/worker"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
	"github.com/otelgpu/otelgpu/semconv"
)

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

// Guard recovers from panics of code outside of this library: backends, providers, annotators,
// recorders. Use it deferred, never under a mutex: the error handler is the application's.
func (p *Core) Guard(doing string) {
	if r := recover(); r != nil {
		p.Errors.Report("panic", fmt.Errorf("recovered while %s: %v", doing, r))
	}
}

// Log writes a line; the logger is the application's.
func (p *Core) Log(level slog.Level, text string, attrs ...slog.Attr) {
	defer p.Guard("a line was logged")
	p.Cfg.Logger.LogAttrs(context.Background(), level, text, attrs...)
}

// wake wakes the polling thread, now or next.
func (p *Core) wake() { worker.Wake(p.polling) }

// NewExportWorker returns the worker of the exporter's goroutine.
func (p *Core) NewExportWorker() worker.Worker { return worker.New(p.exporting) }

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

func (p *Core) SetEnabled(on bool) {
	if p == nil {
		return
	}
	p.switchMu.Lock()
	defer p.switchMu.Unlock()
	p.switchedOn = on
	p.setLevel()
}

func (p *Core) SetVerbosity(v settings.Verbosity) {
	if p == nil || v < settings.VerbosityOff || v > settings.VerbosityDebug {
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

func (p *Core) Enabled() bool { return p != nil && p.At(settings.VerbosityOff+1) }

// At reports whether operations of a verbosity are timed.
func (p *Core) At(v settings.Verbosity) bool { return p.level.Load() >= int32(v) }

// Streams returns the streams that are not closed or still have sections.
func (p *Core) Streams() []*Stream { return p.streamList.all() }

// State returns the profiler's state of an operation.
func (p *Core) State(o *Operation) *OpState { return p.ops.state(o) }

// Operations returns the states of the operations that have run.
func (p *Core) Operations() []*OpState { return p.ops.list.all() }

// Positions returns the positions of sections within others, parents first.
func (p *Core) Positions() []*Position { return p.ops.positions.all() }

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

// TimedDevices returns the devices that the backend listed.
func (p *Core) TimedDevices() []*Device { return p.deviceList.all() }

// EnterLoop states that a loop runs, until LeaveLoop.
func (p *Core) EnterLoop() { p.loops.Add(1) }

func (p *Core) LeaveLoop() { p.loops.Add(-1) }

// Samples reports whether sections below a span are timed.
func (p *Core) Samples(parent trace.Span) bool { return p.timeAll || !unsampled(parent) }

// unsampled reports whether the trace is unsampled at its head; without a trace it is false.
// IsValid would also check for a span ID, which every tracer sets, and cost two more copies of the
// 64 bytes of a span context before an atomic add that waits for all of them.
func unsampled(parent trace.Span) bool {
	sc := parent.SpanContext()
	return !sc.IsSampled() && sc.HasTraceID()
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

// misuse is a kind of call that the caller cannot have intended (gpuspan.misuse.kind).
type misuse uint8

const (
	ConcurrentSteps misuse = iota // a step of a loop while another one of it runs
	ForeignStream                 // StartOn or PhaseOn with a stream of another profiler
	staleParent                   // Start within a section that has ended
	unmatchedEnd                  // EndNamed without an open section of the name
	InvalidWork                   // impossible values
	Unended                       // sections that were abandoned, and phases that their step ended
	misuses
)

var misuseNames = [misuses]string{
	semconv.GpuspanMisuseKindConcurrentSteps, semconv.GpuspanMisuseKindForeignStream,
	semconv.GpuspanMisuseKindStaleParent, semconv.GpuspanMisuseKindUnmatchedEnd,
	semconv.GpuspanMisuseKindInvalidWork, semconv.GpuspanMisuseKindUnended,
}

// CountMisuse counts a call.
func (p *Core) CountMisuse(kind misuse) { p.misuses[kind].Add(1) }

// Misuse returns the counts, by gpuspan.misuse.kind.
func (p *Core) Misuse() map[string]int64 {
	if p == nil {
		return nil
	}
	out := byName(misuseNames[:], p.misuses[:])
	out[semconv.GpuspanMisuseKindOperationOverflow] = p.ops.overflows.Load()
	out[semconv.GpuspanMisuseKindNameOverflow] = p.names.dropped.Load() + p.steps.dropped.Load()
	return out
}

// newNamed returns a new operation of StartNamed.
func (p *Core) newNamed(name string) *Operation {
	return NewOperation(name, p.namedOptions(name)...)
}

func (p *Core) namedOptions(name string) []func(*OperationConfig) {
	if p.Cfg.Named == nil {
		return nil
	}
	defer p.Guard("a name was described")
	return p.Cfg.Named(name)
}

// MaxPhases bounds the phases of a profiler, because each is an attribute name.
const MaxPhases = 64

// PhaseOperation returns the operation of a phase's sections, whose name and category are the
// phase's; other is true if there are too many, which share one.
func (p *Core) PhaseOperation(name string) (o *Operation, other bool) {
	o = p.phases.operation(name)
	return o, o == p.phases.overflow
}

// StepOperation returns the operation of the steps of all loops of a name, so that a loop may be
// created for each epoch or evaluation.
func (p *Core) StepOperation(name string) *Operation { return p.steps.operation(name) }

// newDevice creates a device, whose spans have their own scopes with the identity of the device,
// once for all of them.
func (p *Core) newDevice(info backend.Device) *Device {
	d := &Device{Info: info, Attrs: identity(info)}
	for _, kv := range d.Attrs {
		if kv.Key == semconv.HWIDKey || kv.Key == semconv.HWNameKey {
			d.repeated = append(d.repeated, kv)
		}
	}
	d.timed = p.newScope(func() []attribute.KeyValue { return d.scope(p.source) })
	d.untimed = p.newScope(func() []attribute.KeyValue { return d.scope("") })
	return d
}

// newScope creates a scope with additional attributes.
func (p *Core) newScope(more func() []attribute.KeyValue) *Scope {
	return &Scope{provider: p.Cfg.Tracers, emitted: func() bool { return p.MetricsEmitted() }, more: more}
}
