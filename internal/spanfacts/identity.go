// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package spanfacts

import (
	"cmp"
	"hash/maphash"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/otel/attribute"

	"github.com/otelgpu/otelgpu/semconv"
)

// Identity is a device as telemetry identifies it. Absent fields are "", an absent Ordinal is -1.
type Identity struct {
	ID      string // hw.id
	Parent  string // hw.parent, the physical GPU of a MIG instance
	Name    string // hw.name
	Model   string // hw.model
	BDF     string // gpu.pci.bdf
	Ordinal int64  // gpu.device.ordinal, the index that the process sees
}

// maxIDs is the length in bytes of a list of 64 devices.
const maxIDs = 64 * 64

// read reads one attribute; it returns false if the attribute does not describe a device.
func (d *Identity) read(k string, v pcommon.Value) bool {
	switch attribute.Key(k) {
	case semconv.HWIDKey:
		d.ID = Valid(v.Str(), maxIDs) // a request may list its devices
	case semconv.HWParentKey:
		d.Parent = Clip(v.Str())
	case semconv.HWNameKey:
		d.Name = Clip(v.Str())
	case semconv.HWModelKey:
		d.Model = Clip(v.Str())
	case semconv.GPUPCIBDFKey:
		d.BDF = Clip(v.Str())
	case semconv.GPUDeviceOrdinalKey:
		d.Ordinal = index(v)
	default:
		return false
	}
	return true
}

// inherit sets what d lacks from a wider identity. If that is another device, it sets nothing and
// returns false.
func (d *Identity) inherit(wide *Identity) bool {
	if d.differs(wide) {
		return false
	}
	def(&d.ID, wide.ID)
	def(&d.Parent, wide.Parent)
	def(&d.Name, wide.Name)
	def(&d.Model, wide.Model)
	def(&d.BDF, wide.BDF)
	if d.Ordinal < 0 {
		d.Ordinal = wide.Ordinal
	}
	return true
}

// differs reports whether both identify a device, and not the same one: by ID, otherwise by
// address, otherwise by ordinal.
func (d *Identity) differs(wide *Identity) bool {
	switch {
	case d.ID != "" && wide.ID != "":
		return !SameDevice(d.ID, wide.ID)
	case d.BDF != "" && wide.BDF != "":
		return d.BDF != wide.BDF
	}
	return d.Ordinal >= 0 && wide.Ordinal >= 0 && d.Ordinal != wide.Ordinal
}

var numbers = maphash.MakeSeed()

// Number returns a number that distinguishes the devices of a process, as long as the process
// identifies all of them in one way.
func (d *Identity) Number() int64 {
	if name := cmp.Or(d.ID, d.BDF); name != "" {
		return int64(maphash.String(numbers, name))
	}
	return d.Ordinal
}

// SameDevice reports whether two values of hw.id identify one device. Some producers omit the
// prefix `GPU-` or `MIG-`, or write the UUID in capitals.
func SameDevice(a, b string) bool {
	return a == b || a != "" && strings.EqualFold(Bare(a), Bare(b))
}

// Bare returns a value of hw.id without its prefixes: drivers before 470 name an instance
// MIG-GPU-<uuid>/<n>/<n>.
func Bare(id string) string {
	for len(id) > 4 && (strings.EqualFold(id[:4], "gpu-") || strings.EqualFold(id[:4], "mig-")) {
		id = id[4:]
	}
	return id
}

// Resource has the values that a resource states for all its spans.
type Resource struct {
	Device Identity // of producers that use only one device

	Service   string // service.name
	HostID    string // host.id
	HostName  string // host.name
	Instance  string // service.instance.id
	JobID     string // gpu.job.id
	Rank      int64  // gpu.job.rank; -1: not stated
	WorldSize int64  // gpu.job.world_size; -1: not stated
}

// Load reads the attributes of a resource.
func (r *Resource) Load(attrs pcommon.Map) {
	*r = Resource{Device: Identity{Ordinal: -1}, Rank: -1, WorldSize: -1}
	for k, v := range attrs.All() {
		switch attribute.Key(k) {
		case semconv.ServiceNameKey:
			r.Service = Clip(v.Str())
		case semconv.ServiceInstanceIDKey:
			r.Instance = Clip(v.Str())
		case "host.id":
			r.HostID = Clip(v.Str())
		case "host.name":
			r.HostName = Clip(v.Str())
		case semconv.GPUJobIDKey:
			r.JobID = Clip(v.Str())
		case semconv.GPUJobRankKey:
			r.Rank = Whole(v)
		case semconv.GPUJobWorldSizeKey:
			r.WorldSize = Whole(v)
		default:
			r.Device.read(k, v)
		}
	}
}

// Process returns a number that distinguishes the processes whose spans may have equal IDs, because
// their random generators are seeded alike: ranks by job and rank, others by service.instance.id, 0
// for a process that states neither. Other attributes are not part of it, because a process may
// have several providers whose resources differ.
func (r *Resource) Process() uint64 {
	switch {
	case r.Rank >= 0:
		return maphash.Comparable(numbers, Resource{JobID: r.JobID, Rank: r.Rank})
	case r.Instance != "":
		return maphash.String(numbers, r.Instance)
	}
	return 0
}

// Scope has the values that an instrumentation scope states for all its spans, and its resource's
// values for what the scope does not state.
type Scope struct {
	Device         Identity
	Stream         int64   // gpu.stream.id; −1: unknown
	Source         string  // gpu.timing.source
	Measured       string  // gpu.measurement.source; not "": the spans were joined with samples
	Floor          float64 // gpu.floor.duration, s; valid if HasFloor
	HasFloor       bool
	TimingError    float64 // gpu.timing.error, s
	MetricsEmitted bool    // gpu.metrics.emitted: the producer writes the metrics of operations itself
}

// Load reads the attributes of a scope of a resource (nil: none).
func (s *Scope) Load(r *Resource, attrs pcommon.Map) {
	*s = Scope{Device: Identity{Ordinal: -1}, Stream: -1}
	for k, v := range attrs.All() {
		switch attribute.Key(k) {
		case semconv.GPUTimingSourceKey:
			s.Source = Clip(v.Str())
		case semconv.GPUMeasurementSourceKey:
			s.Measured = Clip(v.Str())
		case semconv.GPUStreamIDKey:
			s.Stream = index(v)
		case semconv.GPUFloorDurationKey:
			x, ok := Number(v)
			s.Floor, s.HasFloor = x, ok && x >= 0
		case semconv.GPUTimingErrorKey:
			s.TimingError = Positive(v)
		case semconv.GPUMetricsEmittedKey:
			s.MetricsEmitted = v.Type() == pcommon.ValueTypeBool && v.Bool()
		default:
			s.Device.read(k, v)
		}
	}
	if r != nil {
		s.Device.inherit(&r.Device)
	}
}
