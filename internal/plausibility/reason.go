// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package plausibility

// Reason is a kind of contradiction. Its name is the value of `reason` in the metric.
type Reason uint8

// The kinds of contradiction.
const (
	CounterFrozen Reason = iota
	CounterFactor
	CounterDeviates
	CounterModule
	PowerFactor
	CounterSlow
	ClockOffset
	ParentUnknown
	UtilizationRange
	MemoryRange
	DeviceIdle
	ServerCount
	ServerUnnamed
	SpanAhead
	SpanBehind
	ServerClock

	NumReasons = int(iota) // number of reasons; not a reason
)

// Info describes a reason.
type Info struct {
	Name     string
	Compared string // what contradicts what
	Effect   string // what happens to the values
	Remedy   string // what the operator can do
}

// Info returns the row of a reason.
func (r Reason) Info() *Info { return &table[r] }

func (r Reason) String() string { return table[r].Name }

var table = [NumReasons]Info{
	CounterFrozen: {
		"counter_frozen", "the energy counter does not rise while the power sensor reports power",
		"energy is the integral of power until the counter changes again",
		"restart the driver or its exporter",
	},
	CounterFactor: {
		"counter_factor", "the increase of the energy counter and the integral of power differ by more than 30 % in two " +
			"minutes in a row",
		"energy is the integral of power until two minutes agree",
		"check the unit of the counter and which parts of the module it covers",
	},
	CounterDeviates: {
		"counter_deviates", "the increase of the energy counter and the integral of power differ by 10 to 30 % in two " +
			"minutes in a row",
		"`gpu.energy_error` includes the difference",
		"compare both with the power supply's reading",
	},
	CounterModule: {
		"counter_module", "the energy counter exceeds the integral of power by a constant",
		"energy is the integral of power, which covers the GPU alone",
		"none is needed: the counter covers CPU and memory of the module, too",
	},
	PowerFactor: {
		"power_factor", "power leaves the range in which it agreed with the energy counter, and the counter does not",
		"energy is omitted until both agree for a minute",
		"check the unit of power, and restart the driver or its exporter",
	},
	CounterSlow: {
		"counter_slow", "the energy counter is refreshed more rarely than `settle` of `gpu_join`",
		"the energy of short spans follows power; `gpu.energy_error` is larger, or the energy is omitted",
		"collect the counter more often, for instance with `--collect-interval 1000` of dcgm-exporter",
	},
	ClockOffset: {
		"clock_offset", "the newest sample stays behind or ahead of this machine's clock for 20 seconds",
		"`gpu.energy_error` is the energy of the offset at the ends of a span, or the energy is omitted",
		"synchronize the clocks, or set `shift` of `gpu_join`",
	},
	ServerCount: {
		"server_count",
		"a server counts fewer running requests than have spans at the same time, by a quarter in two readings or more",
		"the energy of its requests has `gpu.energy_bound`",
		"check that `endpoint` under `servers` of `gpu_samples` is the server that sends the spans, and lists each of its " +
			"ranks",
	},
	ServerUnnamed: {
		"server_unnamed",
		"several services send requests, and an entry of `servers` without `service` counts the requests of one server",
		"the count is used for no service, and the energy of their requests has `gpu.energy_bound`",
		"set `service` of each entry of `servers` of `gpu_samples`, and list each server",
	},
	SpanAhead: {
		"span_ahead", "spans of a process end more than 2 s after they arrive, in three batches",
		"its spans get no values of the device for ten minutes",
		"synchronize the clocks of both machines, or set `shift` of `gpu_join`",
	},
	SpanBehind: {
		"span_behind", "for half a minute, all spans of a process end more than 30 s before they arrive",
		"`gpu.energy_error` includes by how much the device's power differs at the later time",
		"synchronize the clocks of both machines; if another Collector delays the spans, nothing is wrong",
	},
	ServerClock: {
		"server_clock",
		"the `Date` of a server's answers stays ahead of or behind this machine's clock by more than 1.5 s for 20 s",
		"`gpu.energy_error` of its requests includes by how much the device's power differs at the other time",
		"synchronize the clocks of both machines (NTP)",
	},
	ParentUnknown: {
		"parent_unknown", "a MIG instance names a physical GPU that has no samples",
		"the energy of its spans is omitted",
		"let the source report the physical GPU, too",
	},
	UtilizationRange: {
		"utilization_range", "a utilization is below 0 or above 100 %",
		"the value is omitted",
		"check the unit of the source",
	},
	MemoryRange: {
		"memory_range", "the memory in use exceeds the memory of the device",
		"the value is omitted",
		"check the unit of the source",
	},
	DeviceIdle: {
		"device_idle", "the device reports no utilization for a minute in which spans ran on it",
		"the utilization of the spans is omitted",
		"check which device the spans name, and whether the source reports the utilization of this device",
	},
}
