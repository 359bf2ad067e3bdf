// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package nvtx shows gpuspan's sections to NVIDIA's profilers as NVTX ranges, without cgo.
//
//	ranges, err := nvtx.Open() // nothing happens unless a profiler is attached
//	ids := gpuspan.NewIDGenerator(nil)
//	tp := sdktrace.NewTracerProvider(sdktrace.WithIDGenerator(ids), …)
//	prof, err := gpuspan.New(backend, gpuspan.WithTracerProvider(tp), gpuspan.WithIDGenerator(ids),
//		gpuspan.WithAnnotator(ranges))
//
// Under Nsight Systems (`nsys profile -t cuda,nvtx ./service`) each timed section and each step is then a range of the
// domain `gpuspan`, named after its operation, in the operation's category, and it carries the trace and span ids of
// its own span: in the timeline of one the other can be found. By default the span id is the range's payload, and a
// mark before it with the same payload states the trace (`traceparent=00-…-…-01`) and the number of a step; the nsys
// receiver of this project reads both and hangs what the range launched below the span. [WithIDs] puts the ids into the
// text instead (`decode trace_id=… span_id=…`).
//
// Unless both have the generator, a section's range carries the ids of the parent span, because the section's own span
// does not exist yet. The range of a section without a parent then carries no ids. Tiles and other operations without
// spans carry the ids of the section around them. Sections below unsampled spans are not timed and have no range; with
// settings.MetricsAll they have one, without ids.
//
// # Protocol
//
// The application is what NVTX calls a client: it loads the library that the environment variable NVTX_INJECTION64_PATH
// names, calls its InitializeInjectionNvtx2 with a function that returns tables, and the tool writes its own functions
// into these tables (NVTX v3, module tables CORE and CORE2, event attributes of 48 bytes). This package does so in Go,
// once per process and library, the first time that [Open] is called. Other NVTX clients of the process, of C libraries
// for instance, attach on their own and are not disturbed.
//
// # Threads
//
// Push/pop ranges nest per OS thread, and goroutines change threads; so sections use start/end ranges, which may end on
// any thread.
//
// # Costs
//
// Without a tool RangeStart and RangeEnd are a nil check each. With one they are one C call each, and one more for the
// mark, without allocation. The strings and categories of operations are registered once. Some container images point
// NVTX_INJECTION64_PATH at libcupti, which then takes CUPTI's only subscription: leave the package out, or unset the
// variable, if another tool needs that.
//
// Only 64-bit Linux is supported; elsewhere everything compiles and does nothing.
package nvtx
