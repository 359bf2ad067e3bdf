// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package record is the caller's side of a profiler: what starting and ending a section does, and the state that all
// later packages share.
//
// [Section.Start] takes a [Slot] of a [Stream] and records an event; [Section.End] records another one and appends the
// slot to the stream's queue. Package timeline reads the queue.
//
// Invariants:
//   - Start and End allocate nothing, never wait for the device, and hold only the stream's mutex.
//   - A free or open slot belongs to the holder of the stream's mutex, a pending or retained one to the polling thread.
//   - The order of a stream's queue is the order of its end events, which is the order of completion.
//   - What Start and End touch of a slot is in its first three cache lines.
//   - Lists of [Core] only grow under its mutex; any goroutine reads them without.
//
// [Stamped] is what package timeline passes on: a section, or a section with those in it, and later its times on the
// wall clock.
package record
