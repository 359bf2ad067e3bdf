// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package export makes spans, metrics and statistics of finished sections and steps.
//
// An [Exporter] owns one goroutine, since all that it calls is code of the application: tracers, sinks, recorders. Such
// code may be slow, panic, or end the goroutine without delaying the polling thread.
//
// Invariants:
//   - Parents are exported before their children.
//   - A section is counted once, whether or not it has a span.
//   - After Shutdown, [Metrics] report their last values, so that counters do not fall.
package export
