// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan

import (
	"fmt"

	"github.com/otelgpu/otelgpu/semconv"
)

// Direction is where a copy went (gpu.copy.direction).
type Direction uint8

// Directions; zero means that the section is no copy, or that its bytes moved over device memory.
const (
	DirectionUnset Direction = iota
	HostToDevice
	DeviceToHost
	DeviceToDevice
	PeerToPeer
	HostToHost
	directions
)

// String is the value of gpu.copy.direction; empty when not stated.
func (d Direction) String() string {
	switch d {
	case HostToDevice:
		return semconv.GPUCopyDirectionHostToDevice
	case DeviceToHost:
		return semconv.GPUCopyDirectionDeviceToHost
	case DeviceToDevice:
		return semconv.GPUCopyDirectionDeviceToDevice
	case PeerToPeer:
		return semconv.GPUCopyDirectionPeerToPeer
	case HostToHost:
		return semconv.GPUCopyDirectionHostToHost
	}
	return ""
}

// HostMemory is the kind of host memory of a copy (gpu.copy.host_memory).
type HostMemory uint8

// Kinds of host memory; zero means not stated.
const (
	MemoryUnset HostMemory = iota
	Pinned                 // page-locked: copies run at the link's rate and beside other work
	Pageable               // copied through a staging buffer
)

// String is the value of gpu.copy.host_memory; empty when not stated.
func (m HostMemory) String() string {
	switch m {
	case Pinned:
		return semconv.GPUCopyHostMemoryPinned
	case Pageable:
		return semconv.GPUCopyHostMemoryPageable
	}
	return ""
}

// AccessPattern is how a section walks its memory (gpu.io.access_pattern).
type AccessPattern uint8

// Access patterns; zero means not stated.
const (
	AccessUnset AccessPattern = iota
	Sequential
	Strided
	Random
)

// String is the value of gpu.io.access_pattern; empty when not stated.
func (a AccessPattern) String() string {
	switch a {
	case Sequential:
		return semconv.GPUIOAccessPatternSequential
	case Strided:
		return semconv.GPUIOAccessPatternStrided
	case Random:
		return semconv.GPUIOAccessPatternRandom
	}
	return ""
}

// TileLevel is a level of a tiled computation.
type TileLevel uint8

// Tile levels, from the tiles that are staged through device memory to those in registers.
const (
	TileUnset TileLevel = iota
	Macro
	Midi
	Micro
)

// String is `macro`, `midi` or `micro`; empty for none.
func (t TileLevel) String() string {
	switch t {
	case Macro:
		return "macro"
	case Midi:
		return "midi"
	case Micro:
		return "micro"
	}
	return ""
}

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
	syncUnset     SyncMode = iota
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
