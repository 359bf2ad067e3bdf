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
// Under Nsight Systems (`nsys profile -t cuda,nvtx ./service`) each timed section and each step is
// then a range of the domain `gpuspan`, named after its operation, in the operation's category,
// with the IDs of its span, so that each can be found from the other. By default the span ID is the
// range's payload, and a mark before it with the same payload has the trace ID
// (`traceparent=00-…-…-01`) and the number of a step. The nsys receiver of this project reads both
// and places the work that the range launched below the span. [WithIDs] puts the IDs into the text
// instead (`decode trace_id=… span_id=…`).
//
// Without a shared ID generator, a section's range carries the IDs of the parent span, because the
// section's own span does not exist yet. The range of a section without a parent then has no IDs.
// Tiles and other operations without spans carry the IDs of the enclosing section. Sections below
// unsampled spans are not timed and have no range; with settings.MetricsAll they have one, without
// IDs.
//
// # Protocol
//
// The application is an NVTX client: it loads the library that the environment variable
// NVTX_INJECTION64_PATH names, calls its InitializeInjectionNvtx2 with a function that returns
// tables, and the tool writes its functions into these tables (NVTX v3, module tables CORE and
// CORE2, event attributes of 48 bytes). This package does so in Go, once per process and library,
// at the first call of [Open]. Other NVTX clients of the process, such as C libraries, attach
// independently.
//
// # Threads
//
// Push/pop ranges nest per OS thread, and goroutines change threads; so sections use start/end
// ranges, which may end on any thread.
//
// # Costs
//
// Without a tool, RangeStart and RangeEnd are a nil check each. With one, they are one C call each,
// and another for the mark, without allocation. The strings and categories of operations are
// registered once. Some container images set NVTX_INJECTION64_PATH to libcupti, which then uses
// CUPTI's only subscription: unset the variable, or omit this package, if another tool needs it.
//
// Only 64-bit Linux is supported; elsewhere everything compiles and does nothing.
package nvtx
