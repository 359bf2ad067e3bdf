// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan

import (
	"context"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/internal/access"
	"github.com/otelgpu/otelgpu/gpuspan/internal/engine"
	"github.com/otelgpu/otelgpu/gpuspan/internal/options"
	"github.com/otelgpu/otelgpu/gpuspan/internal/section"
	"github.com/otelgpu/otelgpu/gpuspan/report"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
)

// Version is the version of this module and of the instrumentation scope of its spans and metrics.
const Version = section.Version

// Profiler turns sections into spans, metrics and statistics. A nil Profiler is disabled: its
// streams and loops are nil and do nothing (loops still run their body).
type Profiler struct{ engine *engine.Profiler }

// on returns the profiler, or nil for a nil or a zero Profiler, which do nothing.
func (p *Profiler) on() *engine.Profiler {
	if p == nil {
		return nil
	}
	return p.engine
}

// core returns the state shared by the parts of the profiler; nil as on.
func (p *Profiler) core() *section.Core {
	if e := p.on(); e != nil {
		return e.Core
	}
	return nil
}

// Package train builds its loops on unexported parts of a profiler.
func init() {
	access.Engine = func(p any) *engine.Profiler { return p.(*Profiler).on() }
	access.Stream = func(s any) *section.Stream { return s.(*Stream).real() }
	access.Section = func(x section.Section) any { return Section{x} }
}

// New creates a profiler with a backend: cuda.Open, hip.Open or simgpu.New. It returns an error if
// settings, options or environment variables are invalid or if the backend fails. The profiler is
// never nil and usable even with an error: invalid values keep their defaults, and without a device
// (b is nil, or finds none) sections get host times (gpu.timing.source `host`): their spans have no
// gpu.duration, and gpu.operation.duration has no points of them.
//
// Settings are [settings.Default], overridden by the environment ([settings.FromEnv]), then by
// options. Call Shutdown at the end: it closes the backend, which must not be shared between
// profilers. Operations may be shared.
func New(b backend.Backend, opts ...Option) (*Profiler, error) {
	p, err := engine.New(b, options.All(opts, Option.apply))
	return &Profiler{p}, err
}

// SetEnabled switches timing on and off at run time. While it is off, sections cost as much as with
// a nil Profiler. Open sections stay open.
func (p *Profiler) SetEnabled(on bool) { p.core().SetEnabled(on) }

// SetVerbosity changes how much is timed, at run time. While profiling is disabled it sets what
// SetEnabled restores.
func (p *Profiler) SetVerbosity(v settings.Verbosity) { p.core().SetVerbosity(v) }

// Enabled reports whether anything is timed.
func (p *Profiler) Enabled() bool { return p.core().Enabled() }

// Source returns gpu.timing.source of the profiler's sections: `cuda_event`, `hip_event`,
// `simulated`, or `host` without a device.
func (p *Profiler) Source() string { return p.core().Source() }

// Devices lists the devices that the profiler found.
func (p *Profiler) Devices() []backend.Device { return p.core().Devices() }

// Snapshot returns the statistics so far. It never waits for the device: sections that are still
// running there are missing. It is empty if Settings.Report is off.
func (p *Profiler) Snapshot() report.Summary { return p.on().Snapshot() }

// Reset clears the statistics of Snapshot. Metrics and occurrence numbers continue.
func (p *Profiler) Reset() { p.on().Reset() }

// Stats returns the statistics of one operation so far, over all its positions in the nesting;
// false if it has not run. Operations of the same name count as one, and so do the launches of one
// ([Operation.Launch]).
func (p *Profiler) Stats(o *Operation) (report.Figures, bool) {
	return p.on().Stats(o.real())
}

// Flush waits until the times of all ended sections have been read and their spans have ended. If
// ctx is done first, it returns an error that wraps its cause. A context without deadline gets
// Settings.FlushDeadline. The spans are then in the SDK: flush the TracerProvider too.
func (p *Profiler) Flush(ctx context.Context) error { return p.on().Flush(ctx) }

// Shutdown stops timing, flushes until ctx is done (Settings.FlushDeadline if it has no deadline),
// abandons sections that are then still pending (their spans get host times and gpu.timing.status
// `timeout`), and releases all resources, including the backend. It returns an error if sections
// are pending when ctx is done, or if an exporter, a sink or the driver does not return. Later
// calls return the same error; other methods then do nothing.
func (p *Profiler) Shutdown(ctx context.Context) error {
	return p.on().Shutdown(ctx)
}

// Misuse returns the number of calls that the caller cannot have intended, by kind, as the metric
// gpuspan.misuses does: `stale_parent` (a section was started within one that had ended),
// `unmatched_end` (EndNamed without an open section of the name), `name_overflow` and
// `operation_overflow` (more names or operations than the limits), `invalid_work` (negative bytes,
// items or durations, FLOPs that are NaN, a chunk beyond their count), `concurrent_steps` (a step
// of a loop started while another one of the same loop ran), `unended` (a section without End that
// was abandoned, or a phase that its step ended), `foreign_stream` (a stream of another profiler in
// [Section.StartOn] or [Step.PhaseOn]).
func (p *Profiler) Misuse() map[string]int64 { return p.core().Misuse() }

// Stream registers a device stream of the application: h is a cudaStream_t, CUstream or
// hipStream_t, or a simulated stream. The name appears in reports. Later calls with the same handle
// return the same Stream until it is closed; for streams with host times, calls with the same
// handle and name.
//
// The result is nil only for a nil or stopped Profiler. A stream that cannot be timed (per-thread
// default stream, legacy default stream without [AllowLegacy] or without a current context, unknown
// handle, more streams than Settings.Streams) gets host times, and the reason goes to the error
// handler. Registration queries the driver, so do not register a stream while it captures a graph.
func (p *Profiler) Stream(h uintptr, name string, opts ...StreamOption) *Stream {
	return streamOf(p.on().Stream(h, name, options.All(opts, StreamOption.applyStream)))
}
