// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetricsconnector

import (
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/otelgpu/otelgpu/semconv"
)

// operation has the series that spans of the same dimensions feed; nil until the first span that has a value.
type operation struct {
	key                                                   dims // zero where it is not kept
	count, duration, io, flops, items, energy, itemEnergy *series
}

// operations finds the operation of a span. A span's dimensions are nine strings, which the map hashes whole; the table in front
// of it only compares them, in a slot that a few of their letters give, for a service has few operations and many spans.
type operations struct {
	byDims map[dims]*operation
	table  [64]*operation
}

func newOperations() operations { return operations{byDims: make(map[dims]*operation)} }

func (x *operations) len() int { return len(x.byDims) }

// find returns the operation of these dimensions, or nil.
func (x *operations) find(d *dims) *operation {
	at := &x.table[d.slot()%uint32(len(x.table))]
	if b := *at; b != nil && b.key == *d {
		return b
	}
	b := x.byDims[*d]
	if b != nil {
		*at = b
	}
	return b
}

// keep makes an operation to be found; its key must own its strings.
func (x *operations) keep(b *operation) { x.byDims[b.key] = b }

func (x *operations) clear() {
	clear(x.byDims)
	clear(x.table[:])
}

// slot is a number that differs for most operations, devices and sizes of a service.
func (d *dims) slot() uint32 {
	h := uint32(len(d.name))
	for _, s := range [...]string{d.name, d.kind, d.category, d.id} {
		if n := len(s); n > 0 {
			h = h*31 + uint32(s[n-1]) + uint32(s[n/2])<<4
		}
	}
	return h ^ h>>8
}

// operation feeds the series of a span's dimensions; energyOnly leaves out the first five metrics, which the producer writes itself.
// weight is how many spans the span stands for. It does not multiply energy, which gpu_join has shared out among the spans that came.
func (a *aggregator) operation(r *resource, f *facts, weight float64, energyOnly bool, now int64) {
	b := r.operations.find(&f.dims)
	if b == nil {
		b = a.newOperation(r, f)
	}
	over := false
	need := func(s **series, id metricID) *series {
		if *s == nil {
			*s = r.operationSeries(&a.settings, id, f)
		}
		over = over || r.overflowed(id, *s)
		return *s
	}
	if !energyOnly {
		need(&b.count, metricCount).add(weight, now)
		if f.time > 0 {
			need(&b.duration, metricDuration).record(f.time, weight, f, now)
		}
		if f.size > 0 {
			need(&b.io, metricIO).add(f.size*weight, now)
		}
		if f.flops > 0 {
			need(&b.flops, metricFLOPs).add(f.flops*weight, now)
		}
		if f.items > 0 {
			need(&b.items, metricItems).add(f.items*weight, now)
		}
	}
	if f.selfEnergy > 0 {
		need(&b.energy, metricEnergy).add(f.selfEnergy, now)
	}
	if f.energy > 0 && f.items > 0 {
		need(&b.itemEnergy, metricItemEnergy).ratio(f.energy, f.items*weight, now)
	}
	if over {
		a.stats.overflow++
	}
}

// newOperation makes the operation of a span's dimensions. When there are very many, spans have one that is not kept, and their
// series are found by attributes each time.
func (a *aggregator) newOperation(r *resource, f *facts) *operation {
	b := &operation{}
	if r.operations.len() < 4*a.cfg.CardinalityLimit && a.operations < a.cfg.MaxSeries {
		a.operations++
		b.key = f.dims
		key := &b.key
		for _, s := range []*string{
			&key.name, &key.kind, &key.category, &key.id, &key.status, &key.direction, &key.precision, &key.itemType,
		} {
			*s = strings.Clone(*s) // the batch's memory must not live on in a key
		}
		r.operations.keep(b)
	}
	return b
}

// extraSeparator stands between the values of Dimensions in dims.extra.
const extraSeparator = "\x00"

// operationSeries makes or finds the series of a metric for a span's dimensions.
func (r *resource) operationSeries(st *settings, id metricID, f *facts) *series {
	attrs := pcommon.NewMap()
	put := func(key, value string) {
		if value != "" {
			attrs.PutStr(key, value)
		}
	}
	put(string(semconv.GPUOperationNameKey), f.name)
	put(string(semconv.GPUOperationTypeKey), f.kind)
	put(string(semconv.GPUOperationCategoryKey), f.category)
	if f.extra != "" {
		for i, v := range strings.Split(f.extra, extraSeparator) {
			put(st.cfg.Dimensions[i], v)
		}
	}
	switch id {
	case metricCount:
		put(string(semconv.GPUTimingStatusKey), f.status)
	case metricDuration:
		put(string(semconv.GPUTimingStatusKey), f.status)
		put(string(semconv.HWIDKey), f.id)
	case metricEnergy:
		put(string(semconv.HWIDKey), f.id)
	case metricIO:
		put(string(semconv.GPUCopyDirectionKey), f.direction)
	case metricFLOPs:
		put(string(semconv.GPUFLOPPrecisionKey), f.precision)
	case metricItems, metricItemEnergy:
		put(string(semconv.GPUOperationItemTypeKey), f.itemType)
	}
	return r.families[id].get(st, attrs, r.startOf(f))
}
