// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package sampler_test

import (
	"context"
	"fmt"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan/sampler"
)

// A batch is recorded if any linked request is, whether or not the loop's own trace is sampled.
func ExampleLinksBased() {
	tp := sdktrace.NewTracerProvider(sdktrace.WithSampler(sampler.LinksBased(sdktrace.NeverSample())))
	defer func() { _ = tp.Shutdown(context.Background()) }()
	tracer := tp.Tracer("engine")

	sampled := trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}, TraceFlags: trace.FlagsSampled,
	})
	_, batch := tracer.Start(context.Background(), "batch", trace.WithLinks(trace.Link{SpanContext: sampled}))
	_, other := tracer.Start(context.Background(), "idle")
	fmt.Println(batch.IsRecording(), other.IsRecording())
	// Output: true false
}
