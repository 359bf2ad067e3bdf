// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan

import (
	"io"

	"go.opentelemetry.io/otel/attribute"

	"github.com/otelgpu/otelgpu/gpuspan/internal/engine"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
	"github.com/otelgpu/otelgpu/semconv"
)

// OperationOption configures [NewOperation].
type OperationOption interface{ applyOperation(*engine.OperationConfig) }

type operationOption func(*engine.OperationConfig)

func (f operationOption) applyOperation(c *engine.OperationConfig) { f(c) }

// Category groups operations in reports and metrics (gpu.operation.category): `attention`, `data`, `comm`. Keep the set
// small.
func Category(name string) OperationOption {
	return operationOption(func(c *engine.OperationConfig) { c.Info.Category = name })
}

// Describe says what the operation does, for readers of reports. It is not on spans.
func Describe(text string) OperationOption {
	return operationOption(func(c *engine.OperationConfig) { c.Info.Description = text })
}

// ItemType says what Work.Items of the operation counts: `token`, `row`, `image`, `sample`.
func ItemType(t string) OperationOption {
	return operationOption(func(c *engine.OperationConfig) { c.Info.ItemType = t })
}

// Copy makes the operation a copy (gpu.operation.type `copy`). memory is [MemoryUnset] for copies that touch no host
// memory.
func Copy(direction Direction, memory HostMemory) OperationOption {
	return operationOption(func(c *engine.OperationConfig) {
		c.Info.Type = semconv.GPUOperationTypeCopy
		c.Direction = direction
		c.Info.Direction, c.Info.HostMemory = direction.String(), memory.String()
	})
}

// Memset makes the operation a memory fill (gpu.operation.type `memset`).
func Memset() OperationOption {
	return operationOption(func(c *engine.OperationConfig) { c.Info.Type = semconv.GPUOperationTypeMemset })
}

// Kernel makes the operation a single kernel (gpu.operation.type `kernel`) of that full name; empty where it is not
// known. Its module is an attribute, gpu.kernel.module.
func Kernel(name string) OperationOption {
	return operationOption(func(c *engine.OperationConfig) {
		c.Info.Type = semconv.GPUOperationTypeKernel
		if name != "" {
			c.Attributes = append(c.Attributes, semconv.GPUKernelNameKey.String(engine.ValidText(name)))
		}
	})
}

// Collective makes the operation a collective (gpu.operation.type `collective`) of that name, as `all_reduce`, among
// groupSize ranks; 0 is not known. Sizes follow the convention of NCCL's tests.
func Collective(name string, groupSize int) OperationOption {
	return operationOption(func(c *engine.OperationConfig) {
		c.Info.Type = semconv.GPUOperationTypeCollective
		c.Attributes = append(c.Attributes, semconv.GPUCollectiveNameKey.String(name))
		if groupSize > 0 {
			c.Attributes = append(c.Attributes, semconv.GPUCollectiveGroupSizeKey.Int(groupSize))
		}
	})
}

// Graph makes the operation the launch of a captured graph (gpu.operation.type `graph`).
func Graph() OperationOption {
	return operationOption(func(c *engine.OperationConfig) { c.Info.Type = semconv.GPUOperationTypeGraph })
}

// HostWork makes the operation work on the host that belongs to a GPU program, such as compiling or generating code
// (gpu.operation.type `host`): it has the host's times and stands in reports, and is no GPU work, neither in their
// totals nor for energy.
func HostWork() OperationOption {
	return operationOption(func(c *engine.OperationConfig) { c.Info.Type = semconv.GPUOperationTypeHost })
}

// Synchronous says that the work is done when the section ends, as of a copy that blocks. Reports then know its rates
// also where no device timed it; of other work the host knows when it was launched, not how long it ran.
func Synchronous() OperationOption {
	return operationOption(func(c *engine.OperationConfig) { c.Info.Synchronous = true })
}

// Attributes puts attributes of the application's own on each span of the operation.
func Attributes(kv ...attribute.KeyValue) OperationOption {
	return operationOption(func(c *engine.OperationConfig) { c.Attributes = append(c.Attributes, kv...) })
}

// AtVerbosity says from which verbosity of the profiler on the operation is timed; default [VerbosityDefault].
func AtVerbosity(v settings.Verbosity) OperationOption {
	return operationOption(func(c *engine.OperationConfig) { c.Verbosity = max(v, settings.VerbosityDefault) })
}

// StatisticsOnly keeps the operation out of traces: its sections are timed and show up in metrics and reports.
func StatisticsOnly() OperationOption {
	return operationOption(func(c *engine.OperationConfig) { c.NoSpan = true })
}

// Tile says that the operation is one level of a tiled computation: `macro` for the tiles that are staged through
// device memory, `midi`, or `micro` for those in registers. Tiles are too many and too short for spans: like
// [StatisticsOnly] they show up in metrics and reports, there under their level.
func Tile(level string) OperationOption {
	return operationOption(func(c *engine.OperationConfig) {
		c.Info.Level = level
		c.NoSpan = true
	})
}

// Batched says that the operation serves several requests at once, each linked by [Section.LinkItems] or
// [Section.Link]. Its sections are timed whether or not the span around them is sampled, for the requests have traces
// of their own; with the sampler of package gpuspan/sampler they are recorded when any of the requests is.
func Batched() OperationOption {
	return operationOption(func(c *engine.OperationConfig) { c.Batch = true })
}

// PrintReport prints the profiler's report to w whenever an outermost section of the operation has been read back, as
// at the end of a benchmark. It runs on the polling thread, so w should not block.
func PrintReport(w io.Writer) OperationOption {
	return operationOption(func(c *engine.OperationConfig) { c.Print = w })
}
