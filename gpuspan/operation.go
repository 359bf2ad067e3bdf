// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan

import (
	"io"

	"go.opentelemetry.io/otel/attribute"

	"github.com/otelgpu/otelgpu/gpuspan/internal/options"
	"github.com/otelgpu/otelgpu/gpuspan/internal/section"
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
		c.Direction = direction
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
