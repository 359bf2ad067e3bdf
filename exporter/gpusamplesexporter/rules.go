// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpusamplesexporter

import (
	"strconv"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/otelgpu/otelgpu/extension/gpusamplesextension"
	"github.com/otelgpu/otelgpu/semconv"
)

// rule says what a metric is to gpu_samples.
type rule struct {
	field gpusamplesextension.Field
	scale float64
	form  form
	// rank orders metrics of one field: once a device has given one of a lower rank, higher ones are ignored.
	rank uint8
	// attribute that a point must have with the value; the point counts too when it has no such attribute and any is
	// set.
	key, value string
	any        bool
	positive   bool // 0 is what is written for a value that the device does not have
}

type form uint8

const (
	formPlain   form = iota // a value of the field
	formRate                // bytes per second over the time since the point before: integrated
	formCounter             // a counter
	formXID                 // the number of the last XID; a change is an event
)

const (
	percent = 0.01
	milli   = 1e-3
	micro   = 1e-6
	mega    = 1e6
	mebi    = 1 << 20
)

// dcgmRules are the rules by DCGM field name without the prefix DCGM_FI_, in the units of the field. They include the
// names of DCGM 4.6 and later and the older ones.
var dcgmRules = map[string]rule{
	"DEV_GPU_UTIL":                 {field: gpusamplesextension.Utilization, scale: percent},
	"DEV_GPU_UTIL_RATIO":           {field: gpusamplesextension.Utilization, scale: percent}, // still 0 to 100
	"PROF_GR_ENGINE_ACTIVE":        {field: gpusamplesextension.Utilization, scale: 1, rank: 1},
	"PROF_GR_ENGINE_UTIL_RATIO":    {field: gpusamplesextension.Utilization, scale: 1, rank: 1},
	"DEV_POWER_USAGE_INSTANT":      {field: gpusamplesextension.Power, scale: 1},
	"DEV_BOARD_POWER_RAW_WATTS":    {field: gpusamplesextension.Power, scale: 1},
	"DEV_POWER_USAGE":              {field: gpusamplesextension.Power, scale: 1, rank: 1},
	"DEV_BOARD_POWER_WATTS":        {field: gpusamplesextension.Power, scale: 1, rank: 1},
	"DEV_TOTAL_ENERGY_CONSUMPTION": {field: gpusamplesextension.Energy, scale: milli},
	"DEV_GPU_ENERGY_JOULES_TOTAL":  {field: gpusamplesextension.Energy, scale: 1, rank: 1},
	"DEV_GPU_TEMP":                 {field: gpusamplesextension.Temperature, scale: 1},
	"DEV_SM_CLOCK":                 {field: gpusamplesextension.ClockSM, scale: mega},
	"DEV_MEM_CLOCK":                {field: gpusamplesextension.ClockMemory, scale: mega},
	"DEV_SM_CLOCK_HERTZ":           {field: gpusamplesextension.ClockSM, scale: 1},
	"DEV_MEMORY_CLOCK_HERTZ":       {field: gpusamplesextension.ClockMemory, scale: 1},
	"DEV_FB_USED":                  {field: gpusamplesextension.MemoryUsed, scale: mebi},
	"DEV_CLOCK_THROTTLE_REASONS":   {field: gpusamplesextension.Throttle, scale: 1},
	"DEV_CLOCKS_EVENT_REASONS":     {field: gpusamplesextension.Throttle, scale: 1},
	"DEV_XID_ERRORS":               {form: formXID},
	"DEV_XID_ERROR":                {form: formXID},
	"PROF_SM_ACTIVE":               {field: gpusamplesextension.SMUtilization, scale: 1},
	"PROF_SM_UTIL_RATIO":           {field: gpusamplesextension.SMUtilization, scale: 1},
	"PROF_SM_OCCUPANCY":            {field: gpusamplesextension.SMOccupancy, scale: 1},
	"PROF_SM_OCCUPANCY_RATIO":      {field: gpusamplesextension.SMOccupancy, scale: 1},
	"PROF_PIPE_TENSOR_ACTIVE":      {field: gpusamplesextension.TensorUtilization, scale: 1},
	"PROF_TENSOR_UTIL_RATIO":       {field: gpusamplesextension.TensorUtilization, scale: 1},
	"PROF_DRAM_ACTIVE":             {field: gpusamplesextension.DRAMUtilization, scale: 1},
	"PROF_DRAM_UTIL_RATIO":         {field: gpusamplesextension.DRAMUtilization, scale: 1},
	"PROF_PCIE_TX_BYTES":           {field: gpusamplesextension.PCIeTransmit, scale: 1, form: formRate, rank: 1},
	"PROF_PCIE_RX_BYTES":           {field: gpusamplesextension.PCIeReceive, scale: 1, form: formRate, rank: 1},
	"PROF_PCIE_TX_BYTES_TOTAL":     {field: gpusamplesextension.PCIeTransmit, scale: 1, form: formCounter},
	"PROF_PCIE_RX_BYTES_TOTAL":     {field: gpusamplesextension.PCIeReceive, scale: 1, form: formCounter},
	"PROF_NVLINK_TX_BYTES":         {field: gpusamplesextension.NVLinkTransmit, scale: 1, form: formRate},
	"PROF_NVLINK_RX_BYTES":         {field: gpusamplesextension.NVLinkReceive, scale: 1, form: formRate},
}

