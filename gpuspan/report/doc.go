// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package report holds what a profiler has measured, as plain Go values, and writes it as text, CSV, JSON, structured
// log records and a DOT graph, without a Collector.
//
//	profiler ── Sample, StepSample ──► Recorder (Collector) ── Summary ──► WriteText, WriteCSV, WriteJSON, WriteDOT
//	                                                              └──────► Findings(Thresholds)
//
// Every figure says what it is made of. Counts, bytes, FLOPs and items come from all runs of an operation, as the
// application declared them. Durations come from timed runs only, and so do rates: they divide the work of the timed
// runs by the time of the timed runs, never the work of all runs. A figure that is not known is zero in the Go value
// and absent in every rendering.
//
// The package imports the standard library only, because package gpuspan returns its types and must not bring
// anything but the OpenTelemetry API to its users. Quantiles of whole runs come from a sketch that is passed in;
// subpackage ddsketch wraps a library. Without one they come from a uniform sample of 512 durations of each operation.
package report
