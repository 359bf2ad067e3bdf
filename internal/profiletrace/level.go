// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package profiletrace

import (
	"fmt"
	"slices"
	"strings"
)

// Level is how much of a profile becomes spans: the value of gpu.trace.detail. The zero Level is LevelAuto.
type Level uint8

// Levels.
const (
	LevelAuto        Level = iota // steps, annotations, modules, collectives, copies and kernels that matter
	LevelSteps                    // steps only
	LevelAnnotations              // and user annotations
	LevelOperators                // and modules and operators
	LevelKernels                  // and all activities of the device with what launched them
)

var levels = [...]string{"auto", "steps", "annotations", "operators", "kernels"}

// String returns the level as configurations write it.
func (l Level) String() string { return levels[l] }

// MarshalText writes the level as UnmarshalText reads it.
func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText reads a level; an unknown one is an error that names the known.
func (l *Level) UnmarshalText(b []byte) error { return named(l, "detail", levels[:], b) }

// named sets a value by its name.
func named[T ~uint8](to *T, what string, names []string, b []byte) error {
	i := slices.Index(names, string(b))
	if i < 0 {
		return fmt.Errorf("unknown %s %q (one of %s)", what, b, strings.Join(names, ", "))
	}
	*to = T(i)
	return nil
}

// perStep reports whether every step is a separate trace. Otherwise there is one trace per process.
func (l Level) perStep() bool { return l == LevelOperators || l == LevelKernels }
