// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package gpuquantity is the catalogue of device quantities. One row of its table states everything
// about a quantity: its domain, its field in each source, and the metric and the span attribute
// that it becomes. Sources, rings, the gpu receiver, gpu_join, the gpu_samples exporter, trace
// counters and docs/device-quantities.md are filled from it.
package gpuquantity

import (
	"math/bits"
	"slices"

	"go.opentelemetry.io/otel/attribute"

	"github.com/otelgpu/otelgpu/semconv"
)

// Quantity is a quantity that is read from a device, in base units. Quantities below NumRings are
// kept in the rings of gpu_samples and can become span attributes and trace counters; the others
// are for metrics only.
type Quantity uint8

// Kind is the meaning of a value between two samples.
type Kind uint8

// Kinds of quantity.
const (
	// Instant is the value at the sample's time; it is interpolated linearly between two samples.
	Instant Kind = iota
	// Interval is a mean over the time since the previous sample, as every utilization is.
	Interval
	// Counter only increases; between two samples it is interpolated linearly. A decrease is a
	// reset: what was counted across it is unknown and counts as zero, uncovered; so is an increase
	// that no device can reach.
	Counter
	// Mask is a set of bits that were set since the previous sample. Its mean is the share of time
	// with any bit set.
	Mask
)

// Form is how a raw value is converted to its quantity.
type Form uint8

// Forms of raw values.
const (
	Plain  Form = iota // the value, scaled
	Rate               // a mean rate over the time since the sample before, which is integrated
	Totals             // a counter that another field can replace, hence counted from 0
)

// Info is a row of the catalogue. Zero values mean that the quantity has no such property.
type Info struct {
	// Name is the quantity's name in telemetry of the components and in recorded files.
	Name string
	Kind Kind
	// Domain is the closed interval of values that a device can have. Others are errors of a driver
	// or of an exporter and are dropped. The limits are far beyond real values.
	Domain Domain
	// Metric is the metric of the gpu receiver, whose unit, instrument and description are the
	// registry's.
	Metric Metric
	// Span is the attribute that gpu_join writes. Only quantities with rings have one.
	Span Span
	// Chart states that chrome_trace draws the quantity from the rings.
	Chart bool
	// DCGM are the fields of DCGM that measure the quantity, and their names in dcgm-exporter.
	DCGM []Field
	// NVML are calls of NVML without a typed value; a source tries them in order.
	NVML Call
	// GPM is the metric of NVML's GPU performance monitoring.
	GPM GPM
	// AMD are metrics of AMD's device-metrics-exporter and amd_smi_exporter.
	AMD []Exported
}

// Domain is a closed interval of values.
type Domain struct {
	Least, Most float64
	// PerSecond is the highest increase of a counter per second.
	PerSecond float64
}

// Metric names a metric and, where several quantities share it, the attribute value of this one.
type Metric struct {
	Name string
	// Also is the same metric under the name of OpenLIT's collector.
	Also Exported
	Key  attribute.Key
	// Value is the quantity's value of the attribute Key.
	Value string
	// Implied states that a point of another exporter without Key is one of this quantity.
	Implied bool
	// Off states that the metric is emitted only if the configuration enables it. Fields of such
	// quantities are not watched otherwise, unless the quantity has a ring.
	Off bool
	// Float states that a counter has a fractional part.
	Float bool
	// NoPod states that a gauge describes the physical GPU, so that it does not name the pod that
	// uses the device.
	NoPod bool
}

// Span is an attribute of spans.
type Span struct {
	Key attribute.Key
	// Max selects the highest value in the span instead of the mean.
	Max bool
	// OwnOnly states that a MIG instance has the value only if it measures it itself. Otherwise it
	// has its physical GPU's.
	OwnOnly bool
	// Lean states that spans of several devices have the attribute at level lean.
	Lean bool
}

// Pace states how often a field is read.
type Pace uint8

// Paces.
const (
	Unread    Pace = iota // by exporters of others only
	Fast                  // at the sampling interval; each costs DCGM a round trip per board and read
	Medium                // within seconds
	Slow                  // with the collection interval
	Profiling             // at the sampling interval, by the profiling module or GPM, in separate watches
)

// Level is a set of kinds of entities.
type Level uint8

// Levels at which MIG instances have a field. Boards have all fields.
const (
	GPUInstance Level = 1 << iota
	ComputeInstance
)

