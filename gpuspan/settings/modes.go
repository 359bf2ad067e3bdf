// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package settings

import "fmt"

// Verbosity says how much is timed. An operation is timed when its own verbosity is at most the profiler's.
type Verbosity int32

// Verbosities. Off costs as much as a nil Profiler.
const (
	VerbosityOff Verbosity = iota
	VerbosityDefault
	VerbosityVerbose
	VerbosityDebug
)

// String is the name that configuration uses.
func (v Verbosity) String() string { return nameOf(verbosityNames[:], int(v)) }

var verbosityNames = [...]string{"off", "default", "verbose", "debug"}

// SyncMode says when the GPU times of a section are read.
type SyncMode uint8

// Sync modes. All but SyncDeferred and SyncNone make End wait for the device.
const (
	SyncUnset     SyncMode = iota
	SyncDeferred           // End returns at once; the polling thread reads the events later (default)
	SyncGroup              // End of an outermost section waits for the device, once for all sections in it
	SyncImmediate          // each End waits for the device
	SyncNone               // no events: host times only (gpu.timing.source `host`)
)

// String is the name that configuration uses.
func (m SyncMode) String() string { return nameOf(syncNames[:], int(m)) }

var syncNames = [...]string{"", "deferred", "group", "immediate", "none"}

// MetricsMode says which sections the profiler's own metrics cover. Counts, bytes, FLOPs and items always cover all.
type MetricsMode uint8

// Metrics modes.
const (
	metricsUnset MetricsMode = iota
	MetricsTimed             // durations of the sections that are timed because their parent is sampled (default)
	MetricsAll               // every section is timed, sampled or not, but for those of steps that a Schedule skips
	MetricsOff               // no gpu.operation.* metrics; gpu_metrics of the Collector may derive them from spans
)

// String is the name that configuration uses.
func (m MetricsMode) String() string { return nameOf(metricsNames[:], int(m)) }

var metricsNames = [...]string{"", "timed", "all", "off"}

func nameOf(names []string, i int) string {
	if i < 0 || i >= len(names) {
		return fmt.Sprintf("unknown(%d)", i)
	}
	return names[i]
}
