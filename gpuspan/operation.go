// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan

import (
	"context"
	"io"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/otelgpu/otelgpu/gpuspan/internal/options"
	"github.com/otelgpu/otelgpu/gpuspan/internal/section"
	"github.com/otelgpu/otelgpu/gpuspan/internal/work"
	"github.com/otelgpu/otelgpu/gpuspan/report"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
	"github.com/otelgpu/otelgpu/semconv"
)

// Operation is something that can be timed: a name, a category and other properties that all its
// runs share. Create each once, usually as a package variable; it contains no measurements and
// works with any number of Profilers. A nil Operation does nothing.
type Operation struct{ operation *section.Operation }

// real returns the operation of the caller; nil for a nil and for a zero Operation, which do
// nothing.
func (o *Operation) real() *section.Operation {
	if o == nil {
		return nil
	}
	return o.operation
}

// operationOf returns the public value of an operation, always the same.
func operationOf(o *section.Operation) *Operation {
	return o.Public.Get(func() any { return &Operation{o} }).(*Operation)
}

// NewOperation creates an operation. The name is the span's name and gpu.operation.name, so it
// should be one of a small set: `prefill`, not `prefill batch 17`. For names that are only known at
// run time see [Stream.StartNamed].
func NewOperation(name string, opts ...OperationOption) *Operation {
	return operationOf(section.NewOperation(name, options.All(opts, OperationOption.applyOperation)))
}

// Name returns the operation's name.
func (o *Operation) Name() string { return o.real().Name() }

// Info describes the operation as reports do.
func (o *Operation) Info() report.Info { return o.real().Info() }

// Start starts a section of the operation on a stream, below the span of ctx. It records an event
// and returns; it never waits for the device. The result does nothing if o or s is nil, if
// profiling is off, or if the operation's verbosity is above the profiler's.
//
// A section below a span that is not sampled is counted with its work but not timed, unless
// [settings.MetricsAll] is set.
func (o *Operation) Start(ctx context.Context, s *Stream) Section {
	if o == nil || s == nil { // Begin checks everything else, so that this is inlined into the caller
		return Section{}
	}
	return Section{s.stream.Begin(ctx, o.operation, section.FlagNone)}
}

// Launch runs f between Start and End of a section of type `graph`. Use it around the launch of a
// CUDA graph: events are recorded before and after the launch, outside of the graph. f always runs,
// even if nothing is timed. To declare the work of a launch, start a section of an operation with
// [Graph] instead.
func (o *Operation) Launch(ctx context.Context, s *Stream, f func()) {
	o.real().Launch(ctx, s.real(), f)
}

// Foreign starts a section whose two events are recorded by foreign code, on a stream of
// [ForeignEvents] or on one whose handle that code knows.
func (o *Operation) Foreign(ctx context.Context, s *Stream) Foreign {
	return Foreign{Section{o.real().Open(ctx, s.real())}}
}

// RecordMeasured records a run whose GPU time d the caller has measured, for example with its own
// events or another profiler. start is on the wall clock; the zero time means that the run has just
// ended. The run is below the section or span of ctx, has no gpu.timing.source, and is not
// annotated, because it is over. If d is negative or longer than a year, or start is before 1970 or
// after 2199, the run is only counted, and counts as misuse.
func (o *Operation) RecordMeasured(ctx context.Context, s *Stream, start time.Time, d time.Duration, w Work) {
	o.real().Record(ctx, s.real(), start, d, w.internal())
}

// OperationOption configures [NewOperation].
type OperationOption interface {
	applyOperation(*section.OperationConfig)
}

type operationOption func(*section.OperationConfig)

func (f operationOption) applyOperation(c *section.OperationConfig) { f(c) }

// Category groups operations in reports and metrics (gpu.operation.category): `attention`, `data`,
// `comm`. Keep the set small.
func Category(name string) OperationOption {
	return operationOption(func(c *section.OperationConfig) { c.Info.Category = name })
}

// Describe sets a description for readers of reports. It is not on spans.
func Describe(text string) OperationOption {
	return operationOption(func(c *section.OperationConfig) { c.Info.Description = text })
}

