// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package spanfacts

import "github.com/otelgpu/otelgpu/semconv"

// Kind is the value of gpu.operation.type.
type Kind uint8

// Kinds of spans. None is a span without gpu.operation.type, which is not a GPU span. Other is a
// type that the registry does not define; it counts as GPU work.
const (
	None Kind = iota
	Section
	Kernel
	Copy
	Memset
	Collective
	Graph
	Step
	Other
	Share   // usage record of one request; without additional work
	Request // timed on the host while it occupies a device
	Host    // work on the host
)

// KindOf returns the kind of a value of gpu.operation.type; None for "".
func KindOf(s string) Kind {
	switch s {
	case "":
		return None
	case semconv.GPUOperationTypeSection:
		return Section
	case semconv.GPUOperationTypeKernel:
		return Kernel
	case semconv.GPUOperationTypeCopy:
		return Copy
	case semconv.GPUOperationTypeMemset:
		return Memset
	case semconv.GPUOperationTypeCollective:
		return Collective
	case semconv.GPUOperationTypeGraph:
		return Graph
	case semconv.GPUOperationTypeStep:
		return Step
	case semconv.GPUOperationTypeShare:
		return Share
	case semconv.GPUOperationTypeRequest:
		return Request
	case semconv.GPUOperationTypeHost:
		return Host
	}
	return Other
}

// Work reports whether spans of this kind are GPU work. Only their time may be summed as GPU time.
func (k Kind) Work() bool { return k != None && k < Share }
