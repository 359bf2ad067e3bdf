// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan

import (
	"fmt"
	"io"
	"strings"

	"go.opentelemetry.io/otel/attribute"

	"github.com/otelgpu/otelgpu/semconv"
)

// OperationOption configures [NewOperation].
type OperationOption interface{ applyOperation(*Operation) }

type operationOption func(*Operation)

func (f operationOption) applyOperation(o *Operation) { f(o) }

// Category groups operations in reports and metrics (gpu.operation.category): `attention`, `data`, `comm`. Keep the set small.
func Category(c string) OperationOption {
	return operationOption(func(o *Operation) { o.info.Category = c })
}

// Describe says what the operation does, for readers of reports. It is not on spans.
func Describe(text string) OperationOption {
	return operationOption(func(o *Operation) { o.info.Description = text })
}

// ItemTypeOption is both an [OperationOption] and a [LoopOption].
type ItemTypeOption string

// ItemType says what Work.Items of an operation, or the items of a loop's steps, count: `token`, `row`, `image`, `sample`.
func ItemType(t string) ItemTypeOption { return ItemTypeOption(t) }

func (t ItemTypeOption) applyOperation(o *Operation) { o.info.ItemType = string(t) }

// Copy makes the operation a copy (gpu.operation.type `copy`). memory is [MemoryUnset] for copies that touch no host memory.
func Copy(direction Direction, memory HostMemory) OperationOption {
	return operationOption(func(o *Operation) {
		o.info.Type = semconv.GPUOperationTypeCopy
		o.direction = direction
		o.info.Direction, o.info.HostMemory = direction.String(), memory.String()
	})
}

// Memset makes the operation a memory fill (gpu.operation.type `memset`).
func Memset() OperationOption {
	return operationOption(func(o *Operation) { o.info.Type = semconv.GPUOperationTypeMemset })
}

// KernelLaunch makes the operation a single kernel (gpu.operation.type `kernel`) of that full name, in that module; an
// empty module is not known.
func KernelLaunch(kernel, module string) OperationOption {
	return operationOption(func(o *Operation) {
		o.info.Type = semconv.GPUOperationTypeKernel
		if kernel != "" {
			o.own = append(o.own, semconv.GPUKernelNameKey.String(validText(kernel)))
		}
		if module != "" {
			o.own = append(o.own, semconv.GPUKernelModuleKey.String(validText(module)))
		}
	})
}

// Collective makes the operation a collective (gpu.operation.type `collective`) of that name, as `all_reduce`, among
// groupSize ranks; 0 is not known. Sizes follow the convention of NCCL's tests.
func Collective(name string, groupSize int) OperationOption {
	return operationOption(func(o *Operation) {
		o.info.Type = semconv.GPUOperationTypeCollective
		o.own = append(o.own, semconv.GPUCollectiveNameKey.String(name))
		if groupSize > 0 {
			o.own = append(o.own, semconv.GPUCollectiveGroupSizeKey.Int(groupSize))
		}
	})
}

// Graph makes the operation the launch of a captured graph (gpu.operation.type `graph`).
func Graph() OperationOption {
	return operationOption(func(o *Operation) { o.info.Type = semconv.GPUOperationTypeGraph })
}

// Access states how the operation walks its memory (gpu.io.access_pattern).
func Access(a AccessPattern) OperationOption {
	return operationOption(func(o *Operation) {
		if s := a.String(); s != "" {
			o.own = append(o.own, semconv.GPUIOAccessPatternKey.String(s))
		}
	})
}

// ZeroCopy states whether the device reads host memory in place (gpu.zero_copy).
func ZeroCopy(zero bool) OperationOption {
	return operationOption(func(o *Operation) { o.own = append(o.own, semconv.GPUZeroCopyKey.Bool(zero)) })
}

// Shapes states the shapes of the operands when they are the same for each run; see [Shape] and [Section.Shapes].
func Shapes(shapes ...string) OperationOption {
	return operationOption(func(o *Operation) {
		o.own = append(o.own, semconv.GPUOperationShapesKey.StringSlice(shapes))
	})
}

// Shape writes a shape as gpu.operation.shapes holds it: Shape("f32", 1000, 1000, 3) is `f32[1000,1000,3]`.
func Shape(elementType string, dims ...int) string {
	var b strings.Builder
	b.WriteString(elementType)
	b.WriteByte('[')
	for i, d := range dims {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprint(&b, d)
	}
	b.WriteByte(']')
	return b.String()
}

// Attributes puts attributes of the application's own on each span of the operation.
func Attributes(kv ...attribute.KeyValue) OperationOption {
	return operationOption(func(o *Operation) { o.own = append(o.own, kv...) })
}

// AtVerbosity says from which verbosity of the profiler on the operation is timed; default [VerbosityDefault].
func AtVerbosity(v Verbosity) OperationOption {
	return operationOption(func(o *Operation) { o.verbosity = max(v, VerbosityDefault) })
}

// StatisticsOnly keeps the operation out of traces: its sections are timed and show up in metrics and reports.
func StatisticsOnly() OperationOption { return operationOption(func(o *Operation) { o.noSpan = true }) }

// Tile says that the operation is one level of a tiled computation. Tiles are too many and too short for spans:
// like [StatisticsOnly] they show up in metrics and reports, there under their level.
func Tile(level TileLevel) OperationOption {
	return operationOption(func(o *Operation) {
		o.info.Level = level.String()
		o.noSpan = true
	})
}

// PrintReport prints the profiler's report to w whenever an outermost section of the operation has been read back, as at the end of a
// benchmark. It runs on the polling thread, so w should not block.
func PrintReport(w io.Writer) OperationOption {
	return operationOption(func(o *Operation) { o.print = w })
}
