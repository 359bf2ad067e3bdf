// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuquantity

import "github.com/otelgpu/otelgpu/semconv"

// Quantities with rings. Each is sampled at pace Fast, Medium or Profiling: a field that is read
// rarely would delay the join of all spans of its device.
const (
	Energy Quantity = iota
	Power
	Temperature
	Utilization
	SMUtilization
	SMOccupancy
	TensorUtilization
	DRAMUtilization
	ClockSM
	ClockMemory
	MemoryUsed
	Throttle
	PCIeTransmit
	PCIeReceive
	NVLinkTransmit
	NVLinkReceive

	NumRings = int(iota) // number of quantities with rings; not a quantity
)

// Quantities for metrics only.
const (
	MemoryLimit Quantity = Quantity(NumRings) + iota
	MemoryReserved
	MemoryTemperature
	MemoryActivity
	PowerLimit
	FanSpeed
	EncoderUtilization
	DecoderUtilization
	ClockGraphics
	ClockVideo
	PipeFP64
	PipeFP32
	PipeFP16
	PipeInt
	PipeTensorDFMA
	PipeTensorHMMA
	PipeTensorIMMA
	ECCCorrected
	ECCUncorrected
	PCIeReplays
	NVLinkCRC
	NVLinkReplays
	NVLinkRecoveries
	RetiredCorrected
	RetiredUncorrected
	RemappedCorrected
	RemappedUncorrected
	RemapFailed
	RetirePending
	RemapPending
	XIDs

	Num = int(iota) + NumRings // number of quantities; not a quantity
)

// Units of drivers in base units.
const (
	percent = 0.01
	milli   = 1e-3
	micro   = 1e-6
	mega    = 1e6
	mebi    = 1 << 20
)

// Domains that several quantities share. Drivers report a little more than all of the time for a
// busy unit, since the two clocks of a ratio differ; everything above 1.05 is no such rounding.
var (
	ratio   = Domain{Most: 1.05}
	clock   = Domain{Most: 100e9}                    // Hz
	size    = Domain{Most: 1 << 50}                  // By
	traffic = Domain{Most: 1 << 64, PerSecond: 1e15} // By
	events  = Domain{Most: 1 << 64, PerSecond: 1e9}
	boolean = Domain{Most: 1 << 32}
	mask    = Domain{Most: 1<<64 - 1<<11} // the largest float64 below 2^64
)