const dcgmPrefix = "DCGM_FI_"

// amdRules are by the names of AMD's device-metrics-exporter, in its units, without the prefix that can be configured
// there. A partition that has no power sensor of its own reports 0 W.
var amdRules = map[string][]rule{
	"gpu_package_power":         {{field: gpusamplesextension.Power, scale: 1, positive: true}},
	"gpu_power_usage":           {{field: gpusamplesextension.Power, scale: 1, rank: 1, positive: true}},
	"gpu_average_package_power": {{field: gpusamplesextension.Power, scale: 1, rank: 2, positive: true}},
	"gpu_energy_consumed":       {{field: gpusamplesextension.Energy, scale: micro, form: formCounter}},
	"gpu_gfx_activity":          {{field: gpusamplesextension.Utilization, scale: percent}},
	"gpu_junction_temperature":  {{field: gpusamplesextension.Temperature, scale: 1}},
	"gpu_edge_temperature":      {{field: gpusamplesextension.Temperature, scale: 1, rank: 1}},
	"gpu_used_vram":             {{field: gpusamplesextension.MemoryUsed, scale: mebi}},
	"gpu_clock": {
		{field: gpusamplesextension.ClockSM, scale: mega, key: "clock_type", value: "system"},
		{field: gpusamplesextension.ClockMemory, scale: mega, key: "clock_type", value: "memory"},
	},
}

const amdPrefix = "gpu_"

// otelRules are by name of the semantic conventions, in base units.
var otelRules = map[string][]rule{
	semconv.HWEnergyName:      {{field: gpusamplesextension.Energy, scale: 1, form: formCounter}},
	semconv.HWPowerName:       {{field: gpusamplesextension.Power, scale: 1}},
	semconv.HWTemperatureName: {{field: gpusamplesextension.Temperature, scale: 1}},
	semconv.HWGPUUtilizationName: {{
		field: gpusamplesextension.Utilization, scale: 1,
		key: string(semconv.HWGPUTaskKey), value: semconv.HWGPUTaskGeneral, any: true,
	}},
	semconv.HWGPUMemoryUsageName:     {{field: gpusamplesextension.MemoryUsed, scale: 1}},
	semconv.GPUSMUtilizationName:     {{field: gpusamplesextension.SMUtilization, scale: 1}},
	semconv.GPUSMOccupancyName:       {{field: gpusamplesextension.SMOccupancy, scale: 1}},
	semconv.GPUTensorUtilizationName: {{field: gpusamplesextension.TensorUtilization, scale: 1}},
	semconv.GPUDRAMUtilizationName:   {{field: gpusamplesextension.DRAMUtilization, scale: 1}},
	semconv.GPUClockFrequencyName: either(string(semconv.GPUClockTypeKey), formPlain,
		gpusamplesextension.ClockSM, semconv.GPUClockTypeSM, gpusamplesextension.ClockMemory, semconv.GPUClockTypeMemory),
	semconv.GPUPCIeIOName:   directions(gpusamplesextension.PCIeTransmit, gpusamplesextension.PCIeReceive),
	semconv.GPUNVLinkIOName: directions(gpusamplesextension.NVLinkTransmit, gpusamplesextension.NVLinkReceive),
}

func directions(transmit, receive gpusamplesextension.Field) []rule {
	return either(string(semconv.NetworkIODirectionKey), formCounter, transmit, semconv.NetworkIODirectionTransmit,
		receive, semconv.NetworkIODirectionReceive)
}

