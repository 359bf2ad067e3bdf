// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetricsconnector

import (
	"slices"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/semconv"
)

// resource holds all series of one resource.
type resource struct {
	attrs    pcommon.Map
	whole    bool // attrs are all that the spans' resource has
	families [metrics]family
	bundles  bundles
	loops    map[loopKey]*loop
	devices  map[deviceKey]*timeline

	newest  uint64 // end of the newest span, unix ns: the time of the next points
	written uint64 // time of the last points
	seen    int64  // wall clock of the last span, unix ns

	service, job string
	rank, world  int64 // −1 where unknown
}

func newResource(attrs pcommon.Map) *resource {
	r := &resource{
		attrs: attrs, bundles: newBundles(), loops: make(map[loopKey]*loop), devices: make(map[deviceKey]*timeline),
		rank: -1, world: -1,
	}
	for i := range r.families {
		r.families[i].id = metricID(i)
	}
	return r
}

// identify reads who this is from the attributes of the spans' resource, of which several may share the series.
func (r *resource) identify(attrs pcommon.Map) {
	r.service, r.job, r.rank, r.world = "", "", -1, -1
	for k, v := range attrs.All() {
		switch k {
		case string(semconv.ServiceNameKey):
			r.service = v.Str()
		case string(semconv.GPUJobIDKey):
			r.job = v.Str()
		case string(semconv.GPUJobRankKey):
			if v.Type() == pcommon.ValueTypeInt {
				r.rank = v.Int()
			}
		case string(semconv.GPUJobWorldSizeKey):
			if v.Type() == pcommon.ValueTypeInt {
				r.world = v.Int()
			}
		}
	}
}

// extraSeparator stands between the values of Dimensions in dims.extra.
const extraSeparator = "\x00"

// stream makes or finds the stream of a metric for a span's dimensions.
func (r *resource) stream(st *settings, id metricID, f *facts) *stream {
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

// startOf is the time from which a stream made for a span counts: the span's start, but not before points that were written, for a
// series that expired must not overlap itself. 0, unknown, where the start is of a clock that was not set and the points are not.
func (r *resource) startOf(f *facts) uint64 {
	if f.start < spanfacts.Earliest && max(f.end, r.newest) >= spanfacts.Earliest {
		return r.written
	}
	return max(f.start, r.written)
}

// overflowed reports whether the stream is the one of its family that takes what is too much.
func (r *resource) overflowed(id metricID, s *stream) bool { return s == r.families[id].overflow }

// expire drops what was last seen before a time; it reports whether nothing is left.
func (r *resource) expire(st *settings, before int64) bool {
	dropped, left := 0, 0
	for i := range r.families {
		dropped += r.families[i].expire(before)
		left += len(r.families[i].streams)
	}
	st.series -= dropped
	if dropped > 0 { // bundles may point to dropped streams; they are found again by the next spans
		st.bundles -= r.bundles.len()
		r.bundles.clear()
		clear(r.loops)
	}
	for k, t := range r.devices {
		if t.seen < before && len(t.pending) == 0 {
			delete(r.devices, k)
		}
	}
	return left == 0 && len(r.devices) == 0 && r.seen < before
}

// write adds the resource's points, if it has any; now stands in for a time that no span gave.
func (r *resource) write(st *settings, scope func(pcommon.InstrumentationScope), out pmetric.Metrics, now uint64) {
	ts := max(r.newest, r.written)
	if ts == 0 {
		ts = now
	}
	r.written = ts
	rm := out.ResourceMetrics().AppendEmpty()
	sm := rm.ScopeMetrics().AppendEmpty()
	for i := range r.families {
		r.families[i].write(st, sm.Metrics(), ts)
	}
	if sm.Metrics().Len() == 0 {
		out.ResourceMetrics().RemoveIf(func(x pmetric.ResourceMetrics) bool { return x == rm })
		return
	}
	scope(sm.Scope())
	sm.SetSchemaUrl(semconv.SchemaURL)
	r.attrs.CopyTo(rm.Resource().Attributes())
}

// resourceKey appends a text that is the same for resources of the same kept attributes, in whatever order.
func resourceKey(dst []byte, names []string, attrs pcommon.Map, kept []string) ([]byte, []string) {
	names = names[:0]
	for k := range attrs.All() {
		if len(kept) == 0 || slices.Contains(kept, k) {
			names = append(names, k)
		}
	}
	slices.Sort(names)
	for _, k := range names {
		v, _ := attrs.Get(k)
		dst = append(append(dst, k...), 0)
		if v.Type() == pcommon.ValueTypeStr {
			dst = append(dst, v.Str()...)
		} else {
			dst = append(dst, v.AsString()...)
		}
		dst = append(dst, 0)
	}
	return dst, names
}
