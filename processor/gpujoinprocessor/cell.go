// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

// leastError is the share of a span's energy from which its error is stated.
const leastError = 0.05

// energyOf returns the energy of a board in a span, and by how many joules it can differ from the truth. Infinity: no
// bound holds.
func (b *board) energyOf(start, end int64) (whole, bound float64) {
	whole = b.meter.energy.Energy(start, end)
	return whole, b.meter.energy.Bound(start, end, whole)
}

// part returns the bound of a part of the whole energy: the error is divided as the energy is.
func part(energy, whole, bound float64) float64 {
	if whole > energy {
		return bound * max(0, energy) / whole
	}
	return bound
}
