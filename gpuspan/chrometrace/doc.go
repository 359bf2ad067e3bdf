// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package chrometrace writes spans as Chrome traces (the JSON of the Trace Event Format), for ui.perfetto.dev,
// chrome://tracing, speedscope and readers of the PyTorch profiler's files.
//
// # Format
//
//	{"schemaVersion":1,"otelgpuFormat":1,"baseTimeNanoseconds":B,"traceEvents":[
//	{"ph":"X","cat":"kernel","name":N,"pid":P,"tid":T,"ts":µs,"dur":µs,"args":{…}},   a span
//	{"ph":"s","id":I,"cat":"ac2g","name":"ac2g","pid":P,"tid":T,"ts":µs},             an arrow leaves a launch …
//	{"ph":"f","bp":"e",…},                                                            … and ends at the device's work
//	{"ph":"C","name":N,"pid":P,"ts":µs,"args":{UNIT:V}},                              a point of a counter
//	{"ph":"i","s":"t",…},                                                             an event of a span
//	{"ph":"M","name":"thread_name",…}                                                 names and order, at the end
//	],"otelgpuOrigins":[{"resource":{…},"scope":N},…]}            what the spans' resources and scopes were
//
// Times are microseconds with three decimals, so exact to the nanosecond, since B, midnight (UTC) a week before the
// first span: a reader that holds them as doubles then keeps the nanosecond too, for three months. Spans of other times
// go to another file. A dur may have more decimals, an eighth of a nanosecond at most: ts + dur, added as doubles, is
// then the same number as the ts of a slice that begins where this one ends, as viewers that add doubles need it. One
// process (pid) represents one service and rank; one track (tid) represents a stream, a host thread, or the steps of a
// loop. Slices of one track always nest: a slice that would overlap goes to a second track of the same name. Attributes
// become args under their own names, except where PyTorch has other names (device, stream, correlation …).
//
// A step of gpuspan is drawn twice: on its loop's track as long as the host took, and on a track of the device from
// boundary to boundary. The span itself reaches from the host's start to the device's end.
//
// # Completeness
//
// A file has its name only when it is complete. Until then it is NAME.<n>.partial in the same folder. A batch that
// cannot be written (disk full) is taken back from an uncompressed file, which can go on once there is room.
package chrometrace
