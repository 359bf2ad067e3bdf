// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpureceiver

import (
	"os"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/otelgpu/otelgpu/extension/gpusamplesextension"
	"github.com/otelgpu/otelgpu/semconv"
)

// host is the machine that the receiver runs on: what device data from here belongs to.
type host struct{ name, id string }

func thisHost() host {
	name, _ := os.Hostname()
	return host{name: name, id: machineID("/etc/machine-id", "/var/lib/dbus/machine-id")}
}

// machineID is host.id as the semantic conventions say for non-containerised Linux; empty where there is none.
func machineID(paths ...string) string {
	for _, p := range paths {
		if b, err := os.ReadFile(p); err == nil {
			if id := strings.TrimSpace(string(b)); id != "" {
				return id
			}
		}
	}
	return ""
}

func (h host) fill(res pcommon.Resource) {
	putKnown(res.Attributes(), string(semconv.HostNameKey), h.name)
	putKnown(res.Attributes(), string(semconv.HostIDKey), h.id)
}

// identify writes the identity that every data point and log record of a device carries.
func identify(m pcommon.Map, d *gpusamplesextension.Device) {
	m.EnsureCapacity(12)
	m.PutStr(string(semconv.HWIDKey), d.ID)
	m.PutStr(string(semconv.HWTypeKey), semconv.HWTypeGPU)
	putKnown(m, string(semconv.HWModelKey), d.Model)
	putKnown(m, string(semconv.HWNameKey), d.Name)
	putKnown(m, string(semconv.HWVendorKey), d.Vendor)
	putKnown(m, string(semconv.HWDriverVersionKey), d.DriverVersion)
	putKnown(m, string(semconv.HWParentKey), d.Parent)
	putKnown(m, string(semconv.GPUPCIBDFKey), gpusamplesextension.NormalizePCI(d.PCIBDF))
	if d.Ordinal >= 0 {
		m.PutInt(string(semconv.GPUDeviceOrdinalKey), int64(d.Ordinal))
	}
	putKnown(m, string(semconv.GPUMeasurementSourceKey), d.Source)
}

func putKnown(m pcommon.Map, key, value string) {
	if value != "" {
		m.PutStr(key, value)
	}
}
