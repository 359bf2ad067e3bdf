// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package profiletrace turns the records of GPU profilers into OTel traces, and analyses them on the way.
//
// It is the common part of the receivers that read profiler files. A reader hands every activity of a file to a
// [Profile] as an [Event], in any order; [Profile.Emit] then sweeps them in the order of time, twice where a limit
// on the size of traces must be obeyed, and writes spans to a function in batches of bounded size.
//
//	reader ──Add──► Profile ──► sorter (memory, then spill files)
//	                               │ by time
//	                               ▼
//	                             sweep ──► who launched what, which step, unions ──► spans, summaries, findings
//
// Memory does not grow with the file: events are kept as compact records in one arena; when it is full, it is
// sorted and written to a temporary file, and the files are merged while they are read. What grows is the table of
// names (bounded), and the host ranges that are open at one instant of the trace.
//
// Where the program has several processors and the level brings many spans, the sweep runs in a separate goroutine
// and hands over what is to be a span; spans are made, and handed to the function, in that which called Emit.
//
// # Times
//
// Events carry integer nanoseconds relative to the file's own base; [Meta.Base] is added when a span is
// written. Nothing passes through a float64, except the durations in seconds among the attributes.
//
// # What belongs to what
//
// Host ranges of one thread nest by time. An activity of the device belongs to the host call with its correlation: its
// parent is the nearest range around that call that has a span, and its step is the step whose host range holds the
// call. Without such a call (launched before the profile began) it belongs to the window.
package profiletrace
