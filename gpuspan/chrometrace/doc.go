// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package chrometrace writes spans as Chrome traces (the JSON of the Trace Event Format), for
// ui.perfetto.dev, chrome://tracing, speedscope and readers of the PyTorch profiler's files.
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
//	]}
//
// Times are microseconds with three decimals, exact to the nanosecond, since B, midnight (UTC) a
// week before the first span: as doubles they remain exact for three months. Spans of other times
// go to the next file. A dur may have more decimals, down to an eighth of a nanosecond, so that ts
// + dur, added as doubles, equals the ts of a slice that begins where this one ends, as some
// viewers need. One process (pid) represents one service and rank; one track (tid) represents a
// stream, a host thread, or the steps of a loop. Slices of one track always nest: a slice that
// would overlap goes to a second track of the same name. Attributes become args of the same name,
// except where PyTorch has other names (device, stream, correlation …).
//
// A step of gpuspan is drawn twice: on its loop's track with its host time, and on a track of the
// device from boundary to boundary. The span itself extends from the host's start to the device's
// end.
//
// # Completeness
//
// A file gets its name when it is complete. Until then it is NAME.<n>.partial in the same folder.
// If a batch cannot be written (disk full), it is removed from an uncompressed file, and writing
// can continue once there is space.
package chrometrace