// Field is a field of DCGM.
type Field struct {
	ID uint16
	// Names are the field's names in dcgm-exporter without the prefix DCGM_FI_.
	Names []string
	// Scale converts to the base unit; 0 means 1.
	Scale float64
	// Rank orders the fields of one quantity: once a device has given a value of a lower rank,
	// higher ones are ignored.
	Rank uint8
	Form Form
	Pace Pace
	// Since46 states that an older host engine does not know the field, and refuses the field group
	// that has it.
	Since46 bool
	// Positive states that 0 is stored if the driver reports that it has no such value.
	Positive bool
	// Instant states that a value of power is not a mean of a second.
	Instant bool
	// Levels are the kinds of MIG instances that have the field.
	Levels Level
	// RatioOrPercent states that the headers of DCGM 4.6 give the name to another field, in
	// percent.
	RatioOrPercent bool
	// Extra states that not every device with profiling has the field: it is tried first and
	// omitted if refused.
	Extra bool
}

// Call is a function of NVML, called as function(device, arguments…, results…).
type Call struct {
	Function string
	Scale    float64 // 0 means 1
	Pace     Pace
	Args     []int
	Results  int  // number of results of 32 bits
	Use      int  // index of the result
	Wide     bool // the result has 64 bits
	Second   bool // the value is the second number of a structure of two
	// FieldID selects a value of nvmlDeviceGetFieldValues, which is tried first. A Call without
	// Function has no other.
	FieldID uint32
}

// GPM is a metric of nvmlGpmMetricId_t.
type GPM struct {
	ID    uint32
	Scale float64
	Form  Form
	// InstanceOnly states that boards have a better source.
	InstanceOnly bool
}

// Exported is a metric of an exporter of others.
type Exported struct {
	Name  string
	Scale float64 // 0 means 1
	Rank  uint8
	Form  Form
	// Key and Value select the points.
	Key, Value string
	// Positive states that the exporter writes 0 for a value that the device does not have.
	Positive bool
	// Highest states that a device has several points at a time, as of the clocks of its dies; the
	// highest counts.
	Highest bool
	// Numbered states that the label of the metric's own name is the number of the device, and -1
	// an unknown value: in amd_smi_exporter.
	Numbered bool
}

// Info returns the row of the quantity.
func (q Quantity) Info() *Info { return &catalogue[q] }

// String returns the quantity's name in telemetry and in recorded files; "unknown" for a number
// that is no quantity.
func (q Quantity) String() string {
	if int(q) >= Num {
		return "unknown"
	}
	return catalogue[q].Name
}

// Kind returns how values between two samples are read.
func (q Quantity) Kind() Kind {
	if int(q) >= Num {
		return Instant
	}
	return catalogue[q].Kind
}

// maxBits is the number of bits of a mask that can be set at a time: NVML has ten reasons for
// throttling, of which a few apply together. A number that is no mask has more.
const maxBits = 16

// Valid reports whether a device can have the value. A NaN is never valid.
func (q Quantity) Valid(v float64) bool {
	d := &catalogue[q].Domain
	return v >= d.Least && v <= d.Most && (catalogue[q].Kind != Mask || bits.OnesCount64(uint64(v)) <= maxBits)
}

// Ratio reports whether the quantity is a share of time or capacity, from 0 to 1.
func (q Quantity) Ratio() bool { return catalogue[q].Domain == ratio }

// HasRing reports whether gpu_samples keeps the quantity.
func (q Quantity) HasRing() bool { return int(q) < NumRings }

// ByName returns the inverse of String.
func ByName(name string) (Quantity, bool) {
	i := slices.IndexFunc(catalogue[:], func(x Info) bool { return x.Name == name })
	return Quantity(max(i, 0)), i >= 0
}

// All returns every quantity.
func All() []Quantity {
	all := make([]Quantity, Num)
	for i := range all {
		all[i] = Quantity(i)
	}
	return all
}

// Registered returns the entry of the registry for the quantity's metric.
func (m *Metric) Registered() (semconv.Metric, bool) { return semconv.LookupMetric(m.Name) }

// Factor returns the scale.
func (f *Field) Factor() float64 { return factor(f.Scale) }

// Factor returns the scale.
func (c *Call) Factor() float64 { return factor(c.Scale) }

// Factor returns the scale.
func (e *Exported) Factor() float64 { return factor(e.Scale) }

func factor(scale float64) float64 {
	if scale == 0 {
		return 1
	}
	return scale
}
