// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gputrace

import (
	"encoding"
	"fmt"
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

// String is the level as configurations write it.
func (l Level) String() string { return levels[l] }

var (
	_ encoding.TextUnmarshaler = (*Level)(nil)
	_ encoding.TextMarshaler   = Level(0)
)

// MarshalText writes the level as UnmarshalText reads it.
func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText reads a level; an unknown one is an error that names the known.
func (l *Level) UnmarshalText(b []byte) error {
	for i, s := range levels {
		if s == string(b) {
			*l = Level(i)
			return nil
		}
	}
	return fmt.Errorf("unknown detail %q (one of %s)", b, strings.Join(levels[:], ", "))
}

// perStep reports whether every step is a trace of its own. Otherwise there is one trace per process.
func (l Level) perStep() bool { return l == LevelOperators || l == LevelKernels }
