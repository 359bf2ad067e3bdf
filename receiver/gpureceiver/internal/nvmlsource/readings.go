// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build cgo && linux

package nvmlsource

import (
	"encoding/binary"

	"github.com/otelgpu/otelgpu/extension/gpusamplesextension"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/nvml"
)

// reading is one call and what it means.
type reading struct {
	quantity gpudata.Quantity
	symbol   string // of the C function, looked up before the first call
	get      func(nvml.Device) (float64, nvml.Return)
}

const (
	percent = 0.01
	milli   = 1e-3
	mega    = 1e6
	mebi    = 1 << 20
)

// fast readings, energy first: its time matters most.
var fast = []reading{
	{gpudata.Energy, "nvmlDeviceGetTotalEnergyConsumption", func(d nvml.Device) (float64, nvml.Return) {
		v, ret := d.GetTotalEnergyConsumption()
		return float64(v) * milli, ret
	}},
	{gpudata.Power, "nvmlDeviceGetFieldValues", instantPower},
	{gpudata.Utilization, "nvmlDeviceGetUtilizationRates", func(d nvml.Device) (float64, nvml.Return) {
		v, ret := d.GetUtilizationRates()
		return float64(v.Gpu) * percent, ret
	}},
	{gpudata.Throttle, "nvmlDeviceGetCurrentClocksThrottleReasons", func(d nvml.Device) (float64, nvml.Return) {
		v, ret := d.GetCurrentClocksThrottleReasons()
		return float64(v & uint64(gpusamplesextension.ThrottleReasons)), ret
	}},
	{gpudata.ClockSM, "nvmlDeviceGetClockInfo", clock(nvml.ClockSM)},
	{gpudata.ClockMemory, "nvmlDeviceGetClockInfo", clock(nvml.ClockMem)},
	{gpudata.Temperature, "nvmlDeviceGetTemperature", func(d nvml.Device) (float64, nvml.Return) {
		v, ret := d.GetTemperature()
		return float64(v), ret
	}},
}

// slow readings change rarely.
var slow = []reading{
	{gpudata.ClockGraphics, "nvmlDeviceGetClockInfo", clock(nvml.ClockGraphics)},
	{gpudata.ClockVideo, "nvmlDeviceGetClockInfo", clock(nvml.ClockVideo)},
	{gpudata.EncoderUtilization, "nvmlDeviceGetEncoderUtilization", func(d nvml.Device) (float64, nvml.Return) {
		v, ret := d.GetEncoderUtilization()
		return float64(v) * percent, ret
	}},
	{gpudata.DecoderUtilization, "nvmlDeviceGetDecoderUtilization", func(d nvml.Device) (float64, nvml.Return) {
		v, ret := d.GetDecoderUtilization()
		return float64(v) * percent, ret
	}},
	{gpudata.ECCCorrected, "nvmlDeviceGetTotalEccErrors", ecc(nvml.MemoryErrorTypeCorrected)},
	{gpudata.ECCUncorrected, "nvmlDeviceGetTotalEccErrors", ecc(nvml.MemoryErrorTypeUncorrected)},
	{gpudata.PCIeReplays, "nvmlDeviceGetPcieReplayCounter", func(d nvml.Device) (float64, nvml.Return) {
		v, ret := d.GetPcieReplayCounter()
		return float64(v), ret
	}},
	{gpudata.RemappedCorrected, "nvmlDeviceGetRemappedRows", func(d nvml.Device) (float64, nvml.Return) {
		v, _, _, _, ret := d.GetRemappedRows()
		return float64(v), ret
	}},
	{gpudata.RemappedUncorrected, "nvmlDeviceGetRemappedRows", func(d nvml.Device) (float64, nvml.Return) {
		_, v, _, _, ret := d.GetRemappedRows()
		return float64(v), ret
	}},
	{gpudata.RemapPending, "nvmlDeviceGetRemappedRows", func(d nvml.Device) (float64, nvml.Return) {
		_, _, v, _, ret := d.GetRemappedRows()
		return number(v), ret
	}},
	{gpudata.RemapFailed, "nvmlDeviceGetRemappedRows", func(d nvml.Device) (float64, nvml.Return) {
		_, _, _, v, ret := d.GetRemappedRows()
		return number(v), ret
	}},
	{gpudata.RetiredCorrected, "nvmlDeviceGetRetiredPages", retired(nvml.PageRetirementCauseMultipleSingleBitECCErrors)},
	{gpudata.RetiredUncorrected, "nvmlDeviceGetRetiredPages", retired(nvml.PageRetirementCauseDoubleBitECCError)},
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func clock(kind nvml.ClockType) func(nvml.Device) (float64, nvml.Return) {
	return func(d nvml.Device) (float64, nvml.Return) {
		v, ret := d.GetClockInfo(kind)
		return float64(v) * mega, ret
	}
}

func ecc(kind nvml.MemoryErrorType) func(nvml.Device) (float64, nvml.Return) {
	return func(d nvml.Device) (float64, nvml.Return) {
		v, ret := d.GetTotalEccErrors(kind)
		return float64(v), ret
	}
}

func retired(cause nvml.PageRetirementCause) func(nvml.Device) (float64, nvml.Return) {
	return func(d nvml.Device) (float64, nvml.Return) {
		v, ret := d.GetRetiredPages(cause)
		return float64(v), ret
	}
}

// instantPower is the power now; where the driver has only the average (up to 1 s on newer chips), that.
func instantPower(d nvml.Device) (float64, nvml.Return) {
	v := [1]nvml.FieldValue{{FieldID: nvml.FIDevPowerInstant}}
	if ret := d.GetFieldValues(v[:]); ret == nvml.Success && nvml.Return(v[0].NvmlReturn) == nvml.Success {
		return float64(binary.NativeEndian.Uint32(v[0].Value[:4])) * milli, nvml.Success
	}
	mw, ret := d.GetPowerUsage()
	return float64(mw) * milli, ret
}