// either is of a metric whose points are of one field or another, by the value of an attribute.
func either(key string, f form, one gpusamplesextension.Field, is string, other gpusamplesextension.Field,
	otherIs string,
) []rule {
	return []rule{
		{field: one, scale: 1, form: f, key: key, value: is}, {field: other, scale: 1, form: f, key: key, value: otherIs},
	}
}

// rulesOf finds the rules of a metric. A suffix that a Prometheus exporter added (_total) is ignored.
func rulesOf(name string) ([]rule, bool) {
	if rest, ok := strings.CutPrefix(name, dcgmPrefix); ok {
		r, ok := dcgmRules[rest]
		if !ok {
			r, ok = dcgmRules[strings.TrimSuffix(rest, "_total")]
		}
		return []rule{r}, ok
	}
	if r, ok := otelRules[name]; ok {
		return r, true
	}
	if i := strings.Index(name, amdPrefix); i >= 0 {
		r, ok := amdRules[name[i:]]
		return r, ok
	}
	return nil, false
}

func (r *rule) matches(attrs pcommon.Map) bool {
	if r.key == "" {
		return true
	}
	v, ok := attrs.Get(r.key)
	if !ok {
		return r.any
	}
	return v.Str() == r.value
}

// describe returns the device of a data point. It reads the labels of dcgm-exporter (4.x, 3.x and 2.x: UUID; 1.x: uuid)
// and of AMD's device-metrics-exporter (gpu_uuid if configured, else serial_number), and the attributes of the semantic
// conventions. The resource supplies what the point lacks.
func (c *Config) describe(point, resource pcommon.Map) (gpusamplesextension.Device, bool) {
	get := func(keys ...string) string {
		for _, m := range [...]pcommon.Map{point, resource} {
			for _, k := range keys {
				if v, ok := m.Get(k); ok && v.AsString() != "" {
					return v.AsString()
				}
			}
		}
		return ""
	}
	d := gpusamplesextension.Device{
		ID:            get(string(semconv.HWIDKey), "UUID", "uuid", "gpu_uuid"),
		Parent:        get(string(semconv.HWParentKey)),
		Name:          get(string(semconv.HWNameKey)),
		Model:         get(string(semconv.HWModelKey), "modelName", "device_name", "card_model"),
		Vendor:        get(string(semconv.HWVendorKey)),
		DriverVersion: get(string(semconv.HWDriverVersionKey), "DCGM_FI_DRIVER_VERSION"),
		PCIBDF:        get(string(semconv.GPUPCIBDFKey), "pci_bus_id"),
		HostName:      get("Hostname", "hostname", string(semconv.HostNameKey)),
		HostID:        get(string(semconv.HostIDKey)),
		Source:        get(string(semconv.GPUMeasurementSourceKey)),
		Ordinal:       -1,
	}
	amd := get("gpu_id") != "" && get("card_model", "serial_number") != ""
	if serial := get("serial_number"); amd && d.ID == "" && serial != "" {
		d.ID = serial
		if p := get("gpu_partition_id"); p != "" && p != "0" && p != "NA" {
			d.ID += "/" + p // partitions of a board have its serial number
		}
	}
	if d.ID == "" {
		return d, false
	}
	index := get(string(semconv.GPUDeviceOrdinalKey), "gpu", "gpu_id")
	if n, err := strconv.Atoi(index); err == nil {
		d.Ordinal = n
	}
	if get(string(semconv.HWIDKey)) != "" {
		return d, true
	}
	if d.Name == "" && index != "" {
		d.Name = "gpu" + index
	}
	if amd {
		d.Vendor = "AMD"
	} else { // from dcgm-exporter
		d.Vendor, d.Source = "NVIDIA", semconv.GPUMeasurementSourceDcgm
		if instance := get("GPU_I_ID"); instance != "" {
			d.Parent = d.ID
			d.MIG.Profile = get("GPU_I_PROFILE")
			d.Name += ":" + instance
			d.Ordinal = -1
			d.ID = c.instanceID(d.Parent, instance)
		}
	}
	return d, true
}

// instanceID is the ID of a MIG instance, of which dcgm-exporter says only the number.
func (c *Config) instanceID(board, instance string) string {
	if id, ok := c.Instances[board+"/"+instance]; ok {
		return id
	}
	return "MIG-" + strings.TrimPrefix(board, "MIG-") + "/" + instance + "/0"
}
