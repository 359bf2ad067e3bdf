// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package gpuspan times work on GPU streams and turns it into OpenTelemetry spans whose start and
// end are GPU time on the wall clock. It never waits for the device and never blocks its caller.
//
//	goroutines of the application                       polling thread (one, locked to its OS thread)
//	─────────────────────────────                       ─────────────────────────────────────────────
//	Start: take a slot, record an event   ─┐
//	  … launches work on the stream …      ├─ stream ─► ask for the oldest end event of each stream,
//	End:   record an event, append to FIFO ─┘           place both on the wall clock, make the span,
//	                                                    parents before children, free the slot
//
// An [Operation] is something that can be timed, a [Section] is one timed run of it on a [Stream],
// and [Work] is what was moved and computed. A [Profiler] times sections with a backend:
// gpuspan/cuda, gpuspan/hip, gpuspan/simgpu, or none, which uses the host's clock. Loops with steps
// and phases are in package train, settings in package settings. All methods accept nil receivers
// and zero values, which do nothing, so instrumented code runs unchanged when profiling is off.
//
// # Cost
//
// Start and End together take about 65 ns in addition to the two event records, and do not
// allocate. Without a profiler they take 1 to 2 ns, below an unsampled span 15 ns. Everything else
// happens on the polling thread. Memory is bounded by the slots of each stream and by limits on
// queues; sections that do not fit are counted and not timed.
//
// # Errors
//
// No error and no panic of this package reaches the application. New returns an error for invalid
// arguments, with a profiler that is usable nevertheless; later errors go to the OpenTelemetry
// error handler, rate-limited.
//
// docs/gpuspan.md is the guide, docs/semconv explains every attribute and metric.
package gpuspan
