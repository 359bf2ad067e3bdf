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

func TestRecorded(t *testing.T) {
	for source, want := range map[string]bool{"cupti": true, "roctracer": true, "cuda_event": false, "hip_event": false, "host": false, "simulated": false, "": false} {
		if got := Recorded(source); got != want {
			t.Errorf("%q: %v", source, got)
		}
	}
}
