// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import "math"

// leastError is the share of a span's energy from which its error is stated.
const leastError = 0.05

// wholeShare is the share of a device's energy from which a span counts as alone on it.
const wholeShare = 0.97

// boundOf returns by how many joules the energy that a span has of a board in [start, end] can
// differ from the truth. Infinity: no bound holds.
//
// A span that shares the device has the share f of the error at its ends. Where its share changes
// inside, it has a part of the error there, too. It changes the more, the less it is of the whole,
// and by about itself.
func (b *board) boundOf(start, end int64, energy float64) float64 {
	e := b.meter.energy
	whole := e.Energy(start, end)
	bound := e.Bound(start, end, whole)
	if energy >= wholeShare*whole || math.IsInf(bound, 1) {
		return bound
	}
	f := max(0, energy) / whole
	return f * math.Hypot(bound, math.Sqrt(1-f)*e.Inside(start, end))
}
