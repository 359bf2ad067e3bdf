// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package link

import (
	"fmt"
	"slices"
	"strings"
)

// Extent selects the activities that the analysis of a device's window includes: the value of
// gpu.window.extent. Spans and the totals of steps do not depend on it. The zero Extent is
// ExtentAll.
type Extent uint8

// Extents. The last two are Holistic Trace Analysis's with and without include_last_profiler_step:
// like HTA, they include what a call in the file launched, and leave files with fewer than two
// steps whole.
const (
	ExtentAll          Extent = iota // every activity
	ExtentSteps                      // activities launched by the end of the last step
	ExtentStepsButLast               // activities launched before the last step began
)

var extents = [...]string{"all", "steps", "steps_but_last"}

// String returns the extent as configurations write it.
func (x Extent) String() string { return extents[x] }

// MarshalText writes the extent as UnmarshalText reads it.
func (x Extent) MarshalText() ([]byte, error) { return []byte(x.String()), nil }

// UnmarshalText reads an extent; an unknown one is an error that names the known.
func (x *Extent) UnmarshalText(b []byte) error { return SetByName(x, "extent", extents[:], b) }

// SetByName sets a value by its name.
func SetByName[T ~uint8](to *T, what string, names []string, b []byte) error {
	i := slices.Index(names, string(b))
	if i < 0 {
		return fmt.Errorf("unknown %s %q (one of %s)", what, b, strings.Join(names, ", "))
	}
	*to = T(i)
	return nil
}

// UsedExtent returns the requested extent if the file has the steps for it.
func (in *Input) UsedExtent() Extent {
	if !in.StepBounds().Several {
		return ExtentAll
	}
	return in.Extent
}

// takes reports whether the analysis of a device includes the activity.
func (in *Input) takes(a *Activity) bool {
	switch x := in.UsedExtent(); {
	case x == ExtentAll:
		return true
	case !a.HasLaunch:
		return false
	case x == ExtentSteps:
		return a.Launch.Start <= in.StepBounds().LastEnd
	}
	return a.Launch.Start < in.StepBounds().LastStart
}
