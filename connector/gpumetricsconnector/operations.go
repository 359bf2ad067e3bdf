// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetricsconnector

import (
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/otelgpu/otelgpu/internal/series"
	"github.com/otelgpu/otelgpu/internal/sharedcomponent"
	"github.com/otelgpu/otelgpu/semconv"
)

// operation has the series that spans with the same dimensions feed; nil until the first span that
// has a value.
type operation struct {
	key                                                   dims // zero if it is not kept
	count, duration, io, flops, items, energy, itemEnergy *series.Series
}

// operations finds the operation of a span. The dimensions of a span are nine strings, which the
// map hashes; the table in front of it only compares them, in a slot that depends on a few of their
// letters, because a service has few operations and many spans.
type operations struct {
	byDims map[dims]*operation // the keys own their strings
	table  [64]*operation
}

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

func (x *operations) clear() {
	clear(x.byDims)
	clear(x.table[:])
}

// slot returns a number that differs for most operations, devices and sizes of a service.
func (d *dims) slot() uint32 {
	h := uint32(len(d.name))
	for _, s := range [...]string{d.name, d.kind, d.category, d.id} {
		if n := len(s); n > 0 {
			h = h*31 + uint32(s[n-1]) + uint32(s[n/2])<<4
		}
	}
	return h ^ h>>8
}

// operation feeds the series of a span's dimensions; energyOnly skips the first five metrics, which
// the producer writes itself. weight is how many spans the span represents. It does not multiply
// energy, which gpu_join has divided among the spans that arrived. It reports whether there were
// too many series.
func (a *aggregator) operation(r *resource, f *facts, weight float64, energyOnly bool, now int64) (over bool) {
	d := f.dims()
	b := r.operations.find(&d)
	if b == nil {
		b = a.newOperation(r, &d)
	}
	need := func(s **series.Series, id metricID) *series.Series {
		if (*s).GivenUp() { // evicted for a series before it
			*s = r.operationSeries(&a.settings, id, f, &d)
		}
		over = over || r.families[id].Overflowed(*s)
		return *s
	}
	if !energyOnly {
		need(&b.count, metricCount).Add(weight, now)
		if f.Time > 0 {
			need(&b.duration, metricDuration).Record(f.Time, weight, f.Key, f.End, now)
		}
		if f.Size > 0 {
			need(&b.io, metricIO).Add(f.Size*weight, now)
		}
		if f.FLOPs > 0 {
			need(&b.flops, metricFLOPs).Add(f.FLOPs*weight, now)
		}
		if f.Items > 0 {
			need(&b.items, metricItems).Add(f.Items*weight, now)
		}
	}
	if f.SelfEnergy > 0 {
		need(&b.energy, metricEnergy).Add(f.SelfEnergy, now)
	}
	if f.Energy > 0 && f.Items > 0 {
		need(&b.itemEnergy, metricItemEnergy).Ratio(f.Energy, f.Items*weight, now)
	}
	return over
}

// newOperation creates the operation of a span's dimensions. If there are too many, the operation
// is not kept, and its series are found by attributes each time.
func (a *aggregator) newOperation(r *resource, d *dims) *operation {
	b := &operation{}
	if len(r.operations.byDims) < 4*a.cfg.CardinalityLimit && a.operations < a.cfg.MaxSeries {
		a.operations++
		b.key = *d
		key := &b.key
		for _, s := range []*string{
			&key.name, &key.kind, &key.category, &key.id, &key.status, &key.direction, &key.precision, &key.itemType,
		} {
			*s = strings.Clone(*s) // a key must not keep the batch's memory alive
		}
		r.operations.byDims[b.key] = b
	}
	return b
}

// extraSeparator separates the values of Dimensions in dims.extra.
const extraSeparator = "\x00"

// operationSeries creates or finds the series of a metric for a span's dimensions.
func (r *resource) operationSeries(st *settings, id metricID, f *facts, d *dims) *series.Series {
	attrs := pcommon.NewMap()
	sharedcomponent.PutText(attrs, semconv.GPUOperationNameKey, d.name)
	sharedcomponent.PutText(attrs, semconv.GPUOperationTypeKey, d.kind)
	sharedcomponent.PutText(attrs, semconv.GPUOperationCategoryKey, d.category)
	if d.extra != "" {
		for i, v := range strings.Split(d.extra, extraSeparator) {
			sharedcomponent.PutText(attrs, st.cfg.Dimensions[i], v)
		}
	}
	switch id {
	case metricCount:
		sharedcomponent.PutText(attrs, semconv.GPUTimingStatusKey, d.status)
	case metricDuration:
		sharedcomponent.PutText(attrs, semconv.GPUTimingStatusKey, d.status)
		sharedcomponent.PutText(attrs, semconv.HWIDKey, d.id)
	case metricEnergy:
		sharedcomponent.PutText(attrs, semconv.HWIDKey, d.id)
	case metricIO:
		sharedcomponent.PutText(attrs, semconv.GPUCopyDirectionKey, d.direction)
	case metricFLOPs:
		sharedcomponent.PutText(attrs, semconv.GPUFLOPPrecisionKey, d.precision)
	case metricItems, metricItemEnergy:
		sharedcomponent.PutText(attrs, semconv.GPUOperationItemTypeKey, d.itemType)
	}
	return r.families[id].Get(&st.Settings, attrs, r.startOf(st, f))
}
