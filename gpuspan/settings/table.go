// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Key describes one setting in the environment, flags and YAML.
type Key struct {
	Name string // name such as `stack_depth` or `schedule.active`; a dot separates levels of YAML
	Help string // one sentence
	Kind string // bool, int, duration, or the values separated by `|`

	get func() string // of the settings that the key is of
	set func(string) error
}

// Env returns the environment variable, such as GPUSPAN_STACK_DEPTH.
func (k Key) Env() string { return EnvPrefix + strings.ToUpper(strings.ReplaceAll(k.Name, ".", "_")) }

// Flag returns the name of the flag, such as gpuspan.stack-depth.
func (k Key) Flag() string {
	return "gpuspan." + strings.ReplaceAll(strings.ReplaceAll(k.Name, "_", "-"), ".", "-")
}

// Default returns the default value.
func (k Key) Default() string {
	if k.get == nil { // the zero Key
		return ""
	}
	return k.get()
}

// EnvPrefix is the prefix of environment variables.
const EnvPrefix = "GPUSPAN_"

// Keys lists every setting, in the order of the documentation.
func Keys() []Key {
	s := Default()
	return s.keys()
}

// keys returns the keys that read and change s.
func (s *Settings) keys() []Key {
	return []Key{
		boolKey("enabled", "time sections from the start; SetEnabled changes it at run time", &s.Enabled),
		enumKey("verbosity", "highest verbosity of operations that are timed", verbosityNames[:], 0, &s.Verbosity),
		enumKey("sync", "when GPU times are read", syncNames[:], 1, &s.Sync),
		enumKey("metrics", "which sections the profiler's metrics cover", metricsNames[:], 1, &s.Metrics),
		intKey("slots", "open and pending sections per stream at first; they double up to 4096 while half are pending, "+
			"unless it is below 256; further sections are only counted", &s.Slots),
		intKey("names", "maximum names of StartNamed, and of loops; further names are reported as (other)", &s.Names),
		intKey("streams", "maximum number of streams", &s.Streams),
		boolKey("capture_check", "check before each event record whether the stream captures a graph", &s.CaptureCheck),
		boolKey("memory_usage", "record the device memory in use at Start and End", &s.MemoryUsage),
		boolKey("code_location", "record code.* of the caller of Start", &s.CodeLocation),
		intKey("stack_depth", "frames of code.stacktrace; requires code_location", &s.StackDepth),
		durationKey("hang_limit", "log a section that the device has not finished after this time; 0: never", &s.HangLimit),
		durationKey("hang_deadline",
			"end the span of a step that the device has not finished after this time, with host times and status timeout",
			&s.HangDeadline),
		durationKey("nest_deadline", "how long an ended outermost section waits for open sections in it", &s.NestDeadline),
		durationKey("step_deadline", "how long an ended step waits for its sections", &s.StepDeadline),
		durationKey("open_limit", "discard sections that are open for longer", &s.OpenLimit),
		durationKey("flush_deadline", "time limit of Flush and Shutdown if their context has no deadline", &s.FlushDeadline),
		boolKey("report", "keep statistics for Snapshot", &s.Report),
		boolKey("print_report", "print the report to standard error at Shutdown", &s.PrintReport),
		intKey("schedule.skip_first", "steps before the first cycle", &s.Schedule.SkipFirst),
		intKey("schedule.wait", "steps of a cycle that are not timed", &s.Schedule.Wait),
		intKey("schedule.warmup", "steps of a cycle that are timed and discarded", &s.Schedule.Warmup),
		intKey("schedule.active", "steps of a cycle that are recorded; 0: all further steps", &s.Schedule.Active),
		intKey("schedule.repeat", "number of cycles; 0: unlimited", &s.Schedule.Repeat),
		intKey("schedule.every", "length of a cycle, instead of schedule.wait", &s.Schedule.Every),
	}
}

// Set changes the setting of that name. It returns an error for an unknown name or an invalid
// value. It does not validate combinations: see [Settings.Validate].
func (s *Settings) Set(name, value string) error {
	var names []string
	for _, k := range s.keys() {
		if k.Name == name {
			if err := k.set(strings.TrimSpace(value)); err != nil {
				return fmt.Errorf("`%s`: %w", name, err)
			}
			return nil
		}
		names = append(names, k.Name)
	}
	return unknownKey(name, names)
}

// unknownKey names the key and, if one is close, the key that was probably meant.
func unknownKey(name string, known []string) error {
	if note, ok := foreignKeys[name[strings.LastIndexByte(name, '.')+1:]]; ok {
		return fmt.Errorf("unknown key `%s` (%s)", name, note)
	}
	best, distance := "", 3
	for _, k := range known {
		if d := editDistance(name, k); d < distance {
			best, distance = k, d
		}
	}
	if best != "" {
		return fmt.Errorf("unknown key `%s` (did you mean `%s`?)", name, best)
	}
	return fmt.Errorf("unknown key `%s`", name)
}

// foreignKeys are names that other tools have for settings, and what replaces them.
var foreignKeys = map[string]string{
	"warmup_steps":   "set `schedule.skip_first` at the start of a run, `schedule.warmup` at the start of each cycle",
	"wait_steps":     "set `schedule.wait`",
	"active_steps":   "set `schedule.active`",
	"sample_rate":    "set `schedule.every`: 10 records one step of ten",
	"sample_every":   "set `schedule.every`",
	"profile_memory": "set `memory_usage`",
	"with_stack":     "set `code_location`, and `stack_depth` for more than the caller",
	"record_shapes":  "state shapes as attribute gpu.operation.shapes of the operation",
	"with_flops":     "state FLOPs as Work; package flops counts them",
	"with_modules":   "name operations after modules",
	"activities":     "sections are of the GPU, spans of the host come from any tracer",
}

// editDistance returns the Levenshtein distance.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}

func boolKey(name, help string, field *bool) Key {
	return key(name, help, "bool", "true or false", strconv.ParseBool, field)
}

func intKey(name, help string, field *int) Key {
	return key(name, help, "int", "a whole number", strconv.Atoi, field)
}

func durationKey(name, help string, field *time.Duration) Key {
	return key(name, help, "duration", "a duration such as 30s", time.ParseDuration, field)
}

// key returns a setting that parse reads; must is what a value has to be.
func key[T any](name, help, kind, must string, parse func(string) (T, error), field *T) Key {
	return Key{
		Name: name, Help: help, Kind: kind,
		get: func() string { return fmt.Sprint(*field) },
		set: func(v string) error {
			x, err := parse(v)
			if err != nil {
				return fmt.Errorf("must be %s, found %q", must, v)
			}
			*field = x
			return nil
		},
	}
}

// enumKey returns a setting with named values; names[i] is the value i, those below first cannot be
// set.
func enumKey[T ~uint8 | ~int32](name, help string, names []string, first int, field *T) Key {
	return Key{
		Name: name, Help: help, Kind: strings.Join(names[first:], "|"),
		get: func() string { return nameOf(names, int(*field)) },
		set: func(v string) error {
			i := slices.Index(names[first:], v)
			if i < 0 {
				return fmt.Errorf("must be one of %s, found %q", strings.Join(names[first:], ", "), v)
			}
			*field = T(i + first)
			return nil
		},
	}
}
