// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpusamplesextension

import "strconv"

// ThrottleReason is a bit of the Throttle field: a reason for which clocks are held back. The bits are those of NVML's
// clock event reasons (nvml.h, nvmlClocksEventReason…), which DCGM's field 112 passes on unchanged. Idle is not one.
type ThrottleReason uint64

// The throttle reasons; String is the value of gpu.throttle.reason.
const (
	ThrottleApplicationsClocks ThrottleReason = 0x2
	ThrottleSWPowerCap         ThrottleReason = 0x4
	ThrottleHWSlowdown         ThrottleReason = 0x8
	ThrottleSyncBoost          ThrottleReason = 0x10
	ThrottleSWThermal          ThrottleReason = 0x20
	ThrottleHWThermal          ThrottleReason = 0x40
	ThrottleHWPowerBrake       ThrottleReason = 0x80
	ThrottleDisplayClock       ThrottleReason = 0x100

	// ThrottleReasons are all bits that mean throttling. A writer masks the driver's value with it (bit 0 is idle).
	ThrottleReasons = ThrottleApplicationsClocks | ThrottleSWPowerCap | ThrottleHWSlowdown | ThrottleSyncBoost |
		ThrottleSWThermal | ThrottleHWThermal | ThrottleHWPowerBrake | ThrottleDisplayClock
)

// String is the value of gpu.throttle.reason for a single bit.
func (r ThrottleReason) String() string {
	switch r {
	case ThrottleApplicationsClocks:
		return "applications_clocks_setting"
	case ThrottleSWPowerCap:
		return "sw_power_cap"
	case ThrottleHWSlowdown:
		return "hw_slowdown"
	case ThrottleSyncBoost:
		return "sync_boost"
	case ThrottleSWThermal:
		return "sw_thermal_slowdown"
	case ThrottleHWThermal:
		return "hw_thermal_slowdown"
	case ThrottleHWPowerBrake:
		return "hw_power_brake_slowdown"
	case ThrottleDisplayClock:
		return "display_clock_setting"
	}
	return "0x" + strconv.FormatUint(uint64(r), 16)
}

// Each calls fn for every single bit that is set, lowest first.
func (r ThrottleReason) Each(fn func(ThrottleReason)) {
	for r != 0 {
		bit := r & -r
		fn(bit)
		r &^= bit
	}
}
