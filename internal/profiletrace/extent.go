// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package profiletrace

import (
	"math"
)

// Extent selects the activities that the analysis of a device's window includes: the value of gpu.window.extent. Spans
// and the totals of steps do not depend on it. The zero Extent is ExtentAll.
type Extent uint8

// Extents. The last two are Holistic Trace Analysis's with and without include_last_profiler_step: like HTA, they
// include what a call in the file launched, and leave files with fewer than two steps whole.
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
func (x *Extent) UnmarshalText(b []byte) error { return named(x, "extent", extents[:], b) }

// stepBounds is what extents need to know of all steps.
type stepBounds struct {
	lastStart, lastEnd int64
	first              uint32 // name
	several            bool   // steps of different names
}

func newStepBounds() stepBounds { return stepBounds{lastStart: math.MinInt64, lastEnd: math.MinInt64} }

func (b *stepBounds) add(e *Event) {
	b.several = b.several || b.lastStart != math.MinInt64 && e.Name != b.first
	b.first = e.Name
	b.lastStart, b.lastEnd = max(b.lastStart, e.Start), max(b.lastEnd, e.End())
}

// extent returns the requested extent if the file has the steps for it.
func (p *Profile) extent() Extent {
	if !p.bounds.several {
		return ExtentAll
	}
	return p.opts.Extent
}

// takes reports whether the analysis of a device includes the activity.
func (p *Profile) takes(a *activity) bool {
	switch x := p.extent(); {
	case x == ExtentAll:
		return true
	case !a.hasLaunch:
		return false
	case x == ExtentSteps:
		return a.launch.start <= p.bounds.lastEnd
	}
	return a.launch.start < p.bounds.lastStart
}