// ItemType sets what Work.Items of the operation counts: `token`, `row`, `image`, `sample`.
func ItemType(t string) OperationOption {
	return operationOption(func(c *section.OperationConfig) { c.Info.ItemType = t })
}

// Copy makes the operation a copy (gpu.operation.type `copy`). memory is [MemoryUnset] for copies
// that touch no host memory.
func Copy(direction Direction, memory HostMemory) OperationOption {
	return operationOption(func(c *section.OperationConfig) {
		c.Info.Type = semconv.GPUOperationTypeCopy
		c.Direction = work.Direction(direction)
		c.Info.Direction, c.Info.HostMemory = direction.String(), memory.String()
	})
}

// Memset makes the operation a memory fill (gpu.operation.type `memset`).
func Memset() OperationOption {
	return operationOption(func(c *section.OperationConfig) { c.Info.Type = semconv.GPUOperationTypeMemset })
}

// Kernel makes the operation a single kernel (gpu.operation.type `kernel`) of that full name; empty
// if it is unknown. Its module is an attribute, gpu.kernel.module.
func Kernel(name string) OperationOption {
	return operationOption(func(c *section.OperationConfig) {
		c.Info.Type = semconv.GPUOperationTypeKernel
		if name != "" {
			c.Attributes = append(c.Attributes, semconv.GPUKernelNameKey.String(name))
		}
	})
}

// Collective makes the operation a collective (gpu.operation.type `collective`) of that name, such
// as `all_reduce`, among groupSize ranks; 0: unknown. Sizes follow the convention of NCCL's tests.
func Collective(name string, groupSize int) OperationOption {
	return operationOption(func(c *section.OperationConfig) {
		c.Info.Type = semconv.GPUOperationTypeCollective
		c.Attributes = append(c.Attributes, semconv.GPUCollectiveNameKey.String(name))
		if groupSize > 0 {
			c.Attributes = append(c.Attributes, semconv.GPUCollectiveGroupSizeKey.Int(groupSize))
		}
	})
}

// Graph makes the operation the launch of a captured graph (gpu.operation.type `graph`).
func Graph() OperationOption {
	return operationOption(func(c *section.OperationConfig) { c.Info.Type = semconv.GPUOperationTypeGraph })
}

// HostWork marks the operation as work on the host that belongs to a GPU program, such as compiling
// or generating code (gpu.operation.type `host`). It has host times and appears in reports, but
// does not count as GPU work in totals or energy.
func HostWork() OperationOption {
	return operationOption(func(c *section.OperationConfig) { c.Info.Type = semconv.GPUOperationTypeHost })
}

// Synchronous states that the work is done when the section ends, as for a blocking copy. Reports
// then include its rates even if no device timed it; for other work the host knows when it was
// launched, not how long it ran.
func Synchronous() OperationOption {
	return operationOption(func(c *section.OperationConfig) { c.Info.Synchronous = true })
}

// Attributes adds attributes of the application to each span of the operation.
func Attributes(kv ...attribute.KeyValue) OperationOption {
	return operationOption(func(c *section.OperationConfig) { c.Attributes = append(c.Attributes, kv...) })
}

// AtVerbosity sets the lowest verbosity of the profiler at which the operation is timed; default
// [VerbosityDefault].
func AtVerbosity(v settings.Verbosity) OperationOption {
	return operationOption(func(c *section.OperationConfig) { c.Verbosity = max(v, settings.VerbosityDefault) })
}

// StatisticsOnly keeps the operation out of traces: its sections are timed and appear in metrics
// and reports.
func StatisticsOnly() OperationOption {
	return operationOption(func(c *section.OperationConfig) { c.NoSpan = true })
}

// Tile makes the operation one level of a tiled computation: `macro` for the tiles that are staged
// through device memory, `midi`, or `micro` for those in registers. Tiles are too many and too
// short for spans: like [StatisticsOnly] they appear in metrics and reports, there under their
// level.
func Tile(level string) OperationOption {
	return operationOption(func(c *section.OperationConfig) {
		c.Info.Level = level
		c.NoSpan = true
	})
}

