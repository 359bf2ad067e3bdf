// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package gpuspan times work on GPU streams and turns it into OpenTelemetry spans whose start and end are GPU time on
// the wall clock. It never waits for the device and never blocks its caller.
//
//	goroutines of the application                       polling thread (one, locked to its OS thread)
//	─────────────────────────────                       ─────────────────────────────────────────────
//	Start: take a slot, record an event   ─┐
//	  … launches work on the stream …      ├─ stream ─► ask for the oldest end event of each stream,
//	End:   record an event, append to FIFO ─┘           place both on the wall clock, make the span,
//	                                                    parents before children, free the slot
//
// An [Operation] is what can be timed, a [Section] is one timed run of it on a [Stream], and [Work] is what was moved
// and computed. A [Profiler] holds it all together over a backend: gpuspan/cuda, gpuspan/hip, gpuspan/simgpu, or none,
// which times on the host's clock. Loops with steps and phases are in package train, what can be set from outside the
// code in package settings. All methods accept nil receivers and zero values, which do nothing, so code stays
// instrumented where profiling is off.
//
// # Cost
//
// Start and End together take under 100 ns in addition to the two event records, and allocate nothing. Without a
// profiler they take 1 to 2 ns, below a span that is not sampled 15 ns. Everything else happens on the polling thread.
// Memory is bounded: by the slots of each stream, and by limits on what waits; what does not fit is counted, not waited
// for.
//
// # Errors
//
// No error and no panic of this package reaches the application. New returns what is wrong with its arguments and is
// usable all the same; everything later goes to the OpenTelemetry error handler, rate-limited.
//
// docs/gpuspan.md is the guide, docs/semconv explains every attribute and metric.
package gpuspan
