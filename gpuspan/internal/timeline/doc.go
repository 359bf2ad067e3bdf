// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package timeline reads sections back from the device and places them on the wall clock.
//
// A [Poller] owns one goroutine, locked to its OS thread, that makes all driver calls that are no records. It reads
// streams round-robin, collects the sections within an outermost one, makes the anchors of the devices' clocks, and
// passes [record.Stamped] values on once an anchor behind them exists.
//
// Invariants:
//   - Code of the application never runs on the polling thread, except its error handler.
//   - A section is placed between two anchors, or after a quarter of a second by the anchors before it.
//   - Sections of a stream are passed on in the order in which they ended.
//   - What waits is bounded: by the slots of a stream, and by maxHeld and [record.MaxInFlight].
package timeline