// Batched states that the operation serves several requests at once, each linked by
// [Section.LinkItems] or [Section.Link]. Its sections are timed whether or not the span around them
// is sampled, because the requests have their own traces; with the sampler of package
// gpuspan/sampler they are recorded if any of the requests is.
func Batched() OperationOption {
	return operationOption(func(c *section.OperationConfig) { c.Batch = true })
}

// PrintReport prints the profiler's report to w whenever the times of an outermost section of the
// operation have been read, for example at the end of a benchmark: the whole report, or one report
// for each category. It runs on the goroutine that ends spans, so w should not block.
func PrintReport(w io.Writer, categories ...string) OperationOption {
	return operationOption(func(c *section.OperationConfig) { c.Print, c.PrintOnly = w, categories })
}

// Work is what a section moved and computed, as the caller declares it. Zero means not stated.
// Impossible values (negative ones, 2^53 and more, FLOPs that are NaN or above 1e30, unknown
// precisions) are ignored and counted as misuse.
type Work struct {
	Read      int64     // bytes read (gpu.io.read.size)
	Written   int64     // bytes written (gpu.io.write.size)
	Bytes     int64     // bytes moved in all, when the split is not known (gpu.io.size is Bytes + Read + Written)
	Items     int64     // elements processed: tokens, rows, images (gpu.operation.items)
	FLOPs     float64   // floating-point operations, a multiply-add counting 2 (gpu.flop.count)
	Precision Precision // of FLOPs
}

// internal returns the work as the packages below know it.
func (w *Work) internal() work.Work {
	return work.Work{
		Read: w.Read, Written: w.Written, Bytes: w.Bytes, Items: w.Items, FLOPs: w.FLOPs,
		Precision: work.Precision(w.Precision),
	}
}

// Precision is the arithmetic precision whose dense peak a FLOP count is compared with
// (gpu.flop.precision).
type Precision uint8

// Precisions; zero means not stated.
const (
	PrecisionUnset = Precision(work.PrecisionUnset) // not stated
	FP64           = Precision(work.FP64)           // IEEE double precision
	FP32           = Precision(work.FP32)           // IEEE single precision
	TF32           = Precision(work.TF32)           // TensorFloat-32: single precision with rounded operands
	FP16           = Precision(work.FP16)           // IEEE half precision
	BF16           = Precision(work.BF16)           // bfloat16
	FP8            = Precision(work.FP8)            // any 8-bit floating-point format
	FP4            = Precision(work.FP4)            // any 4-bit floating-point format
	INT8           = Precision(work.INT8)           // 8-bit integers; FLOPs are then integer operations
)

// String returns the value of gpu.flop.precision; empty when not stated.
func (p Precision) String() string { return work.Precision(p).String() }

// Direction is the direction of a copy (gpu.copy.direction).
type Direction uint8

// Directions of copies; zero means not stated.
const (
	HostToDevice   = Direction(work.HostToDevice)
	DeviceToHost   = Direction(work.DeviceToHost)
	DeviceToDevice = Direction(work.DeviceToDevice) // within one device
	PeerToPeer     = Direction(work.PeerToPeer)     // between two devices
	HostToHost     = Direction(work.HostToHost)
)

// String returns the value of gpu.copy.direction; empty when not stated.
func (d Direction) String() string { return work.Direction(d).String() }

// HostMemory is the kind of host memory of a copy (gpu.copy.host_memory).
type HostMemory uint8

// Kinds of host memory; MemoryUnset is for copies that involve none.
const (
	MemoryUnset = HostMemory(work.MemoryUnset) // not stated
	Pinned      = HostMemory(work.Pinned)      // page-locked: copies run at the link's rate, concurrently with other work
	Pageable    = HostMemory(work.Pageable)    // copied through a staging buffer
)

// String returns the value of gpu.copy.host_memory; empty when not stated.
func (m HostMemory) String() string { return work.HostMemory(m).String() }
