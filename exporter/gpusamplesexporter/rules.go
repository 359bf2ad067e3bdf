// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpusamplesexporter

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/gpuquantity"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/semconv"
)

// rule states how a point of a metric becomes a value of a quantity.
type rule struct {
	field gpuquantity.Quantity
	scale float64
	form  gpuquantity.Form
	// rank orders metrics of one field: once a device has given one of a lower rank, higher ones
	// are ignored.
	rank uint8
	// A point must have the attribute key with the value; without the attribute it counts if any is
	// set.
	key, value string
	any        bool
	positive   bool   // the exporter writes 0 for values that the device does not have
	xid        bool   // the number of the last XID; a change is an event
	label      string // that the point must have, which is the number of the device; such exporters write -1 for unknown
	highest    bool   // of several points of one time
	either     bool   // a ratio or, in exporters with DCGM 4.6, a percentage
	own        bool   // a MIG instance measures it; other values of an instance are copies of its board's
	part       bool   // of a process, never of the device
	instant    bool   // power that is not a mean of a second
}

// rules are by name of metric: fields of dcgm-exporter, metrics of AMD's exporter without their
// configurable prefix, and metrics of the semantic conventions.
var dcgmRules, amdRules, otelRules = func() (dcgm, amd, otel map[string][]rule) {
	dcgm = map[string][]rule{"DEV_XID_ERRORS": {{xid: true}}, "DEV_XID_ERROR": {{xid: true}}}
	amd, otel = map[string][]rule{}, map[string][]rule{}
	for _, q := range gpuquantity.All() {
		if !q.HasRing() {
			continue
		}
		info := q.Info()
		own := slices.ContainsFunc(info.DCGM, func(f gpuquantity.Field) bool { return f.Levels != 0 })
		for _, f := range info.DCGM {
			for _, name := range f.Names {
				dcgm[name] = append(dcgm[name], rule{
					field: q, scale: f.Factor(), form: f.Form, rank: f.Rank, positive: f.Positive, either: f.RatioOrPercent,
					own: f.Levels != 0, instant: f.Instant,
				})
			}
		}
		for _, x := range info.AMD {
			r := rule{
				field: q, scale: x.Factor(), form: x.Form, rank: x.Rank, key: x.Key, value: x.Value, positive: x.Positive,
				highest: x.Highest,
			}
			if x.Numbered {
				r.label = x.Name
			}
			amd[x.Name] = append(amd[x.Name], r)
		}
		if m := &info.Metric; m.Name != "" {
			r := rule{field: q, scale: 1, key: string(m.Key), value: m.Value, any: m.Implied, own: own}
			if q.Kind() == gpuquantity.Counter {
				r.form = gpuquantity.Totals
			}
			otel[m.Name] = append(otel[m.Name], r)
			if also := &m.Also; also.Name != "" {
				r.key, r.value, r.any = also.Key, also.Value, true
				otel[also.Name] = append(otel[also.Name], r)
			}
		}
	}
	// Of the gpu receiver: its series name jobs.
	otel[semconv.GPUProcessMemoryUsageName] = []rule{{field: gpuquantity.MemoryUsed, scale: 1, own: true, part: true}}
	return dcgm, amd, otel
}()

const (
	dcgmPrefix = "DCGM_FI_"
	amdPrefix  = "gpu_"
)

// rulesOf returns the rules of a metric. A suffix added by a Prometheus exporter (_total) is
// ignored.
func rulesOf(name string) ([]rule, bool) {
	if rest, ok := strings.CutPrefix(name, dcgmPrefix); ok {
		r, ok := dcgmRules[rest]
		if !ok {
			r, ok = dcgmRules[strings.TrimSuffix(rest, "_total")]
		}
		return r, ok
	}
	if r, ok := otelRules[name]; ok {
		return r, true
	}
	if i := strings.LastIndex(name, amdPrefix); i >= 0 {
		r, ok := amdRules[name[i:]]
		return r, ok
	}
	return nil, false
}

func (r *rule) matches(attrs pcommon.Map) bool {
	if r.label != "" {
		_, ok := attrs.Get(r.label)
		return ok
	}
	if r.key == "" {
		return true
	}
	v, ok := attrs.Get(r.key)
	if !ok {
		return r.any
	}
	return v.Str() == r.value
}

