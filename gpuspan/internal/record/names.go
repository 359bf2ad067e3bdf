// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/semconv"
)

var StatusNames = [timingStatuses]string{
	StatusTimed:       semconv.GPUTimingStatusOk,
	StatusCaptured:    semconv.GPUTimingStatusCaptured,
	statusDropped:     semconv.GPUTimingStatusDropped,
	StatusDeviceError: semconv.GPUTimingStatusDeviceError,
	StatusTimeout:     semconv.GPUTimingStatusTimeout,
}

// SpanOf is the span of a context that may be nil.
func SpanOf(ctx context.Context) trace.Span { return trace.SpanFromContext(ctx) }

// Quiet reports whether the section only kept events warm: it counts, but its times are thrown away.
func (r *Record) Quiet() bool { return r.Step != nil && !r.Step.Recorded }

func Seconds(ns int64) float64 { return float64(ns) / 1e9 }

// AppendValid appends attributes of the application's. A string that is no UTF-8, as a mangled name may be, would cost
// the whole batch of spans in the exporter.
func AppendValid(kv, own []attribute.KeyValue) []attribute.KeyValue {
	for _, a := range own {
		a.Key = attribute.Key(ValidText(string(a.Key)))
		switch a.Value.Type() {
		case attribute.STRING:
			a.Value = attribute.StringValue(ValidText(a.Value.AsString()))
		case attribute.STRINGSLICE:
			list := a.Value.AsStringSlice()
			for i, s := range list {
				list[i] = ValidText(s)
			}
			a.Value = attribute.StringSliceValue(list)
		}
		kv = append(kv, a)
	}
	return kv
}

const SourceHost = semconv.GPUTimingSourceHost

const ScopeName = "github.com/otelgpu/otelgpu/gpuspan"

// Version is the version of this module, on the instrumentation scope of its spans and metrics.
const Version = "0.1.0"
