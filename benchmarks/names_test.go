// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package benchmarks

import (
	"slices"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/xpdata"
)

// names are attribute names by type of value.
type names struct{ doubles, ints, texts []string }

// Attributes that the components add to a span in these pipelines.
var (
	joined = names{
		doubles: []string{
			"gpu.utilization", "gpu.sm.utilization", "gpu.sm.occupancy", "gpu.tensor.utilization", "gpu.dram.utilization",
			"gpu.clock.sm.frequency",
			"gpu.clock.memory.frequency", "gpu.power", "gpu.temperature.max", "gpu.throttle.time", "gpu.energy",
			"gpu.join.coverage",
		},
		ints:  []string{"gpu.memory.usage", "gpu.join.samples"},
		texts: []string{"gpu.measurement.source", "gpu.join.method"},
	}
	derived = names{
		doubles: []string{
			"gpu.io.rate", "gpu.io.read.rate", "gpu.io.write.rate", "gpu.io.utilization", "gpu.flop.rate",
			"gpu.flop.utilization",
			"gpu.arithmetic_intensity", "gpu.roofline.utilization", "gpu.operation.item.rate",
		},
		texts: []string{"gpu.roofline.bound", "gpu.peak.source", "gpu.declaration.status", "gpu.rate.status"},
	}
	leanly = names{ // both components, on the span with most
		doubles: []string{
			"gpu.energy", "gpu.power", "gpu.sm.utilization", "gpu.io.rate", "gpu.roofline.utilization", "gpu.operation.item.rate",
		},
		texts: []string{"gpu.roofline.bound"},
	}
)

func (n names) all() []string { return slices.Concat(n.doubles, n.ints, n.texts) }

// put writes a constant for each name, growing the map at most once, by room.
func (n names) put(a pcommon.Map, room int) {
	a.EnsureCapacity(a.Len() + room)
	for _, k := range n.doubles {
		a.PutDouble(k, 0.5)
	}
	for _, k := range n.ints {
		a.PutInt(k, 1)
	}
	for _, k := range n.texts {
		a.PutStr(k, "ok")
	}
}

// build rebuilds the map with capacity for room more attributes, and appends the same constants
// without comparing names.
func (n names) build(b *xpdata.MapBuilder, a pcommon.Map, room int) {
	b.EnsureCapacity(a.Len() + room)
	for k, v := range a.All() {
		v.MoveTo(b.AppendEmpty(k))
	}
	for _, k := range n.doubles {
		b.AppendEmpty(k).SetDouble(0.5)
	}
	for _, k := range n.ints {
		b.AppendEmpty(k).SetInt(1)
	}
	for _, k := range n.texts {
		b.AppendEmpty(k).SetStr("ok")
	}
	b.UnsafeIntoMap(a)
}
