// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package engine assembles a profiler from two packages, of which each imports only those above it
// here:
//
//	section  callers: start, end, slots, streams; the polling thread: reading, placing → section.Stamped
//	spans    nesting, loops and steps; spans, sinks, metrics, statistics
//
// It starts their goroutines, and flushes and stops them in order.
//
// Invariants:
//   - New does not wait for a driver that hangs, Flush and Shutdown keep their deadlines, and a second Shutdown waits
//     for the first one and returns its error.
//   - No panic of a backend or of the application's code reaches a caller of the profiler.
//   - Memory does not grow with the number of sections.
package engine
