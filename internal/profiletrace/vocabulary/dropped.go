// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package vocabulary

import "strings"

// LosesRecords reports whether a warning of a profiler states that records of the device or of
// calls may be missing: "Not all CUDA events might have been collected", "Dropped 5 activity
// records". What concerns samples of the processor does not count.
func LosesRecords(warning string) bool {
	w := strings.ToLower(warning)
	lost := []string{"event", "record", "activity", "activities", "buffer", "trace"}
	return ContainsAny(w, lost) && ContainsAny(w, []string{
		"drop", "lost", "missing", "might", "may not", "incomplete", "not all", "overflow", "ran out", "out of memory",
		"exceed",
	}) && !ContainsAny(w, []string{"cpu ", "sampl", "backtrace", "context switch"})
}
