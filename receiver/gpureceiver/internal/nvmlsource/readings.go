// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64) && !gpuspan_static

package nvmlsource

import (
	"encoding/binary"
	"math"

	"github.com/otelgpu/otelgpu/extension/gpusamplesextension"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/nvml"
)

// reading is one call and what it means: function(device, args…, results…).
type reading struct {
	quantity gpudata.Quantity
	function string
	scale    float64
	args     []any
	results  int  // how many, of 32 bits each
	use      int  // which of them counts
	wide     bool // of 64 bits
	get      func(s *source, device any) (uint64, nvml.Return)
}

const (
	percent = 0.01
	milli   = 1e-3
	mega    = 1e6
	mebi    = 1 << 20
)

// fast readings, energy first: its time matters most.
var fast = []reading{
	{quantity: gpudata.Energy, function: "nvmlDeviceGetTotalEnergyConsumption", scale: milli, results: 1, wide: true},
	{quantity: gpudata.Power, function: "nvmlDeviceGetFieldValues", scale: milli, get: instantPower},
	{quantity: gpudata.Utilization, function: "nvmlDeviceGetUtilizationRates", scale: percent, results: 1},
	{
		quantity: gpudata.Throttle, function: "nvmlDeviceGetCurrentClocksThrottleReasons", scale: 1,
		get: func(s *source, device any) (uint64, nvml.Return) {
			v, ret := s.number("nvmlDeviceGetCurrentClocksThrottleReasons", device)
			return v & uint64(gpusamplesextension.ThrottleReasons), ret
		},
	},
	clock(gpudata.ClockSM, nvml.ClockSM),
	clock(gpudata.ClockMemory, nvml.ClockMem),
	{
		quantity: gpudata.Temperature, function: "nvmlDeviceGetTemperature", scale: 1, results: 1,
		args: []any{nvml.TemperatureGPU},
	},
}

// slow readings change rarely.
var slow = []reading{
	clock(gpudata.ClockGraphics, nvml.ClockGraphics),
	clock(gpudata.ClockVideo, nvml.ClockVideo),
	{quantity: gpudata.EncoderUtilization, function: "nvmlDeviceGetEncoderUtilization", scale: percent, results: 2},
	{quantity: gpudata.DecoderUtilization, function: "nvmlDeviceGetDecoderUtilization", scale: percent, results: 2},
	ecc(gpudata.ECCCorrected, nvml.MemoryErrorTypeCorrected),
	ecc(gpudata.ECCUncorrected, nvml.MemoryErrorTypeUncorrected),
	{quantity: gpudata.PCIeReplays, function: "nvmlDeviceGetPcieReplayCounter", scale: 1, results: 1},
	remapped(gpudata.RemappedCorrected, 0),
	remapped(gpudata.RemappedUncorrected, 1),
	remapped(gpudata.RemapPending, 2),
	remapped(gpudata.RemapFailed, 3),
	retired(gpudata.RetiredCorrected, nvml.PageRetirementCauseMultipleSingleBitECCErrors),
	retired(gpudata.RetiredUncorrected, nvml.PageRetirementCauseDoubleBitECCError),
}

func clock(q gpudata.Quantity, kind int) reading {
	return reading{quantity: q, function: "nvmlDeviceGetClockInfo", scale: mega, args: []any{kind}, results: 1}
}

func ecc(q gpudata.Quantity, kind int) reading {
	return reading{
		quantity: q, function: "nvmlDeviceGetTotalEccErrors", scale: 1, args: []any{kind, nvml.VolatileECC}, results: 1,
		wide: true,
	}
}

func remapped(q gpudata.Quantity, use int) reading {
	return reading{quantity: q, function: "nvmlDeviceGetRemappedRows", scale: 1, results: 4, use: use}
}

// retired is a number of pages. Asked for none, the library says how many there are and that they do not fit.
func retired(q gpudata.Quantity, cause int) reading {
	const function = "nvmlDeviceGetRetiredPages"
	return reading{quantity: q, function: function, scale: 1, get: func(s *source, d any) (uint64, nvml.Return) {
		var n uint64
		ret := s.lib.Call(function, d, cause, &n, 0)
		if ret == nvml.ErrorInsufficientSize {
			ret = nvml.Success
		}
		return n, ret
	}}
}

// instantPower is the power now; where the driver has only the average (up to 1 s on newer chips), that.
func instantPower(s *source, device any) (uint64, nvml.Return) {
	v := &s.field
	*v = nvml.FieldValue{FieldID: nvml.FIDevPowerInstant}
	if ret := s.lib.Call("nvmlDeviceGetFieldValues", device, 1, v); ret == nvml.Success &&
		nvml.Return(v.NvmlReturn) == nvml.Success {
		return uint64(binary.NativeEndian.Uint32(v.Value[:4])), nvml.Success
	}
	return s.number("nvmlDeviceGetPowerUsage", device)
}

// of makes the call.
func (r *reading) of(s *source, device any) (float64, nvml.Return) {
	if r.get != nil {
		v, ret := r.get(s, device)
		return float64(v) * r.scale, ret
	}
	ret := s.call(r.function, r.results, append(append(s.args[:0], device), r.args...)...)
	v := s.results[r.use]
	if !r.wide {
		v &= math.MaxUint32 // behind one of them stands another
	}
	return float64(v) * r.scale, ret
}

// call calls a function that writes results behind its arguments. These and the results lie in the source's own memory,
// since a call on every device at every sample would make garbage.
func (s *source) call(function string, results int, args ...any) nvml.Return {
	s.results = [4]uint64{}
	for i := range results {
		args = append(args, &s.results[i])
	}
	return s.lib.Call(function, args...)
}

// number is what a function writes behind its arguments.
func (s *source) number(function string, args ...any) (uint64, nvml.Return) {
	ret := s.call(function, 1, append(s.args[:0], args...)...)
	return s.results[0], ret
}

// text is what a function writes into a buffer behind its arguments.
func (s *source) text(function string, args ...any) (string, nvml.Return) {
	var b [96]byte
	ret := s.lib.Call(function, append(args, &b, len(b))...)
	return nvml.Text(b[:]), ret
}
