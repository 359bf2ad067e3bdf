// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package gputime decides what a GPU span's time on the device is. Derived rates and histograms follow the same rule.
package gputime

import "github.com/otelgpu/otelgpu/semconv"

// Earliest is the earliest time, in unix ns, that a set clock shows: 1990-01-01. What lies before is of a clock that was never set or
// counts from the start of the machine, or zero.
const Earliest = 631152000_000_000_000

// Sound says whether a span's start and end, in unix ns, are of one clock and in order: not so where only one of them is set.
func Sound(start, end uint64) bool {
	return end > start && (start >= Earliest || end < Earliest)
}

// Elapsed is a span's end minus its start in seconds; 0 where they are not sound.
func Elapsed(start, end uint64) float64 {
	if !Sound(start, end) {
		return 0
	}
	return float64(end-start) * 1e-9
}

// Of returns the time on the device in seconds, 0 where the device was not timed. status and source are the values of
// gpu.timing.status and gpu.timing.source ("" where absent), duration is gpu.duration and elapsed the span's end minus start,
// both in seconds and 0 where absent.
//
// A stated gpu.duration is believed whatever its source; without it the span's own times stand only where they are the
// device's.
func Of(status, source string, duration, elapsed float64) float64 {
	switch {
	case status != "" && status != semconv.GPUTimingStatusOk:
		return 0
	case duration > 0:
		return duration
	case source == semconv.GPUTimingSourceHost:
		return 0
	}
	return elapsed
}

// Recorded says whether a source's times are records of a profiler that sees every activity of the device, not pairs of
// events around sections.
func Recorded(source string) bool {
	return source == semconv.GPUTimingSourceCupti || source == semconv.GPUTimingSourceRoctracer
}
