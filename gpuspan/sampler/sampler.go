// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package sampler provides a sampler for batches. A batch serves requests of many traces and has at
// most one parent, so a sampler that considers the parent or the batch's trace ID records batches
// of unrecorded requests and drops batches of recorded ones.
package sampler

import (
	"cmp"
	"slices"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

type linksBased struct{ other sdktrace.Sampler }

// LinksBased returns a sampler that records a span with links if and only if at least one linked
// span is sampled, regardless of its parent and trace ID. Spans without links are sampled by other;
// nil means the SDK's default, parent-based with all roots recorded.
//
//	others := sdktrace.ParentBased(sdktrace.TraceIDRatioBased(0.01))
//	sdktrace.NewTracerProvider(sdktrace.WithSampler(sampler.LinksBased(others)))
//
// A linked span of unknown sampling decision counts as not sampled. Only links that are passed at
// the span's start count; gpuspan passes them there.
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
