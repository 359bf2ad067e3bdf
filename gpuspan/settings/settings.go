// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package settings defines the settings of a profiler, which can be set without a change of code:
// by environment variables ([FromEnv]), flags ([Settings.Bind]) or by name ([Settings.Set], as in
// package gpuspanyaml). The table [Keys] lists all of them.
package settings

import (
	"errors"
	"fmt"
	"time"
)

// Settings are the settings of a profiler, from the environment ([FromEnv]), flags
// ([Settings.Bind]) or YAML (package gpuspanyaml). gpuspan.WithSettings changes them.
// docs/gpuspan.md documents them.
type Settings struct {
	Enabled      bool          // false: nothing is timed until SetEnabled(true); default true
	Verbosity    Verbosity     // default VerbosityDefault
	Sync         SyncMode      // default SyncDeferred
	Metrics      MetricsMode   // default MetricsTimed
	Slots        int           // open and pending sections of a stream at first, see MostSlots, 2 to MaxSlots; default 256
	Names        int           // maximum names of StartNamed, and of loops; others share "(other)"; default 1000
	Streams      int           // maximum number of streams; default 256
	CaptureCheck bool          // query the driver before each record whether the stream captures a graph; default true
	MemoryUsage  bool          // record the device memory in use at Start and End (one driver call each); default false
	CodeLocation bool          // record code.* of the caller of Start (about 0.5 µs); default false
	StackDepth   int           // frames of code.stacktrace, at most MaxStackDepth; needs CodeLocation; default 0
	HangLimit    time.Duration // a pending section older than this is logged once; 0: never; default 30 s
	// a section or step that the device has not finished after this time gets host times; default 5
	// min
	HangDeadline  time.Duration
	NestDeadline  time.Duration // how long an ended outermost section waits for open sections in it; default 5 s
	StepDeadline  time.Duration // how long an ended step waits for its sections; default 10 s
	OpenLimit     time.Duration // an open section older than this is abandoned; default 1 h
	FlushDeadline time.Duration // limit of Flush and Shutdown whose context has no deadline; default 5 s
	Report        bool          // keep the statistics of Snapshot; default true
	PrintReport   bool          // print the report to standard error at Shutdown; default false
	Schedule      Schedule      // schedule of loops without one; default: every step
}

// Default returns the default settings.
func Default() Settings {
	return Settings{
		Enabled:       true,
		Verbosity:     VerbosityDefault,
		Sync:          SyncDeferred,
		Metrics:       MetricsTimed,
		Slots:         usualSlots,
		Names:         1000,
		Streams:       256,
		CaptureCheck:  true,
		HangLimit:     30 * time.Second,
		HangDeadline:  5 * time.Minute,
		NestDeadline:  5 * time.Second,
		StepDeadline:  10 * time.Second,
		OpenLimit:     time.Hour,
		FlushDeadline: 5 * time.Second,
		Report:        true,
	}
}

// Valid returns s with invalid values, and values that contradict earlier ones of [Keys], replaced
// by their defaults.
func (s Settings) Valid() Settings {
	out := Default()
	for range 2 { // a value may depend on a later one
		for i, k := range s.keys() {
			try := out
			if try.keys()[i].set(k.get()) == nil && try.Validate() == nil {
				out = try
			}
		}
	}
	return out
}

// MaxStackDepth is the maximum of Settings.StackDepth.
const MaxStackDepth = 64

// Limits of Settings.Slots; a slot takes about 0.6 KiB.
const (
	MaxSlots   = 1 << 15
	usualSlots = 256
	grownSlots = 4096
)

// MostSlots returns how many slots a stream may have. While half of its slots are pending they
// double up to 4,096. A stream with fewer than 256 slots, or more than 4,096, keeps them.
func (s *Settings) MostSlots() int {
	if s.Slots < usualSlots {
		return s.Slots
	}
	return max(s.Slots, grownSlots)
}

type problems []error

func (p *problems) when(wrong bool, format string, args ...any) {
	if wrong {
		*p = append(*p, fmt.Errorf(format, args...))
	}
}

