// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpusamplesextension

// Field is a quantity that is sampled from a device. The unit is always the base unit given here, whatever the source
// reports (DCGM's mJ, MiB, MHz and percents are converted by the writer).
type Field uint8

// The fields of a Sample. Their Kind says how values between two samples are read.
const (
	Energy            Field = iota // J, cumulative from any origin; whole board
	Power                          // W, whole board
	Temperature                    // Cel, the chip
	Utilization                    // ratio of time in which at least one kernel ran
	SMUtilization                  // ratio of time in which an SM had a resident warp, over all SMs
	SMOccupancy                    // ratio of resident warps to those possible
	TensorUtilization              // ratio of cycles in which the tensor pipe was active
	DRAMUtilization                // ratio of time in which the memory interface was active
	ClockSM                        // Hz
	ClockMemory                    // Hz
	MemoryUsed                     // By
	Throttle                       // a mask of ThrottleReason bits, exact in a float64
	PCIeTransmit                   // By, cumulative, device to host
	PCIeReceive                    // By, cumulative, host to device
	NVLinkTransmit                 // By, cumulative, all links
	NVLinkReceive                  // By, cumulative, all links

	NumFields int = iota // number of fields; not a field
)

// Kind says what a sampled value means between samples.
type Kind uint8

// Kinds of field.
const (
	// KindInstant is the value at the sample's time; between two samples it is read on the straight line.
	KindInstant Kind = iota
	// KindInterval is a mean over the time since the previous sample, as every utilisation is.
	KindInterval
	// KindCounter only grows; between two samples it is read on the straight line. A decrease is a reset: what was
	// counted across it is unknown and counts as zero, uncovered; so is an increase that no device can reach.
	KindCounter
	// KindMask is a set of bits that held since the previous sample. Its mean is the share of time with any bit set.
	KindMask
)

// fields have bounds, for one absurd value would stay in the running integrals of its ring: as an infinity for ever,
// or as the digits that later values lose. highest is far above what any device can do; of a counter it is the
// highest increase per second.
var fields = [NumFields]struct {
	name            string
	kind            Kind
	lowest, highest float64
}{
	Energy:            {"energy", KindCounter, 0, 1e6},
	Power:             {"power", KindInstant, 0, 1e6},
	Temperature:       {"temperature", KindInstant, -273.15, 1e4},
	Utilization:       {"utilization", KindInterval, 0, 1e3},
	SMUtilization:     {"sm_utilization", KindInterval, 0, 1e3},
	SMOccupancy:       {"sm_occupancy", KindInterval, 0, 1e3},
	TensorUtilization: {"tensor_utilization", KindInterval, 0, 1e3},
	DRAMUtilization:   {"dram_utilization", KindInterval, 0, 1e3},
	ClockSM:           {"clock_sm", KindInstant, 0, 1e12},
	ClockMemory:       {"clock_memory", KindInstant, 0, 1e12},
	MemoryUsed:        {"memory_used", KindInstant, 0, 1e15},
	Throttle:          {"throttle", KindMask, 0, 1 << 53},
	PCIeTransmit:      {"pcie_transmit", KindCounter, 0, 1e15},
	PCIeReceive:       {"pcie_receive", KindCounter, 0, 1e15},
	NVLinkTransmit:    {"nvlink_transmit", KindCounter, 0, 1e15},
	NVLinkReceive:     {"nvlink_receive", KindCounter, 0, 1e15},
}

// String is the field's name as used in telemetry and in recorded files; "unknown" for a value that is no field.
func (f Field) String() string {
	if int(f) >= NumFields {
		return "unknown"
	}
	return fields[f].name
}

// Kind says how values between two samples are read.
func (f Field) Kind() Kind {
	if int(f) >= NumFields {
		return KindInstant
	}
	return fields[f].kind
}

// possible says whether a device can have the value; false for NaN and infinities.
func (f Field) possible(v float64) bool {
	x := &fields[f]
	highest := x.highest
	if x.kind == KindCounter {
		highest = 1 << 64
	}
	return v >= x.lowest && v <= highest
}

// FieldByName is the inverse of Field.String; false for a name that is no field.
func FieldByName(name string) (Field, bool) {
	for f := range fields {
		if fields[f].name == name {
			return Field(f), true
		}
	}
	return 0, false
}
