// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package fairshare

import "math"

// Meter reads the device's counter.
type Meter interface {
	// Knots appends the counter over [from, to] as a line through points in time order: the first at from, the last at
	// to, one at each sample between. Value and Covered count from the first knot, which is all zero beside its time.
	// Where the counter is not known they stand still.
	Knots(from, to int64, dst []Knot) []Knot
	// Covered is the ns of [from, to] in which the counter is known.
	Covered(from, to int64) int64
}

// Knot is one point of a counter's line.
type Knot struct {
	Time    int64   // ns
	Value   float64 // known increase since the first knot
	Covered int64   // ns since the first knot in which the increase is known
}

// curve reads a line of knots at times that never decrease.
type curve struct {
	knots []Knot
	i     int
}

func (c *curve) at(t int64) (value float64, covered int64) {
	if len(c.knots) == 0 {
		return 0, 0
	}
	for c.i+1 < len(c.knots) && c.knots[c.i+1].Time <= t {
		c.i++
	}
	k := &c.knots[c.i]
	if t <= k.Time || c.i+1 == len(c.knots) {
		return k.Value, k.Covered
	}
	next := &c.knots[c.i+1]
	if next.Covered == k.Covered {
		return k.Value, k.Covered
	}
	share := float64(t-k.Time) / float64(next.Time-k.Time)
	return k.Value + (next.Value-k.Value)*share, k.Covered + int64(math.Round(share*float64(next.Covered-k.Covered)))
}
