// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package sampler decides which batches are recorded. A batch serves requests of many traces and has at most one
// parent, so a sampler that considers the parent, or the batch's own trace ID, records batches of requests that are not
// recorded and drops batches of recorded requests.
package sampler

import (
	"cmp"
	"slices"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

type linksBased struct{ other sdktrace.Sampler }

// LinksBased records a span with links when any span that it links to is sampled, and not when none is; its parent and
// its trace ID do not matter. Spans without links are decided by other; nil is what the SDK does by itself,
// parent-based with all roots recorded.
//
//	others := sdktrace.ParentBased(sdktrace.TraceIDRatioBased(0.01))
//	sdktrace.NewTracerProvider(sdktrace.WithSampler(sampler.LinksBased(others)))
//
// A link to a span of which it is not known whether it is sampled counts as not sampled. Links are seen only when they
// are given at the span's start, as gpuspan does.
func LinksBased(other sdktrace.Sampler) sdktrace.Sampler {
	other = cmp.Or(other, sdktrace.ParentBased(sdktrace.AlwaysSample()))
	return linksBased{other}
}

// ShouldSample decides about a span.
func (l linksBased) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	if len(p.Links) == 0 {
		return l.other.ShouldSample(p)
	}
	decision := sdktrace.Drop
	if slices.ContainsFunc(p.Links, func(k trace.Link) bool { return k.SpanContext.IsSampled() }) {
		decision = sdktrace.RecordAndSample
	}
	return sdktrace.SamplingResult{Decision: decision, Tracestate: trace.SpanContextFromContext(
		p.ParentContext).TraceState()}
}

// Description names the sampler, and the one that decides about spans without links.
func (l linksBased) Description() string { return "LinksBased{" + l.other.Description() + "}" }
