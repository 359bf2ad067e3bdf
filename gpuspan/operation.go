// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan

import (
	"context"
	"time"

	"github.com/otelgpu/otelgpu/gpuspan/internal/engine"
	"github.com/otelgpu/otelgpu/gpuspan/report"
)

// Operation is something that can be timed: a name, a category and what else is the same each time it runs. Make each
// once, usually as a package variable; it holds no measurements and works with any number of Profilers. A nil Operation
// does nothing.
type Operation engine.Operation

// NewOperation makes an operation. The name is the span's name and gpu.operation.name, so it should come from a small
// set: `prefill`, not `prefill batch 17`. For names that are only known at run time see [Stream.StartNamed].
func NewOperation(name string, opts ...OperationOption) *Operation {
	return (*Operation)(engine.NewOperation(name, func(c *engine.OperationConfig) {
		for _, o := range opts {
			if o != nil {
				o.applyOperation(c)
			}
		}
	}))
}

// Name is the operation's name.
func (o *Operation) Name() string { return (*engine.Operation)(o).Real().Name() }

// Info describes the operation as reports do.
func (o *Operation) Info() report.Info { return (*engine.Operation)(o).Real().Info() }

// Start begins a section of the operation on a stream, below the span of ctx. It records an event and returns; it
// never waits for the device. The result does nothing when o or s is nil, when profiling is off, or when the
// operation's verbosity is above the profiler's.
//
// A section below a span that is not sampled is counted with its work but not timed, unless [settings.MetricsAll] is
// set.
func (o *Operation) Start(ctx context.Context, s *Stream) Section {
	return Section((*engine.Operation)(o).Real().Start(ctx, (*engine.Stream)(s).Real()))
}

// Launch runs f between Start and End of a section of type `graph`. Use it around the launch of a CUDA graph: events
// are recorded before and after the launch, outside of the graph. f always runs, also when nothing is timed. A launch
// whose work is stated is a section of an operation with [Graph].
func (o *Operation) Launch(ctx context.Context, s *Stream, f func()) {
	(*engine.Operation)(o).Real().Launch(ctx, (*engine.Stream)(s).Real(), f)
}

// Open begins a section whose two events foreign code records, on a stream of [ForeignEvents] or on one whose handle it
// knows. Pass it [Section.Events]; when it has enqueued both, call [Section.Recorded]. Without that, [Section.End] ends
// the section with the host's times.
func (o *Operation) Open(ctx context.Context, s *Stream) Section {
	return Section((*engine.Operation)(o).Real().Open(ctx, (*engine.Stream)(s).Real()))
}

// Record reports a run whose GPU time the caller has measured, as with events or a profiler of its own. start is on the
// wall clock; the zero time means that the run has just ended. The run is below the section or span of ctx, has no
// gpu.timing.source, and no range is annotated: it is over. With a negative d it only counts, also as misuse.
func (o *Operation) Record(ctx context.Context, s *Stream, start time.Time, d time.Duration, w Work) {
	(*engine.Operation)(o).Real().Record(ctx, (*engine.Stream)(s).Real(), start, d, engine.Work(w))
}
