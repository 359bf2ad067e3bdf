// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package event keeps what a reader delivers from a profiler's file: events, the names in them, and
// the file's description of itself.
//
// Memory does not grow with the file: a [Store] keeps events as compact records in one arena; when
// it is full, it is sorted and written to a temporary file, and the files are merged while they are
// read. What grows is the table of names (bounded).
//
// # Times
//
// Events carry integer nanoseconds relative to the file's own base; [Meta.Base] is added when a
// span is written. Nothing passes through a float64.
package event
