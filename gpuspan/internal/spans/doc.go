// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package spans makes spans, metrics and statistics of placed sections and steps.
//
// An [Exporter] relates sections to each other and to steps, and ends their spans. It owns one
// goroutine, since all that it calls is code of the application: tracers, sinks, recorders. Such
// code may be slow, panic, or end the goroutine without delaying the polling thread. [Loop] and
// [Step] are the caller's side of steps.
//
// Invariants:
//   - Parents are exported before their children.
//   - A section is counted once, whether or not it has a span.
//   - A step's duration is the sum of its phases, minus their overlap, plus what no phase covers; none is negative.
//   - The end event of a step is the start of the next: steps follow each other without a gap.
//   - A step's span ends once, also when the device does not finish it.
//   - After Shutdown, [Metrics] report their last values, so that counters do not fall.
package spans
