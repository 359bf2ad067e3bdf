// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package section times sections: from their start and end on the caller's goroutine to times on
// the wall clock.
//
// [Section.Start] takes a [Slot] of a [Stream] and records an event; [Section.End] records another
// one and appends the slot to the stream's queue. The [Poller] reads the events of the queue, keeps
// outermost sections until those inside them are resolved, and places them between two anchors of
// the device's clock. [Stamped] is what it passes on. Start to read in model.go, which has the data.
//
// Invariants:
//   - Start and End allocate nothing, never wait for the device, and hold only the stream's mutex.
//   - A free or open slot belongs to the holder of the stream's mutex, a pending or retained one to the polling thread.
//   - The order of a stream's queue is the order of its end events, which is the order of completion.
//   - What Start and End touch of a slot is in its first three cache lines.
//   - Sections of a stream are passed on in the order in which they ended, between two anchors, or after a quarter of a
//     second by the anchors before them.
//   - Code of the application never runs on the polling thread, except its error handler.
//   - What waits is bounded: by the slots of a stream, and by MaxHeld and [MaxInFlight].
//   - Lists of [Core] only grow under its mutex; any goroutine reads them without.
//   - Exported fields of [Core], [Stream] and [Operation] do not change after the value is created; everything that
//     changes is behind methods. [Record] and [Nest] are data, which belong to whom they were passed on to.
package section