var catalogue = [Num]Info{
	Energy: { // J, cumulative from any origin; whole board
		Name: "energy", Kind: Counter, Domain: Domain{Most: 1 << 64, PerSecond: 1e6},
		Metric: Metric{Name: semconv.HWEnergyName, Float: true, Also: Exported{Name: "hw.gpu.energy.consumed"}},
		DCGM: []Field{
			{ID: 156, Names: []string{"DEV_TOTAL_ENERGY_CONSUMPTION"}, Scale: milli, Pace: Fast},
			{ID: 1611, Names: []string{"DEV_GPU_ENERGY_JOULES_TOTAL"}, Rank: 1, Pace: Fast, Since46: true},
		},
		NVML: Call{Function: "nvmlDeviceGetTotalEnergyConsumption", Scale: milli, Results: 1, Wide: true, Pace: Fast},
		AMD:  []Exported{{Name: "gpu_energy_consumed", Scale: micro, Form: Totals}},
	},
	Power: { // W, whole board
		Name: "power", Domain: Domain{Most: 100_000}, Chart: true,
		Metric: Metric{Name: semconv.HWPowerName, Also: Exported{Name: "hw.gpu.power.draw"}},
		Span:   Span{Key: semconv.GPUPowerKey, Lean: true},
		DCGM: []Field{
			// NVML answers an unsupported instantaneous power with a call that succeeds and a
			// status in the field; DCGM reads the result of the call only and stores 0 W. A board
			// that is on draws more.
			{
				ID: 157, Names: []string{"DEV_POWER_USAGE_INSTANT", "DEV_BOARD_POWER_RAW_WATTS"}, Pace: Fast, Positive: true,
				Instant: true,
			},
			// a mean over up to 1 s on newer chips
			{ID: 155, Names: []string{"DEV_POWER_USAGE", "DEV_BOARD_POWER_WATTS"}, Rank: 1, Pace: Fast},
		},
		NVML: Call{
			FieldID: 186, Function: "nvmlDeviceGetPowerUsage", Scale: milli, Results: 1, Pace: Fast, // NVML_FI_DEV_POWER_INSTANT
		},
		AMD: []Exported{ // a partition without its own power sensor reports 0 W
			{Name: "gpu_package_power", Positive: true},
			{Name: "gpu_power_usage", Rank: 1, Positive: true},
			{Name: "gpu_average_package_power", Rank: 2, Positive: true},
			{Name: "gpu_power", Rank: 3, Scale: micro, Positive: true, Numbered: true},
			{Name: "gpu_power_avg", Rank: 4, Scale: micro, Positive: true, Numbered: true},
		},
	},
	Temperature: { // Cel, the chip
		Name: "temperature", Domain: Domain{Least: -100, Most: 300},
		Metric: Metric{
			Name: semconv.HWTemperatureName, Also: Exported{Name: "hw.gpu.temperature", Key: "sensor", Value: "die"},
		},
		Span: Span{Key: semconv.GPUTemperatureMaxKey, Max: true}, Chart: true,
		DCGM: []Field{{ID: 150, Names: []string{"DEV_GPU_TEMP", "DEV_GPU_TEMP_CELSIUS"}, Pace: Medium}},
		NVML: Call{Function: "nvmlDeviceGetTemperature", Args: []int{nvmlTemperatureGPU}, Results: 1, Pace: Fast},
		AMD: []Exported{
			{Name: "gpu_junction_temperature"},
			{Name: "gpu_edge_temperature", Rank: 1},
			{Name: "gpu_current_temperature", Rank: 2, Scale: milli, Numbered: true},
		},
	},
	Utilization: { // ratio of time in which at least one kernel ran
		Name: "utilization", Kind: Interval, Domain: ratio, Chart: true,
		Metric: Metric{
			Name: semconv.HWGPUUtilizationName, Key: semconv.HWGPUTaskKey, Value: semconv.HWGPUTaskGeneral, Implied: true,
		},
		Span: Span{Key: semconv.GPUUtilizationKey, OwnOnly: true},
		DCGM: []Field{
			{ID: 203, Names: []string{"DEV_GPU_UTIL"}, Scale: percent, Pace: Fast},
			{Names: []string{"DEV_GPU_UTIL_RATIO"}, RatioOrPercent: true}, // 1613
			// replaces 203, which instances and divided boards do not have
			{
				ID: 1001, Names: []string{"PROF_GR_ENGINE_ACTIVE", "PROF_GR_ENGINE_UTIL_RATIO"}, Rank: 1, Pace: Profiling,
				Levels: GPUInstance | ComputeInstance,
			},
		},
		NVML: Call{Function: "nvmlDeviceGetUtilizationRates", Scale: percent, Results: 1, Pace: Fast},
		GPM:  GPM{ID: 1, Scale: percent, InstanceOnly: true},
		AMD: []Exported{
			{Name: "gpu_gfx_activity", Scale: percent},
			{Name: "gpu_use_percent", Rank: 1, Scale: percent, Numbered: true},
		},
	},
	SMUtilization: { // ratio of time in which an SM had a resident warp, averaged over all SMs
		Name: "sm_utilization", Kind: Interval, Domain: ratio, Metric: Metric{Name: semconv.GPUSMUtilizationName},
		Span: Span{Key: semconv.GPUSMUtilizationKey, OwnOnly: true, Lean: true}, Chart: true,
		DCGM: []Field{{
			ID: 1002, Names: []string{"PROF_SM_ACTIVE", "PROF_SM_UTIL_RATIO"}, Pace: Profiling,
			Levels: GPUInstance | ComputeInstance,
		}},
		GPM: GPM{ID: 2, Scale: percent},
	},
	SMOccupancy: { // ratio of resident warps to those possible
		Name: "sm_occupancy", Kind: Interval, Domain: ratio, Metric: Metric{Name: semconv.GPUSMOccupancyName},
		Span: Span{Key: semconv.GPUSMOccupancyKey, OwnOnly: true},
		DCGM: []Field{{
			ID: 1003, Names: []string{"PROF_SM_OCCUPANCY", "PROF_SM_OCCUPANCY_RATIO"}, Pace: Profiling,
			Levels: GPUInstance | ComputeInstance,
		}},
		GPM: GPM{ID: 3, Scale: percent},
		AMD: []Exported{{Name: "gpu_prof_occupancy_percent", Scale: percent}},
	},
	TensorUtilization: { // ratio of cycles in which the tensor pipe was active
		Name: "tensor_utilization", Kind: Interval, Domain: ratio, Metric: Metric{Name: semconv.GPUTensorUtilizationName},
		Span: Span{Key: semconv.GPUTensorUtilizationKey, OwnOnly: true, Lean: true}, Chart: true,
		DCGM: []Field{{
			ID: 1004, Names: []string{"PROF_PIPE_TENSOR_ACTIVE", "PROF_TENSOR_UTIL_RATIO"}, Pace: Profiling,
			Levels: GPUInstance | ComputeInstance,
		}},
		GPM: GPM{ID: 5, Scale: percent},
		AMD: []Exported{{Name: "gpu_prof_tensor_active_percent", Scale: percent}},
	},
	DRAMUtilization: { // ratio of time in which the memory interface was active
		Name: "dram_utilization", Kind: Interval, Domain: ratio, Metric: Metric{Name: semconv.GPUDRAMUtilizationName},
		Span: Span{Key: semconv.GPUDRAMUtilizationKey, OwnOnly: true, Lean: true}, Chart: true,
		DCGM: []Field{{
			ID: 1005, Names: []string{"PROF_DRAM_ACTIVE", "PROF_DRAM_UTIL_RATIO"}, Pace: Profiling, Levels: GPUInstance,
		}},
		GPM: GPM{ID: 10, Scale: percent},
	},
	ClockSM: { // Hz
		Name: "clock_sm", Domain: clock, Chart: true,
		Metric: Metric{Name: semconv.GPUClockFrequencyName, Key: semconv.GPUClockTypeKey, Value: semconv.GPUClockTypeSM},
		Span:   Span{Key: semconv.GPUClockSMFrequencyKey},
		DCGM: []Field{
			{ID: 100, Names: []string{"DEV_SM_CLOCK"}, Scale: mega, Pace: Fast},
			{Names: []string{"DEV_SM_CLOCK_HERTZ"}},
		},
		NVML: Call{
			Function: "nvmlDeviceGetClockInfo", Scale: mega, Args: []int{nvmlClockSM}, Results: 1, Pace: Fast,
		},
		AMD: []Exported{
			{Name: "gpu_clock", Scale: mega, Key: "clock_type", Value: "system", Highest: true},
			{Name: "gpu_SCLK", Rank: 1, Numbered: true},
		},
	},
	ClockMemory: { // Hz
		Name: "clock_memory", Domain: clock,
		Metric: Metric{Name: semconv.GPUClockFrequencyName, Key: semconv.GPUClockTypeKey, Value: semconv.GPUClockTypeMemory},
		Span:   Span{Key: semconv.GPUClockMemoryFrequencyKey},
		DCGM: []Field{
			{ID: 101, Names: []string{"DEV_MEM_CLOCK"}, Scale: mega, Pace: Medium},
			{Names: []string{"DEV_MEMORY_CLOCK_HERTZ"}},
		},
		NVML: Call{
			Function: "nvmlDeviceGetClockInfo", Scale: mega, Args: []int{nvmlClockMemory}, Results: 1, Pace: Fast,
		},
		AMD: []Exported{
			{Name: "gpu_clock", Scale: mega, Key: "clock_type", Value: "memory", Highest: true},
			{Name: "gpu_MCLK", Rank: 1, Numbered: true},
		},
	},
	MemoryUsed: { // By
		Name: "memory_used", Domain: size, Metric: Metric{Name: semconv.HWGPUMemoryUsageName}, Chart: true,
		DCGM: []Field{
			{ID: 252, Names: []string{"DEV_FB_USED"}, Scale: mebi, Pace: Fast, Levels: GPUInstance},
			{Names: []string{"DEV_FB_USED_BYTES"}, Levels: GPUInstance}, // 1627
		},
		AMD: []Exported{{Name: "gpu_used_vram", Scale: mebi}},
	},
	Throttle: { // the bits of NVML's clock event reasons; idle is removed
		Name: "throttle", Kind: Mask, Domain: mask,
		DCGM: []Field{{
			ID: 112, Names: []string{"DEV_CLOCK_THROTTLE_REASONS", "DEV_CLOCKS_EVENT_REASONS"}, Pace: Fast,
		}},
		NVML: Call{Function: "nvmlDeviceGetCurrentClocksThrottleReasons", Results: 1, Wide: true, Pace: Fast},
	},
	PCIeTransmit: { // By, cumulative, device to host
		Name: "pcie_transmit", Kind: Counter, Domain: traffic,
		Metric: Metric{
			Name: semconv.GPUPCIeIOName, Key: semconv.NetworkIODirectionKey, Value: semconv.NetworkIODirectionTransmit,
		},
		DCGM: []Field{
			{
				ID: 1091, Names: []string{"PROF_PCIE_TX_BYTES_TOTAL"}, Form: Totals, Pace: Profiling, Since46: true, Extra: true,
			},
			{ID: 1009, Names: []string{"PROF_PCIE_TX_BYTES"}, Rank: 1, Form: Rate, Pace: Profiling},
		},
		GPM: GPM{ID: 20, Scale: mebi, Form: Rate},
	},
	PCIeReceive: { // By, cumulative, host to device
		Name: "pcie_receive", Kind: Counter, Domain: traffic,
		Metric: Metric{
			Name: semconv.GPUPCIeIOName, Key: semconv.NetworkIODirectionKey, Value: semconv.NetworkIODirectionReceive,
		},
		DCGM: []Field{
			{
				ID: 1092, Names: []string{"PROF_PCIE_RX_BYTES_TOTAL"}, Form: Totals, Pace: Profiling, Since46: true, Extra: true,
			},
			{ID: 1010, Names: []string{"PROF_PCIE_RX_BYTES"}, Rank: 1, Form: Rate, Pace: Profiling},
		},
		GPM: GPM{ID: 21, Scale: mebi, Form: Rate},
	},
	NVLinkTransmit: { // By, cumulative, all links
		Name: "nvlink_transmit", Kind: Counter, Domain: traffic,
		Metric: Metric{
			Name: semconv.GPUNVLinkIOName, Key: semconv.NetworkIODirectionKey, Value: semconv.NetworkIODirectionTransmit,
		},
		DCGM: []Field{{ID: 1011, Names: []string{"PROF_NVLINK_TX_BYTES"}, Form: Rate, Pace: Profiling}},
		GPM:  GPM{ID: 61, Scale: mebi, Form: Rate},
	},
	NVLinkReceive: { // By, cumulative, all links
		Name: "nvlink_receive", Kind: Counter, Domain: traffic,
		Metric: Metric{
			Name: semconv.GPUNVLinkIOName, Key: semconv.NetworkIODirectionKey, Value: semconv.NetworkIODirectionReceive,
		},
		DCGM: []Field{{ID: 1012, Names: []string{"PROF_NVLINK_RX_BYTES"}, Form: Rate, Pace: Profiling}},
		GPM:  GPM{ID: 60, Scale: mebi, Form: Rate},
	},

	MemoryLimit: { // By
		Name: "memory_limit", Domain: size, Metric: Metric{Name: semconv.HWGPUMemoryLimitName, NoPod: true},
		DCGM: []Field{{ID: 250, Scale: mebi, Pace: Slow, Levels: GPUInstance}},
	},
	MemoryReserved: { // By, reserved by the driver, part of neither used nor free
		Name: "memory_reserved", Domain: size, DCGM: []Field{{ID: 253, Scale: mebi, Pace: Slow}},
	},
	MemoryTemperature: { // Cel, of the stacks of HBM; boards with GDDR have none
		Name: "memory_temperature", Domain: Domain{Least: -100, Most: 300},
		Metric: Metric{Name: semconv.GPUMemoryTemperatureName},
		DCGM:   []Field{{ID: 140, Names: []string{"DEV_MEMORY_TEMP", "DEV_MEMORY_TEMP_CELSIUS"}, Pace: Slow, Positive: true}},
		NVML:   Call{FieldID: 82, Pace: Slow}, // NVML_FI_DEV_MEMORY_TEMP
		AMD:    []Exported{{Name: "gpu_memory_temperature"}},
	},
	MemoryActivity: { // ratio of time in which device memory was read or written; the only signal of it without profiling
		Name: "memory_activity", Kind: Interval, Domain: ratio, Metric: Metric{Name: semconv.GPUMemoryActivityName},
		DCGM: []Field{{ID: 204, Scale: percent, Pace: Slow}},
		NVML: Call{Function: "nvmlDeviceGetUtilizationRates", Scale: percent, Results: 1, Second: true, Pace: Slow},
	},
	PowerLimit: { // W, the lowest of all limits
		Name: "power_limit", Domain: Domain{Most: 100_000}, Metric: Metric{Name: semconv.GPUPowerLimitName, NoPod: true},
		DCGM: []Field{{
			ID: 164, Names: []string{"DEV_ENFORCED_POWER_LIMIT", "DEV_BOARD_POWER_LIMIT_ENFORCED_WATTS"}, Pace: Slow,
			Positive: true,
		}},
		NVML: Call{Function: "nvmlDeviceGetEnforcedPowerLimit", Scale: milli, Results: 1, Pace: Slow},
	},
	FanSpeed: { // ratio of the intended speed to the highest; the fan may be blocked. Boards without fans have none.
		Name: "fan_speed", Domain: Domain{Most: 2}, Metric: Metric{Name: semconv.HWFanSpeedRatioName, NoPod: true},
		DCGM: []Field{{ID: 191, Scale: percent, Pace: Slow}},
		NVML: Call{Function: "nvmlDeviceGetFanSpeed", Scale: percent, Results: 1, Pace: Slow},
	},
	EncoderUtilization: {
		Name: "encoder_utilization", Kind: Interval, Domain: ratio,
		Metric: Metric{Name: semconv.HWGPUUtilizationName, Key: semconv.HWGPUTaskKey, Value: semconv.HWGPUTaskEncoder},
		DCGM:   []Field{{ID: 206, Scale: percent, Pace: Slow}},
		NVML:   Call{Function: "nvmlDeviceGetEncoderUtilization", Scale: percent, Results: 2, Pace: Slow},
	},
	DecoderUtilization: {
		Name: "decoder_utilization", Kind: Interval, Domain: ratio,
		Metric: Metric{Name: semconv.HWGPUUtilizationName, Key: semconv.HWGPUTaskKey, Value: semconv.HWGPUTaskDecoder},
		DCGM:   []Field{{ID: 207, Scale: percent, Pace: Slow}},
		NVML:   Call{Function: "nvmlDeviceGetDecoderUtilization", Scale: percent, Results: 2, Pace: Slow},
	},
	ClockGraphics: { // Hz
		Name: "clock_graphics", Domain: clock,
		Metric: Metric{
			Name: semconv.GPUClockFrequencyName, Key: semconv.GPUClockTypeKey, Value: semconv.GPUClockTypeGraphics,
		},
		NVML: Call{
			Function: "nvmlDeviceGetClockInfo", Scale: mega, Args: []int{nvmlClockGraphics}, Results: 1, Pace: Slow,
		},
	},
	ClockVideo: { // Hz
		Name: "clock_video", Domain: clock,
		Metric: Metric{Name: semconv.GPUClockFrequencyName, Key: semconv.GPUClockTypeKey, Value: semconv.GPUClockTypeVideo},
		DCGM:   []Field{{ID: 102, Scale: mega, Pace: Slow}},
		NVML: Call{
			Function: "nvmlDeviceGetClockInfo", Scale: mega, Args: []int{nvmlClockVideo}, Results: 1, Pace: Slow,
		},
	},
	PipeFP64:       pipe("pipe_fp64", semconv.GPUPipeFp64, 11, Field{ID: 1006}),
	PipeFP32:       pipe("pipe_fp32", semconv.GPUPipeFp32, 12, Field{ID: 1007}),
	PipeFP16:       pipe("pipe_fp16", semconv.GPUPipeFp16, 13, Field{ID: 1008}),
	PipeInt:        pipe("pipe_int", semconv.GPUPipeInt, 4),
	PipeTensorDFMA: pipe("pipe_tensor_dfma", semconv.GPUPipeTensorDfma, 6),
	PipeTensorHMMA: pipe("pipe_tensor_hmma", semconv.GPUPipeTensorHmma, 7),
	PipeTensorIMMA: pipe("pipe_tensor_imma", semconv.GPUPipeTensorImma, 9),
	ECCCorrected: errorCount("ecc_corrected", semconv.ErrorTypeECCCorrected, 310,
		Call{Function: "nvmlDeviceGetTotalEccErrors", Args: []int{0, nvmlVolatileECC}, Results: 1, Wide: true}),
	ECCUncorrected: errorCount("ecc_uncorrected", semconv.ErrorTypeECCUncorrected, 311,
		Call{Function: "nvmlDeviceGetTotalEccErrors", Args: []int{1, nvmlVolatileECC}, Results: 1, Wide: true}),
	PCIeReplays: errorCount("pcie_replays", semconv.ErrorTypePCIeReplay, 202,
		Call{Function: "nvmlDeviceGetPcieReplayCounter", Results: 1}),
	NVLinkCRC:        errorCount("nvlink_crc", semconv.ErrorTypeNVLinkCrc, 409, Call{}),
	NVLinkReplays:    errorCount("nvlink_replays", semconv.ErrorTypeNVLinkReplay, 429, Call{}),
	NVLinkRecoveries: errorCount("nvlink_recoveries", semconv.ErrorTypeNVLinkRecovery, 439, Call{}),
	RetiredCorrected: errorCount("retired_corrected", semconv.ErrorTypeRetiredPageCorrected, 390,
		Call{Function: "nvmlDeviceGetRetiredPages", Args: []int{0}}),
	RetiredUncorrected: errorCount("retired_uncorrected", semconv.ErrorTypeRetiredPageUncorrected, 391,
		Call{Function: "nvmlDeviceGetRetiredPages", Args: []int{1}}),
	RemappedCorrected: errorCount("remapped_corrected", semconv.ErrorTypeRowRemapCorrected, 394,
		Call{Function: "nvmlDeviceGetRemappedRows", Results: 4}),
	RemappedUncorrected: errorCount("remapped_uncorrected", semconv.ErrorTypeRowRemapUncorrected, 393,
		Call{Function: "nvmlDeviceGetRemappedRows", Results: 4, Use: 1}),
	RemapFailed: { // 0 or 1
		Name: "remap_failed", Domain: boolean, DCGM: []Field{{ID: 395, Pace: Slow}},
		NVML: Call{Function: "nvmlDeviceGetRemappedRows", Results: 4, Use: 3, Pace: Slow},
	},
	RetirePending: { // pages waiting for a reset
		Name: "retire_pending", Domain: boolean, DCGM: []Field{{ID: 392, Pace: Slow}},
	},
	RemapPending: { // 0 or 1: a row waits for a reset
		Name: "remap_pending", Domain: boolean, DCGM: []Field{{ID: 396, Pace: Slow}},
		NVML: Call{Function: "nvmlDeviceGetRemappedRows", Results: 4, Use: 2, Pace: Slow},
	},
	XIDs: { // events since the source was opened; sources count them
		Name: "xids", Kind: Counter, Domain: events,
		Metric: Metric{Name: semconv.HWErrorsName, Key: semconv.ErrorTypeKey, Value: semconv.ErrorTypeXID},
	},
}

