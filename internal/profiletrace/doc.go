// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package profiletrace reads the records of GPU profilers: it finds what the device and the host
// did and what to improve, and turns the records into OTel traces.
//
// It is the common part of the receivers that read profiler files. A reader hands every activity of
// a file to a [Profile], in any order; [Profile.Emit] then sweeps over them in the order of time,
// twice if a limit on the size of traces must be obeyed.
//
//	reader ──► event.Store ──► link.Sweep ──► facts ──► rules ──► findings
//	                               │            └─────► criticalpath
//	                               └──► emit ──► spans
//
// The imports of its packages go one way; a test checks that.
package profiletrace
