// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package engine assembles a profiler from its parts, each a package that imports only those above it here:
//
//	record    callers: start, end, slots, streams      → slots in the queue of a stream
//	timeline  the polling thread: reading, placing     → record.Stamped
//	tree      nesting, loops and steps                 → tree.Finished
//	export    spans, sinks, metrics, statistics
//
// It starts their goroutines, and flushes and stops them in order.
//
// Invariants:
//   - A package of the list imports only those above it; none has more than 2,500 lines, no type more than 20 methods.
//   - New does not wait for a driver that hangs, Flush and Shutdown keep their deadlines, and a second Shutdown waits
//     for the first one and returns its error.
//   - No panic of a backend or of the application's code reaches a caller of the profiler.
//   - Memory does not grow with the number of sections.
package engine
