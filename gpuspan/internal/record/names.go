// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"context"

	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/semconv"
)

var StatusNames = [timingStatuses]string{
	StatusTimed:       semconv.GPUTimingStatusOk,
	StatusCaptured:    semconv.GPUTimingStatusCaptured,
	statusDropped:     semconv.GPUTimingStatusDropped,
	StatusDeviceError: semconv.GPUTimingStatusDeviceError,
	StatusTimeout:     semconv.GPUTimingStatusTimeout,
	StatusClockJump:   semconv.GPUTimingStatusClockJump,
}

// SpanOf returns the span of a context that may be nil.
func SpanOf(ctx context.Context) trace.Span { return trace.SpanFromContext(ctx) }

// Quiet reports whether the section only kept events warm: it counts, but its times are discarded.
func (r *Record) Quiet() bool { return r.Step != nil && !r.Step.Recorded }

const SourceHost = semconv.GPUTimingSourceHost

const ScopeName = "github.com/otelgpu/otelgpu/gpuspan"

// Version is the version of this module, on the instrumentation scope of its spans and metrics.
const Version = "0.1.0"
