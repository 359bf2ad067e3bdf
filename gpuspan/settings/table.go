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

// Key is one setting as the outside names it: the one table behind environment, flags and YAML.
type Key struct {
	Name string // `stack_depth`, `schedule.active`; in YAML a dot is a level
	Help string // effect, in a sentence
	Kind string // bool, int, duration, or the values separated by `|`

	get func(*Settings) string
	set func(*Settings, string) error
}

// Env is the environment variable, as GPUSPAN_STACK_DEPTH.
func (k Key) Env() string { return EnvPrefix + strings.ToUpper(strings.ReplaceAll(k.Name, ".", "_")) }

// Flag is the name of the flag, as gpuspan.stack-depth.
func (k Key) Flag() string {
	return "gpuspan." + strings.ReplaceAll(strings.ReplaceAll(k.Name, "_", "-"), ".", "-")
}

// Default is the value when nothing is set.
func (k Key) Default() string {
	if k.get == nil { // the zero Key
		return ""
	}
	s := Default()
	return k.get(&s)
}

// EnvPrefix begins the names of environment variables.
const EnvPrefix = "GPUSPAN_"

// Keys lists every setting, in the order of the documentation.
func Keys() []Key {
	return []Key{
		boolKey("enabled", "time sections from the start; SetEnabled changes it later",
			func(s *Settings) *bool { return &s.Enabled }),
		enumKey("verbosity", "operations above it are off", verbosityNames[:], 0,
			func(s *Settings) *Verbosity { return &s.Verbosity }),
		enumKey("sync", "when GPU times are read", syncNames[:], 1, func(s *Settings) *SyncMode { return &s.Sync }),
		enumKey("metrics", "which sections the profiler's metrics cover", metricsNames[:], 1,
			func(s *Settings) *MetricsMode { return &s.Metrics }),
		intKey("slots", "sections of one stream that may be open or pending at once; further ones only count",
			func(s *Settings) *int { return &s.Slots }),
		intKey("names", "names of StartNamed, and of loops, that are kept apart", func(s *Settings) *int { return &s.Names }),
		intKey("streams", "streams at once", func(s *Settings) *int { return &s.Streams }),
		boolKey("capture_check", "ask the driver before each record whether a graph is captured",
			func(s *Settings) *bool { return &s.CaptureCheck }),
		boolKey("memory_usage", "device memory in use at Start and End", func(s *Settings) *bool { return &s.MemoryUsage }),
		boolKey("code_location", "code.* of the caller of Start", func(s *Settings) *bool { return &s.CodeLocation }),
		intKey("stack_depth", "frames of code.stacktrace; needs code_location",
			func(s *Settings) *int { return &s.StackDepth }),
		durationKeyOf("hang_limit", "log a section that the device has not finished after this; 0: never",
			func(s *Settings) *time.Duration { return &s.HangLimit }),
		durationKeyOf("hang_deadline",
			"end the span of a step that the device has not finished after this, with host times and status timeout",
			func(s *Settings) *time.Duration { return &s.HangDeadline }),
		durationKeyOf("nest_deadline", "how long an ended outermost section waits for open sections in it",
			func(s *Settings) *time.Duration { return &s.NestDeadline }),
		durationKeyOf("step_deadline", "how long an ended step waits for its sections",
			func(s *Settings) *time.Duration { return &s.StepDeadline }),
		durationKeyOf("open_limit", "give up sections that are open for longer",
			func(s *Settings) *time.Duration { return &s.OpenLimit }),
		durationKeyOf("flush_deadline", "limit of Flush and Shutdown without a deadline of their own",
			func(s *Settings) *time.Duration { return &s.FlushDeadline }),
		boolKey("report", "keep the statistics of Snapshot", func(s *Settings) *bool { return &s.Report }),
		boolKey("print_report", "print the report to standard error at Shutdown",
			func(s *Settings) *bool { return &s.PrintReport }),
		intKey("schedule.skip_first", "steps before the first cycle",
			func(s *Settings) *int { return &s.Schedule.SkipFirst }),
		intKey("schedule.wait", "steps of a cycle that are not timed", func(s *Settings) *int { return &s.Schedule.Wait }),
		intKey("schedule.warmup", "steps of a cycle that are timed and thrown away",
			func(s *Settings) *int { return &s.Schedule.Warmup }),
		intKey("schedule.active", "steps of a cycle that are recorded; 0: all from then on",
			func(s *Settings) *int { return &s.Schedule.Active }),
		intKey("schedule.repeat", "cycles; 0: for ever", func(s *Settings) *int { return &s.Schedule.Repeat }),
		intKey("schedule.every", "length of a cycle, instead of schedule.wait",
			func(s *Settings) *int { return &s.Schedule.Every }),
	}
}

// Set changes the setting of that name. It does not validate combinations: see [Settings.Validate].
func (s *Settings) Set(name, value string) error {
	for _, k := range Keys() {
		if k.Name == name {
			if err := k.set(s, strings.TrimSpace(value)); err != nil {
				return fmt.Errorf("`%s`: %w", name, err)
			}
			return nil
		}
	}
	return unknownKey(name, settingsNames())
}

func settingsNames() []string {
	var names []string
	for _, k := range Keys() {
		names = append(names, k.Name)
	}
	return names
}

// unknownKey names the key and, if one is close, what was probably meant.
func unknownKey(name string, known []string) error {
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

// editDistance is Levenshtein's.
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

func boolKey(name, help string, field func(*Settings) *bool) Key {
	return key(name, help, "bool", "true or false", strconv.ParseBool, field)
}

func intKey(name, help string, field func(*Settings) *int) Key {
	return key(name, help, "int", "a whole number", strconv.Atoi, field)
}

func durationKeyOf(name, help string, field func(*Settings) *time.Duration) Key {
	return key(name, help, "duration", "a duration such as 30s", time.ParseDuration, field)
}

// key is a setting that parse reads; must is what a value has to be.
func key[T any](name, help, kind, must string, parse func(string) (T, error), field func(*Settings) *T) Key {
	return Key{
		Name: name, Help: help, Kind: kind,
		get: func(s *Settings) string { return fmt.Sprint(*field(s)) },
		set: func(s *Settings, v string) error {
			x, err := parse(v)
			if err != nil {
				return fmt.Errorf("must be %s, found %q", must, v)
			}
			*field(s) = x
			return nil
		},
	}
}

// enumKey is a setting with named values; names[i] is the value i, those below first cannot be set.
func enumKey[T ~uint8 | ~int32](name, help string, names []string, first int, field func(*Settings) *T) Key {
	return Key{
		Name: name, Help: help, Kind: strings.Join(names[first:], "|"),
		get: func(s *Settings) string { return nameOf(names, int(*field(s))) },
		set: func(s *Settings, v string) error {
			i := slices.Index(names[first:], v)
			if i < 0 {
				return fmt.Errorf("must be one of %s, found %q", strings.Join(names[first:], ", "), v)
			}
			*field(s) = T(i + first)
			return nil
		},
	}
}
