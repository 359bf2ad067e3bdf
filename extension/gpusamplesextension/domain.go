// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpusamplesextension

// domain is the closed interval of the values that a quantity can have, in its base unit.
type domain struct{ least, most float64 }

// Drivers report a little more than all of the time for a busy unit, for the two clocks of a ratio differ. Everything
// above 1.05 is no such rounding.
const mostRatio = 1.05

// domains bound the fields: values outside are errors of a driver or of an exporter, and one of them would falsify the
// mean and the energy of every span around it. Limits are far from what any device does. Fields without an entry are
// counters, sizes and masks: not negative.
var domains = map[Field]domain{
	Utilization:       {0, mostRatio},
	SMUtilization:     {0, mostRatio},
	SMOccupancy:       {0, mostRatio},
	TensorUtilization: {0, mostRatio},
	DRAMUtilization:   {0, mostRatio},
	Power:             {0, 100_000}, // W
	Temperature:       {-100, 300},  // °C
	ClockSM:           {0, 100e9},   // Hz
	ClockMemory:       {0, 100e9},   // Hz
	MemoryUsed:        {0, 1 << 50}, // By
}

// Valid reports whether a device can have the value. A NaN is never valid.
func (f Field) Valid(v float64) bool {
	if d, ok := domains[f]; ok {
		return v >= d.least && v <= d.most
	}
	return v >= 0
}

// ValidRatio reports whether v can be a ratio of time that a driver measured.
func ValidRatio(v float64) bool { return v >= 0 && v <= mostRatio }
