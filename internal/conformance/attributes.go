// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/otelgpu/otelgpu/internal/spelling"
	"github.com/otelgpu/otelgpu/semconv"
)

// otherHardware are OpenTelemetry's hardware attributes that otelgpu does not write; any emitter
// may.
var otherHardware = []string{
	"hw.battery.capacity", "hw.battery.chemistry", "hw.battery.state", "hw.bios_version", "hw.enclosure.type",
	"hw.firmware_version", "hw.limit_type", "hw.logical_disk.raid_level", "hw.logical_disk.state", "hw.memory.type",
	"hw.network.logical_addresses", "hw.network.physical_address", "hw.physical_disk.smart_attribute",
	"hw.physical_disk.state", "hw.physical_disk.type", "hw.sensor_location", "hw.serial_number",
	"hw.tape_drive.operation_type",
}

// otherHardwareMetrics are those metrics, of hardware of any kind.
var otherHardwareMetrics = []string{
	"hw.battery.charge", "hw.battery.charge.limit", "hw.battery.time_left", "hw.cpu.speed", "hw.cpu.speed.limit",
	"hw.fan.speed", "hw.fan.speed.limit", "hw.host.ambient_temperature", "hw.host.energy",
	"hw.host.heating_margin", "hw.host.power", "hw.logical_disk.limit", "hw.logical_disk.usage",
	"hw.logical_disk.utilization", "hw.memory.size", "hw.network.bandwidth.limit", "hw.network.bandwidth.utilization",
	"hw.network.io", "hw.network.packets", "hw.network.up", "hw.physical_disk.endurance_utilization",
	"hw.physical_disk.size", "hw.physical_disk.smart", "hw.power_supply.limit", "hw.power_supply.usage",
	"hw.power_supply.utilization", "hw.tape_drive.operations", "hw.temperature.limit", "hw.voltage", "hw.voltage.limit",
	"hw.voltage.nominal",
}

// attributes checks a set of attributes; on is a value of the registry's appears_on (resource,
// span, ...), where names the owner, and kind is its type.
func (r *Report) attributes(attrs pcommon.Map, on, kind, where string) {
	if r.each != nil {
		r.each(attrs)
	}
	var names []string
	for name, v := range attrs.All() {
		if !ours(name) {
			continue
		}
		names = append(names, name)
		if what, remedy := attribute(name, v, on); what != "" {
			r.violation(kind, where, "attribute "+name+": "+what, remedy)
		}
	}
	slices.Sort(names)
	for i, name := range names {
		if i > 0 && name == names[i-1] {
			r.violation(kind, where, "attribute "+name+": occurs twice", "write each name once")
		}
	}
}

// attribute returns what is wrong with one attribute and the remedy; "" if nothing is.
func attribute(name string, v pcommon.Value, on string) (what, remedy string) {
	a, ok := semconv.LookupAttribute(name)
	if !ok || strings.Contains(name, "<") {
		if slices.Contains(otherHardware, name) {
			return "", ""
		}
		return unknown(name, attributeNames())
	}
	if !slices.Contains(a.On, on) {
		return fmt.Sprintf("on a %s (the registry allows %s)", on, strings.Join(a.On, ", ")), ""
	}
	if what, remedy = valueType(a, v); what != "" {
		return what, remedy
	}
	for _, s := range texts(v) {
		if s == "" {
			return "empty (omit unknown values)", ""
		}
		if len(a.Members) > 0 && !a.Open && !slices.Contains(a.Members, s) {
			return fmt.Sprintf("%q is not one of %s", s, strings.Join(a.Members, ", ")), ""
		}
	}
	switch v.Type() {
	case pcommon.ValueTypeDouble:
		return amount(name, a.Unit, v.Double())
	case pcommon.ValueTypeInt:
		return amount(name, a.Unit, float64(v.Int()))
	}
	return "", ""
}

// valueType compares the type of a value with the registry's.
func valueType(a semconv.Attribute, v pcommon.Value) (what, remedy string) {
	switch a.Type {
	case semconv.TypeStrings:
		return elements(a, v, pcommon.ValueTypeStr)
	case semconv.TypeInts:
		return elements(a, v, pcommon.ValueTypeInt)
	}
	want := map[semconv.Type]pcommon.ValueType{
		semconv.TypeString: pcommon.ValueTypeStr, semconv.TypeInt: pcommon.ValueTypeInt,
		semconv.TypeDouble: pcommon.ValueTypeDouble, semconv.TypeBoolean: pcommon.ValueTypeBool,
	}[a.Type]
	if v.Type() == want {
		if v.Type() == pcommon.ValueTypeDouble && !finite(v.Double()) {
			return fmt.Sprintf("%v is not finite", v.Double()), "omit it if unknown"
		}
		return "", ""
	}
	what = fmt.Sprintf("%s, want %s", v.Type(), a.Type)
	switch {
	case v.Type() == pcommon.ValueTypeInt && want == pcommon.ValueTypeDouble:
		remedy = "the SDK's double, as 1.0, not 1"
	case v.Type() == pcommon.ValueTypeStr:
		remedy = "not as text"
	}
	return what, remedy
}

