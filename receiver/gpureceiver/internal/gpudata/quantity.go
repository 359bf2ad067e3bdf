// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package gpudata is what every source of device data speaks: quantities in base units, values with the time of their
// own measurement, and the interface Source.
package gpudata

import "github.com/otelgpu/otelgpu/extension/gpusamplesextension"

// Quantity is something that is read from a device. The first ones are the fields of gpu_samples with the same numbers;
// the others are for metrics only. All are in the base units given here.
type Quantity uint8

// Quantities that also go to gpu_samples.
const (
	Energy            = Quantity(gpusamplesextension.Energy)
	Power             = Quantity(gpusamplesextension.Power)
	Temperature       = Quantity(gpusamplesextension.Temperature)
	Utilization       = Quantity(gpusamplesextension.Utilization)
	SMUtilization     = Quantity(gpusamplesextension.SMUtilization)
	SMOccupancy       = Quantity(gpusamplesextension.SMOccupancy)
	TensorUtilization = Quantity(gpusamplesextension.TensorUtilization)
	DRAMUtilization   = Quantity(gpusamplesextension.DRAMUtilization)
	ClockSM           = Quantity(gpusamplesextension.ClockSM)
	ClockMemory       = Quantity(gpusamplesextension.ClockMemory)
	MemoryUsed        = Quantity(gpusamplesextension.MemoryUsed)
	Throttle          = Quantity(gpusamplesextension.Throttle)
	PCIeTransmit      = Quantity(gpusamplesextension.PCIeTransmit)
	PCIeReceive       = Quantity(gpusamplesextension.PCIeReceive)
	NVLinkTransmit    = Quantity(gpusamplesextension.NVLinkTransmit)
	NVLinkReceive     = Quantity(gpusamplesextension.NVLinkReceive)
)

// Quantities for metrics only.
const (
	MemoryLimit = Quantity(gpusamplesextension.NumFields) + iota // By
	// By, held by the driver, part of neither used nor free
	MemoryReserved
	EncoderUtilization  // ratio
	DecoderUtilization  // ratio
	ClockGraphics       // Hz
	ClockVideo          // Hz
	PipeFP64            // ratio
	PipeFP32            // ratio
	PipeFP16            // ratio
	PipeInt             // ratio
	PipeTensorDFMA      // ratio
	PipeTensorHMMA      // ratio
	PipeTensorIMMA      // ratio
	ECCCorrected        // count since the driver was loaded
	ECCUncorrected      // count since the driver was loaded
	PCIeReplays         // count
	NVLinkCRC           // count
	RetiredCorrected    // pages
	RetiredUncorrected  // pages
	RemappedCorrected   // rows
	RemappedUncorrected // rows
	RemapFailed         // 0 or 1
	RetirePending       // pages waiting for a reset
	RemapPending        // 0 or 1: a row waits for a reset
	XIDs                // events since the source was opened

	NumQuantities = int(XIDs) + 1 // number of quantities; not a quantity
)

type meta struct {
	name string
	kind gpusamplesextension.Kind
}

// quantities are those for metrics only.
var quantities = [NumQuantities]meta{
	MemoryLimit:         {"memory_limit", gpusamplesextension.KindInstant},
	MemoryReserved:      {"memory_reserved", gpusamplesextension.KindInstant},
	EncoderUtilization:  {"encoder_utilization", gpusamplesextension.KindInterval},
	DecoderUtilization:  {"decoder_utilization", gpusamplesextension.KindInterval},
	ClockGraphics:       {"clock_graphics", gpusamplesextension.KindInstant},
	ClockVideo:          {"clock_video", gpusamplesextension.KindInstant},
	PipeFP64:            {"pipe_fp64", gpusamplesextension.KindInterval},
	PipeFP32:            {"pipe_fp32", gpusamplesextension.KindInterval},
	PipeFP16:            {"pipe_fp16", gpusamplesextension.KindInterval},
	PipeInt:             {"pipe_int", gpusamplesextension.KindInterval},
	PipeTensorDFMA:      {"pipe_tensor_dfma", gpusamplesextension.KindInterval},
	PipeTensorHMMA:      {"pipe_tensor_hmma", gpusamplesextension.KindInterval},
	PipeTensorIMMA:      {"pipe_tensor_imma", gpusamplesextension.KindInterval},
	ECCCorrected:        {"ecc_corrected", gpusamplesextension.KindCounter},
	ECCUncorrected:      {"ecc_uncorrected", gpusamplesextension.KindCounter},
	PCIeReplays:         {"pcie_replays", gpusamplesextension.KindCounter},
	NVLinkCRC:           {"nvlink_crc", gpusamplesextension.KindCounter},
	RetiredCorrected:    {"retired_corrected", gpusamplesextension.KindCounter},
	RetiredUncorrected:  {"retired_uncorrected", gpusamplesextension.KindCounter},
	RemappedCorrected:   {"remapped_corrected", gpusamplesextension.KindCounter},
	RemappedUncorrected: {"remapped_uncorrected", gpusamplesextension.KindCounter},
	RemapFailed:         {"remap_failed", gpusamplesextension.KindInstant},
	RetirePending:       {"retire_pending", gpusamplesextension.KindInstant},
	RemapPending:        {"remap_pending", gpusamplesextension.KindInstant},
	XIDs:                {"xids", gpusamplesextension.KindCounter},
}

// String is the quantity's name in recorded files; "unknown" for a number that is no quantity.
func (q Quantity) String() string {
	if f, ok := q.Field(); ok || int(q) >= NumQuantities {
		return f.String()
	}
	return quantities[q].name
}

// Kind says how values between two samples are read.
func (q Quantity) Kind() gpusamplesextension.Kind {
	if f, ok := q.Field(); ok || int(q) >= NumQuantities {
		return f.Kind()
	}
	return quantities[q].kind
}

// ratios are the quantities for metrics only that are ratios of time.
var ratios = [NumQuantities]bool{
	EncoderUtilization: true, DecoderUtilization: true, PipeFP64: true, PipeFP32: true, PipeFP16: true, PipeInt: true,
	PipeTensorDFMA: true, PipeTensorHMMA: true, PipeTensorIMMA: true,
}

// Valid reports whether a device can have the value.
func (q Quantity) Valid(v float64) bool {
	switch f, ok := q.Field(); {
	case ok:
		return f.Valid(v)
	case ratios[q]:
		return gpusamplesextension.ValidRatio(v)
	default:
		return v >= 0
	}
}

// ByName is the inverse of String.
func ByName(name string) (Quantity, bool) {
	for q := range Quantity(NumQuantities) {
		if q.String() == name {
			return q, true
		}
	}
	return 0, false
}

// Field is the field of gpu_samples that holds the quantity; false when none does.
func (q Quantity) Field() (gpusamplesextension.Field, bool) {
	return gpusamplesextension.Field(q), int(q) < gpusamplesextension.NumFields
}
