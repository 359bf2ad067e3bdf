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

// describe finds the device of a data point. Labels of dcgm-exporter (4.x, 3.x and 2.x: UUID; 1.x: uuid) and the
// attributes of the semantic conventions are understood; the resource fills in what the point does not say.
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
		ID:            get(string(semconv.HWIDKey), "UUID", "uuid"),
		Parent:        get(string(semconv.HWParentKey)),
		Name:          get(string(semconv.HWNameKey)),
		Model:         get(string(semconv.HWModelKey), "modelName", "device_name"),
		Vendor:        get(string(semconv.HWVendorKey)),
		DriverVersion: get(string(semconv.HWDriverVersionKey), "DCGM_FI_DRIVER_VERSION"),
		PCIBDF:        get(string(semconv.GPUPCIBDFKey), "pci_bus_id"),
		HostName:      get("Hostname", string(semconv.HostNameKey)),
		HostID:        get(string(semconv.HostIDKey)),
		Source:        get(string(semconv.GPUMeasurementSourceKey)),
		Ordinal:       -1,
	}
	if d.ID == "" {
		return d, false
	}
	index := get(string(semconv.GPUDeviceOrdinalKey), "gpu")
	if n, err := strconv.Atoi(index); err == nil {
		d.Ordinal = n
	}
	if get(string(semconv.HWIDKey)) == "" { // from dcgm-exporter
		if d.Name == "" && index != "" {
			d.Name = "gpu" + index
		}
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
