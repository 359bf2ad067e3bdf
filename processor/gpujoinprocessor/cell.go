// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"math"

	"github.com/otelgpu/otelgpu/extension/gpusamplesextension"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/semconv"
)

const (
	// leastError is the share of a span's energy from which its error is stated.
	leastError = 0.05
	// sensorSlack is how far a cell's mean power may be outside of the power at its two ends. An energy counter and a
	// power sensor are different sensors; beyond that, the power changed between the samples.
	sensorSlack = 0.1
)

// cell is the time between two samples of a physical GPU, with the bounds of its power there.
type cell struct {
	from, to  int64 // on the clock of samples
	low, high float64
	energy    float64
	counted   bool // the energy is a counter's
}

// around returns the cell with time t; false if no samples are near.
func (m *meter) around(t int64) (*cell, bool) {
	if c := &m.cell; c.from < t && t < c.to {
		return c, true
	}
	from, to, ok := m.dev.Neighbors(m.field, t)
	if !ok {
		return nil, false
	}
	first, ok1 := m.dev.Value(gpusamplesextension.Power, from)
	last, ok2 := m.dev.Value(gpusamplesextension.Power, to)
	if !ok1 || !ok2 {
		return nil, false
	}
	m.cell = cell{
		from: from, to: to, low: min(first, last), high: max(first, last), counted: m.field == gpusamplesextension.Energy,
	}
	c := &m.cell
	c.energy, _ = m.dev.Integral(m.field, from, to)
	if !c.counted {
		return c, true
	}
	switch mean := c.energy / (float64(to-from) * 1e-9); {
	case mean > c.high*(1+sensorSlack): // a pulse of unknown height
		if c.high = max(mean, m.dev.Device().Limits.Power); c.high == mean {
			c.high = math.Inf(1)
		}
	case mean < c.low*(1-sensorSlack):
		c.low = 0
	default:
		c.low, c.high = min(c.low, mean), max(c.high, mean)
	}
	return c, true
}

// err returns by how many joules the energy of [start, end] within the cell can differ from the estimate.
func (c *cell) err(m *meter, start, end int64) float64 {
	inside, outside := float64(end-start)*1e-9, float64(c.to-c.from-(end-start))*1e-9
	if outside == 0 {
		return 0
	}
	estimate, _ := m.dev.Integral(m.field, start, end)
	least, most := c.low*inside, c.high*inside
	if c.counted {
		least, most = max(least, c.energy-c.high*outside), min(most, c.energy-c.low*outside)
	}
	return max(estimate-least, most-estimate, 0)
}

// energyError returns by how many joules a board's energy in a span can be off because the samples do not show when
// the power changed in the cells of the span's ends.
func (b *board) energyError(start, end int64) (joules float64) {
	m := &b.meter
	if !m.known || end <= start {
		return 0
	}
	within := end
	if c, ok := m.around(start); ok {
		within = c.to
		joules = c.err(m, max(start, c.from), min(end, c.to))
	}
	if within < end {
		if c, ok := m.around(end); ok {
			joules += c.err(m, c.from, end)
		}
	}
	return joules
}

// energyError writes by how much a span's energy can be off, if that is much of it. The error is divided as the energy
// is.
func (a *attributes) energyError(to *results, energy, whole, joules float64) {
	if whole > energy && energy > 0 {
		joules *= energy / whole
	}
	if joules > 0 && joules >= leastError*energy {
		to.putDouble(string(semconv.GPUEnergyErrorKey), spanfacts.Round5(joules))
	}
}
