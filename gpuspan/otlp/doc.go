// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package otlp sends the spans of sections as OTLP over HTTP, encoded as they come, without an SDK in between:
//
//	sink, err := otlp.New(otlp.Endpoint("http://127.0.0.1:4318"), otlp.Resource(res.Attributes()...))
//	prof, err := gpuspan.New(backend, gpuspan.WithSink(sink))
//	…
//	prof.Shutdown(ctx)
//	sink.Shutdown(ctx)
//
// What is the same for all sections of an operation on a stream is encoded once. A span then costs the process about a
// tenth of one that is made, batched and exported by an SDK (docs/benchmarks.md). What the SDK offers in between is
// missing: span processors, attribute limits and samplers. A section below a span is recorded if that is sampled, a
// batch also if one of its requests is, and a section without a parent always.
//
// Requests wait in a bounded queue, are sent again while the receiver asks for it or cannot be reached, and are dropped
// in the end; [Sink.Stats] counts spans by what became of them.
package otlp
