// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetricsconnector

import (
	"slices"

	"github.com/otelgpu/otelgpu/semconv"
)

const (
	// explains is the share of a section's delay that one section in it must have to be named with it.
	explains = 0.5
	// sectionSeparator stands between a section and the one in it.
	sectionSeparator = "/"
)

// loss is where a rank loses its time.
type loss struct {
	section string  // path; empty where no section is known to be above the median
	phase   string  // that the section is, or lies in; empty: none
	delay   float64 // s above the median
	place   took    // of the section in the rank's step
}

// blame is the section in which a rank is furthest above the median of the ranks: from the phases, and the operations directly
// below the step that lie in none, down to the deepest one that explains most of it. phases and loose are by rank, nil where a
// rank says nothing of them.
func blame(phases, loose []*parts, rank int) (l loss) {
	levels := phases
	worst, delay := furthest(phases, rank)
	if x, d := furthest(loose, rank); d > delay {
		levels, worst, delay = loose, x, d
	} else if worst != nil && worst.name != semconv.GPUStragglerSectionOther {
		l.phase = worst.name
	}
	for worst != nil {
		if l.section != "" {
			l.section += sectionSeparator
		}
		l.section, l.delay, l.place = l.section+worst.name, delay, worst.place()
		levels = inside(levels, worst.name)
		next, d := furthest(levels, rank)
		if d < explains*delay {
			break
		}
		worst, delay = next, d
	}
	return l
}

// furthest is the part of a rank that is furthest above the median; nil where none is above.
func furthest(levels []*parts, rank int) (worst *part, delay float64) {
	if levels[rank] == nil {
		return nil, 0
	}
	for _, x := range levels[rank].list {
		if d := x.duration - medianOf(levels, x.name); d > delay {
			worst, delay = x, d
		}
	}
	return worst, delay
}

// medianOf is over the ranks of which anything is known at the level; one without the part spent nothing in it.
func medianOf(levels []*parts, name string) float64 {
	values := make([]float64, 0, len(levels))
	for _, l := range levels {
		if l == nil {
			continue
		}
		v := 0.0
		if x := l.find(name); x != nil {
			v = x.duration
		}
		values = append(values, v)
	}
	return median(values)
}

// inside are the levels below one part.
func inside(levels []*parts, name string) []*parts {
	out := slices.Clone(levels)
	for i, l := range levels {
		out[i] = nil
		if x := l.find(name); x != nil {
			out[i] = x.below
		}
	}
	return out
}
