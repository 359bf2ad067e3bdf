// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package emit

import (
	"github.com/otelgpu/otelgpu/internal/profiletrace/link"
)

// Level is how much of a profile becomes spans: the value of gpu.trace.detail. The zero Level is
// LevelAuto.
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
func (l *Level) UnmarshalText(b []byte) error { return link.SetByName(l, "detail", levels[:], b) }

// PerStep reports whether every step is a separate trace. Otherwise there is one trace per process.
func (l Level) PerStep() bool { return l == LevelOperators || l == LevelKernels }