// describe returns the device of a data point. It reads the labels of dcgm-exporter (4.x, 3.x and
// 2.x: UUID; 1.x: uuid) and of AMD's device-metrics-exporter (gpu_uuid if configured, otherwise
// serial_number and gpu_id, since partitions and dies of a board have one serial number), and the
// attributes of the semantic conventions. The resource supplies what the point lacks. Devices of
// amd_smi_exporter have only a number in a label; `devices` identifies them.
func (c *Config) describe(point, resource pcommon.Map, label string) (devicesamples.Device, bool) {
	get := func(keys ...string) string {
		for _, m := range [...]pcommon.Map{point, resource} {
			for _, k := range keys {
				v, ok := m.Get(k)
				if !ok {
					continue
				}
				if s := v.AsString(); s != "" && utf8.ValidString(s) { // an identity with other bytes is none
					return spanfacts.Clip(s)
				}
			}
		}
		return ""
	}
	d := devicesamples.Device{
		ID:            get(string(semconv.HWIDKey), "UUID", "uuid", "gpu_uuid"),
		Parent:        get(string(semconv.HWParentKey), "gpu.parent.uuid"),
		Name:          get(string(semconv.HWNameKey)),
		Model:         get(string(semconv.HWModelKey), "modelName", "device_name", "card_model"),
		Vendor:        get(string(semconv.HWVendorKey)),
		DriverVersion: get(string(semconv.HWDriverVersionKey), "DCGM_FI_SYSTEM_DRIVER_VERSION", "DCGM_FI_DRIVER_VERSION"),
		PCIBDF:        get(string(semconv.GPUPCIBDFKey), "pci_bus_id", "gpu.pci_address"),
		HostName:      get("Hostname", "hostname", string(semconv.HostNameKey)),
		HostID:        get(string(semconv.HostIDKey)),
		Source:        get(string(semconv.GPUMeasurementSourceKey)),
		Ordinal:       -1,
	}
	amd := get("gpu_id") != "" && get("card_model", "serial_number") != ""
	if serial := get("serial_number"); amd && d.ID == "" && serial != "" {
		d.ID = serial + "/" + get("gpu_id")
	}
	if id, ok := uniqueID(d.ID); amd && ok {
		d.ID = id
	}
	index := get(string(semconv.GPUDeviceOrdinalKey), "gpu", "gpu_id")
	if label != "" {
		index, amd = get(label), true
		d.Model = cmp.Or(d.Model, get("productname"))
		if d.ID == "" {
			d.ID = cmp.Or(c.Devices[cmp.Or(d.HostName, get("server.address"))+"/"+index], c.Devices[index])
		}
	}
	if d.ID == "" {
		return d, false
	}
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
		d.Vendor, d.Source, d.DeviceFile = "NVIDIA", semconv.GPUMeasurementSourceDcgm, get("device")
		if instance := get("GPU_I_ID"); instance != "" {
			d.Parent = d.ID
			d.MIG.Profile = get("GPU_I_PROFILE")
			d.Name += ":" + instance
			if d.DeviceFile != "" {
				d.DeviceFile += "/gi" + instance
			}
			d.Ordinal = -1
			d.ID = c.instanceID(d.Parent, instance)
		}
	}
	return d, true
}

// boardOf returns the physical GPU of an instance, as far as the instance's labels describe it.
func boardOf(d *devicesamples.Device) devicesamples.Device {
	b := devicesamples.Device{
		ID: d.Parent, Model: d.Model, Vendor: d.Vendor, DriverVersion: d.DriverVersion, PCIBDF: d.PCIBDF,
		HostName: d.HostName, HostID: d.HostID, Source: d.Source, Ordinal: -1,
	}
	b.DeviceFile, _, _ = strings.Cut(d.DeviceFile, "/")
	if name, _, ok := strings.Cut(d.Name, ":"); ok {
		b.Name = name
		if n, err := strconv.Atoi(strings.TrimPrefix(name, "gpu")); err == nil {
			b.Ordinal = n
		}
	}
	return b
}

// otherHardware reports whether a point of the semantic conventions, which name the power and the
// temperature of all hardware alike, is about hardware other than a GPU.
func otherHardware(point, resource pcommon.Map) bool {
	for _, m := range [...]pcommon.Map{point, resource} {
		if v, ok := m.Get(string(semconv.HWTypeKey)); ok && v.AsString() != "" {
			return !strings.EqualFold(v.AsString(), "gpu")
		}
	}
	return false
}

// newUnits reports whether a name of dcgm-exporter exists since DCGM 4.7 only.
func newUnits(name string) bool {
	rest, ok := strings.CutPrefix(name, dcgmPrefix+"DEV_")
	return ok && (strings.HasPrefix(rest, "FB_") && strings.HasSuffix(rest, "_BYTES") ||
		slices.Contains([]string{"MEMORY_UTIL_RATIO", "ENC_UTIL_RATIO", "DEC_UTIL_RATIO"}, rest) ||
		strings.HasSuffix(rest, "_THROTTLE_SECONDS_TOTAL") ||
		strings.HasPrefix(rest, "NVLINK_THROUGHPUT_") && strings.HasSuffix(rest, "_BYTES_PER_SECOND"))
}

// uniqueID returns the ID by which HIP knows a physical GPU, from the UUID that AMD's management
// library makes of it: a UUID of version 1 with the unique ID of 64 bits in the first byte, the low
// byte of the clock sequence and the node, the index of the partition in the second byte (0 or
// 0xff: the board) and the PCI device ID behind it (amd_smi_uuid.cc in ROCm/amdsmi). Later
// partitions keep their UUID.
func uniqueID(uuid string) (string, bool) {
	const form = "xx##xxxx-0000-1000-80xx-xxxxxxxxxxxx"
	if len(uuid) != len(form) {
		return "", false
	}
	uuid = strings.ToLower(uuid)
	for i := range form {
		switch c := uuid[i]; form[i] {
		case 'x', '#':
			if !strings.ContainsRune("0123456789abcdef", rune(c)) {
				return "", false
			}
		default:
			if c != form[i] {
				return "", false
			}
		}
	}
	if index := uuid[2:4]; index != "ff" && index != "00" {
		return "", false
	}
	return "GPU-" + uuid[:2] + uuid[21:23] + uuid[24:], true
}

// instanceID returns the ID of a MIG instance, of which dcgm-exporter reports only the number.
func (c *Config) instanceID(board, instance string) string {
	if id, ok := c.Instances[board+"/"+instance]; ok {
		return id
	}
	return "MIG-" + strings.TrimPrefix(board, "MIG-") + "/" + instance + "/0"
}
