// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package gputime decides what a GPU span's time on the device is. Derived rates and histograms follow the same rule.
package gputime

import "github.com/otelgpu/otelgpu/semconv"

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