// Arguments of NVML's functions, by nvml.h.
const (
	nvmlClockGraphics  = 0
	nvmlClockSM        = 1
	nvmlClockMemory    = 2
	nvmlClockVideo     = 3
	nvmlTemperatureGPU = 0
	nvmlVolatileECC    = 0
)

// pipe returns the row of an execution pipe.
func pipe(name, value string, gpm uint32, dcgm ...Field) Info {
	for i := range dcgm {
		dcgm[i].Pace, dcgm[i].Levels = Profiling, GPUInstance|ComputeInstance
	}
	return Info{
		Name: name, Kind: Interval, Domain: ratio,
		Metric: Metric{Name: semconv.GPUPipeUtilizationName, Key: semconv.GPUPipeKey, Value: value, Off: true},
		DCGM:   dcgm, GPM: GPM{ID: gpm, Scale: percent},
	}
}

// errorCount returns the row of a kind of errors.
func errorCount(name, value string, dcgm uint16, nvml Call) Info {
	if nvml.Function != "" {
		nvml.Pace = Slow
	}
	return Info{
		Name: name, Kind: Counter, Domain: events,
		Metric: Metric{Name: semconv.HWErrorsName, Key: semconv.ErrorTypeKey, Value: value},
		DCGM:   []Field{{ID: dcgm, Pace: Slow}}, NVML: nvml,
	}
}