// Validate returns an error that lists, by configuration key, every value that is out of range or
// contradicts another.
func (s Settings) Validate() error {
	var bad problems
	bad.when(s.Verbosity < VerbosityOff || s.Verbosity > VerbosityDebug,
		"`verbosity` must be one of off, default, verbose, debug, found %d", int(s.Verbosity))
	bad.when(s.Sync < SyncDeferred || s.Sync > SyncNone,
		"`sync` must be one of deferred, group, immediate, none, found %d", int(s.Sync))
	bad.when(s.Metrics < MetricsTimed || s.Metrics > MetricsOff, "`metrics` must be one of timed, all, off, found %d",
		int(s.Metrics))
	bad.when(s.Slots < 2 || s.Slots > MaxSlots, "`slots` must be between 2 and %d, found %d", MaxSlots, s.Slots)
	bad.when(s.Names < 1, "`names` must be positive, found %d", s.Names)
	bad.when(s.Streams < 1, "`streams` must be positive, found %d", s.Streams)
	bad.when(s.StackDepth < 0 || s.StackDepth > MaxStackDepth, "`stack_depth` must be between 0 and %d, found %d",
		MaxStackDepth, s.StackDepth)
	bad.when(s.HangLimit < 0, "`hang_limit` must not be negative, found %s", s.HangLimit)
	bad.when(s.HangDeadline <= 0, "`hang_deadline` must be positive, found %s", s.HangDeadline)
	bad.when(s.NestDeadline <= 0, "`nest_deadline` must be positive, found %s", s.NestDeadline)
	bad.when(s.StepDeadline <= 0, "`step_deadline` must be positive, found %s", s.StepDeadline)
	bad.when(s.OpenLimit <= 0, "`open_limit` must be positive, found %s", s.OpenLimit)
	bad.when(s.FlushDeadline <= 0, "`flush_deadline` must be positive, found %s", s.FlushDeadline)
	bad.when(s.StackDepth > 0 && !s.CodeLocation,
		"`stack_depth` is %d but `code_location` is off (set code_location: true)", s.StackDepth)
	bad.when(s.MemoryUsage && s.Sync == SyncNone, "`memory_usage` needs a device, but `sync` is none")
	bad.when(s.PrintReport && !s.Report, "`print_report` is on but `report` is off (set report: true)")
	return errors.Join(append(bad, s.Schedule.Validate(0))...)
}

// Verbosity selects the operations to time: those whose own verbosity is at most the profiler's.
type Verbosity int32

// Verbosities. Off costs as much as a nil Profiler.
const (
	VerbosityOff     Verbosity = iota // no operation is timed
	VerbosityDefault                  // operations without AtVerbosity
	VerbosityVerbose                  // also operations of VerbosityVerbose
	VerbosityDebug                    // all operations
)

// String returns the name that configuration uses.
func (v Verbosity) String() string { return nameOf(verbosityNames[:], int(v)) }

var verbosityNames = [...]string{"off", "default", "verbose", "debug"}

// SyncMode selects when the GPU times of a section are read.
type SyncMode uint8

// Sync modes. All but SyncDeferred and SyncNone make End wait for the device.
const (
	SyncUnset     SyncMode = iota // the mode of the stream or the profiler applies
	SyncDeferred                  // End returns immediately; the polling thread reads the events later (default)
	SyncGroup                     // End of an outermost section waits for the device, once for all sections in it
	SyncImmediate                 // each End waits for the device
	SyncNone                      // no events: host times only (gpu.timing.source `host`)
)

// String returns the name that configuration uses.
func (m SyncMode) String() string { return nameOf(syncNames[:], int(m)) }

var syncNames = [...]string{"", "deferred", "group", "immediate", "none"}

// MetricsMode selects the sections that the profiler's own metrics cover. Counts, bytes, FLOPs and
// items always cover all.
type MetricsMode uint8

// Metrics modes.
const (
	metricsUnset MetricsMode = iota
	MetricsTimed             // durations of the sections that are timed because their parent is sampled (default)
	MetricsAll               // every section is timed, sampled or not, except in steps that a Schedule skips
	MetricsOff               // no gpu.operation.* metrics; gpu_metrics of the Collector may derive them from spans
)

// String returns the name that configuration uses.
func (m MetricsMode) String() string { return nameOf(metricsNames[:], int(m)) }

var metricsNames = [...]string{"", "timed", "all", "off"}

func nameOf(names []string, i int) string {
	if i < 0 || i >= len(names) {
		return fmt.Sprintf("unknown(%d)", i)
	}
	return names[i]
}