func elements(a semconv.Attribute, v pcommon.Value, want pcommon.ValueType) (what, remedy string) {
	if v.Type() != pcommon.ValueTypeSlice {
		return fmt.Sprintf("%s, want %s", v.Type(), a.Type), "a list, of one element too"
	}
	if v.Slice().Len() == 0 {
		return "empty (omit unknown values)", ""
	}
	for _, e := range v.Slice().All() {
		if e.Type() != want {
			return fmt.Sprintf("an element is %s, want %s", e.Type(), a.Type), ""
		}
	}
	return "", ""
}

// declared lists ratios that may be above 1: declared work is wrong, which gpu.declaration.status
// states, or a value more than doubled.
var declared = []string{
	"gpu.io.utilization", "gpu.flop.utilization", "gpu.roofline.utilization", "gpu.step.mfu", "gpu.step.hfu",
	"gpu.straggler.score",
	"gpu.finding.share", "gpu.finding.threshold",
}

// amount checks the range of a number by its unit and name.
func amount(name, unit string, x float64) (what, remedy string) {
	switch {
	case name == "gpuspan.clock.drift": // a ratio of two clocks, less 1
	case unit == "1" && x > 1+1e-6 && !slices.Contains(declared, name):
		return fmt.Sprintf("%v is above 1", x), "ratios are 0 to 1, not per cent"
	case x < 0 && (unit == "1" || unit == "By" && !strings.HasSuffix(name, ".delta") ||
		strings.HasPrefix(unit, "{") ||
		strings.HasSuffix(name, ".duration") || strings.Contains(name, ".duration.") || unit == "J" || unit == "W" ||
		unit == "Hz"):
		return fmt.Sprintf("%v is negative", x), ""
	}
	return "", ""
}

func texts(v pcommon.Value) []string {
	switch v.Type() {
	case pcommon.ValueTypeStr:
		return []string{v.Str()}
	case pcommon.ValueTypeSlice:
		var out []string
		for _, e := range v.Slice().All() {
			out = append(out, texts(e)...)
		}
		return out
	}
	return nil
}

func finite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }

var (
	attributeNames = names(semconv.Attributes, func(a semconv.Attribute) string { return a.Name })
	metricNames    = names(semconv.Metrics, func(m semconv.Metric) string { return m.Name })
	eventNames     = names(semconv.Events, func(e semconv.Event) string { return e.Name })
)

// names returns a function that returns the names of a list of the registry.
func names[T any](list func() []T, name func(T) string) func() []string {
	return sync.OnceValue(func() (out []string) {
		for _, x := range list() {
			out = append(out, name(x))
		}
		return out
	})
}

// unknown returns why a name is not in the registry: it is a namespace, it uses a name as a
// namespace, or it is unknown; then the remedy is a similar name if there is one.
func unknown(name string, known []string) (what, remedy string) {
	what = "not in the registry"
	if lower := strings.ToLower(name); lower != name && slices.Contains(known, lower) {
		return what, "did you mean " + lower + "?"
	}
	for _, k := range known {
		if template, _, ok := strings.Cut(k, "<"); ok && strings.HasPrefix(name, template) {
			return what, "the last part of " + k + " must be one lower_snake word"
		}
	}
	for _, k := range known {
		switch {
		case strings.HasPrefix(k, name+"."):
			return "is a namespace, of " + k, "a name is never also a namespace; use one of the names below it"
		case strings.HasPrefix(name, k+"."):
			return "has the name " + k + " for a namespace", "a name is never also a namespace"
		}
	}
	best := spelling.Nearest(name, known)
	switch {
	case best != "":
		remedy = "did you mean " + best + "?"
	case strings.HasPrefix(name, "hw."):
		remedy = "names of OpenTelemetry's hardware conventions, or your own namespace"
	default:
		remedy = "use your own namespace, or a name of docs/semconv"
	}
	return what, remedy
}
