// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gputime

import "testing"

func TestOf(t *testing.T) {
	for _, tt := range []struct {
		name, status, source string
		duration, elapsed    float64
		want                 float64
	}{
		{"stated", "ok", "cuda_event", 2, 3, 2},
		{"not stated: the span's own", "", "cupti", 0, 3, 3},
		{"of an unknown producer", "", "", 0, 3, 3},
		{"of the host", "", "host", 0, 3, 0},
		{"of the host, but stated", "", "host", 2, 3, 2},
		{"not read", "timeout", "cuda_event", 2, 3, 0},
		{"dropped", "dropped", "host", 0, 3, 0},
	} {
		if got := Of(tt.status, tt.source, tt.duration, tt.elapsed); got != tt.want {
			t.Errorf("%s: %g, want %g", tt.name, got, tt.want)
		}
	}
}

func TestElapsed(t *testing.T) {
	const now = 1_764_000_000_000_000_000
	for _, tt := range []struct {
		start, end uint64
		want       float64
	}{
		{now, now + 2_000_000, 0.002},
		{now, now, 0},
		{now, now - 1, 0},
		{0, now, 0},
		{1_000_000, now, 0},
		{Earliest, Earliest + 1e9, 1},
		{5_000_000_000, 6_000_000_000, 1}, // since the start of the machine
	} {
		if got := Elapsed(tt.start, tt.end); got != tt.want {
			t.Errorf("%d to %d: %g, want %g", tt.start, tt.end, got, tt.want)
		}
	}
}

func TestRecorded(t *testing.T) {
	for source, want := range map[string]bool{"cupti": true, "roctracer": true, "cuda_event": false, "hip_event": false, "host": false, "simulated": false, "": false} {
		if got := Recorded(source); got != want {
			t.Errorf("%q: %v", source, got)
		}
	}
}
