// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetricsconnector

import (
	"hash/maphash"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/otelgpu/otelgpu/internal/series"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/semconv"
)

// metricID indexes families and definitions.
type metricID uint8

const (
	metricCount metricID = iota
	metricDuration
	metricIO
	metricFLOPs
	metricItems
	metricEnergy
	metricItemEnergy
	metricStepDuration
	metricPhaseDuration
	metricStepItems
	metricStepItemRate
	metricStragglerScore
	metricStragglerDelay
	metricActivityTime
	metricSectionTime
	metrics
)

var definitions = [metrics]struct {
	name string // unit and description are in the registry
	form series.Form
}{
	metricCount:          {semconv.GPUOperationCountName, series.Count},
	metricDuration:       {semconv.GPUOperationDurationName, series.Histogram},
	metricIO:             {semconv.GPUOperationIOName, series.Count},
	metricFLOPs:          {semconv.GPUOperationFLOPSName, series.Sum},
	metricItems:          {semconv.GPUOperationItemsName, series.Count},
	metricEnergy:         {semconv.GPUOperationEnergyName, series.Sum},
	metricItemEnergy:     {semconv.GPUOperationItemEnergyName, series.Gauge},
	metricStepDuration:   {semconv.GPUStepDurationName, series.Histogram},
	metricPhaseDuration:  {semconv.GPUStepPhaseDurationName, series.Histogram},
	metricStepItems:      {semconv.GPUStepItemsName, series.Count},
	metricStepItemRate:   {semconv.GPUStepItemRateName, series.Gauge},
	metricStragglerScore: {semconv.GPUStragglerScoreName, series.Gauge},
	metricStragglerDelay: {semconv.GPUStragglerDelayName, series.Gauge},
	metricActivityTime:   {semconv.GPUActivityTimeName, series.Sum},
	metricSectionTime:    {semconv.GPUSectionTimeName, series.Sum},
}

// resource holds all series of one resource.
type resource struct {
	attrs      pcommon.Map
	whole      pcommon.Map // all attributes of the latest spans, for findings; unset: none were needed
	instance   string      // service.instance.id, if attrs have none
	families   [metrics]series.Family
	operations operations
	loops      map[loopKey]*loop
	devices    map[deviceKey]*timeline

	newest  uint64 // end of the newest span, unix ns: the time of the next points
	written uint64 // time of the last points
	lag     int64  // of that span behind the clock when it arrived, ns
	seen    int64  // when the last span arrived

	service, job string
	rank, world  int64  // −1 if unknown
	process      uint64 // of the rank that reports now; 0 if unknown
}

func newResource(attrs pcommon.Map, st *settings) *resource {
	r := &resource{
		attrs: attrs, operations: operations{byDims: make(map[dims]*operation)}, loops: make(map[loopKey]*loop),
		devices: make(map[deviceKey]*timeline), rank: -1, world: -1,
	}
	for id, d := range definitions {
		f := &r.families[id]
		*f = series.Family{Name: d.name, Form: d.form, Bounds: st.bounds}
		switch metricID(id) {
		case metricDuration, metricStepDuration, metricPhaseDuration:
			f.Exemplars = st.cfg.MaxExemplars
		case metricStragglerScore, metricStragglerDelay:
			f.Exemplars = min(1, st.cfg.MaxExemplars)
		}
	}
	return r
}

// identify sets the identity of the spans' resource; several resources may share the series.
func (r *resource) identify(of *spanfacts.Resource) {
	r.service, r.job, r.rank, r.world = of.Service, of.JobID, of.Rank, of.WorldSize
	r.process = 0
	if of.Instance != "" {
		r.process = maphash.String(instances, of.Instance)
	}
}

var instances = maphash.MakeSeed()

// startOf returns the time from which a series created for a span counts: the span's start, but not
// before points that were written, because an evicted series must not overlap itself. It returns 0,
// unknown, if the start is from a clock that was not set and the points are not.
func (r *resource) startOf(st *settings, f *facts) uint64 {
	if f.Start < spanfacts.Earliest && max(f.End, r.newest) >= spanfacts.Earliest {
		return r.written
	}
	return r.notBefore(st, f.Start)
}

// notBefore returns a time from which a series counts, after points that were written: points of a
// running service may be from the Collector that ran here before, because a restart does not change
// the series.
func (r *resource) notBefore(st *settings, start uint64) uint64 {
	if r.newest+uint64(maxLag) >= st.since {
		start = max(start, st.since)
	}
	return max(start, r.written)
}

// expire evicts the series that were last seen before a time; it returns their number and whether
// nothing is left.
func (r *resource) expire(st *settings, before int64) (expired int, empty bool) {
	left := 0
	for i := range r.families {
		expired += r.families[i].Expire(&st.Settings, before)
		left += r.families[i].Len()
	}
	if expired > 0 { // operations may point to evicted series; the next spans find them again
		st.operations -= len(r.operations.byDims)
		r.operations.clear()
		clear(r.loops)
	}
	for k, t := range r.devices {
		if t.seen < before && len(t.pending) == 0 {
			delete(r.devices, k)
		}
	}
	return expired, left == 0 && len(r.devices) == 0 && r.seen < before
}

// maxLag is how far behind the clock the spans of a running service arrive; older ones are from
// files.
const maxLag = 5 * time.Minute

// write adds the resource's points, if it has any. now is the time of the host's clock, unix ns.
// Their time is the time of the output, as for points of gpu_requests, because Prometheus accepts
// target_info only in order, and both have it for one service. For spans from files it is the end
// of the newest span.
func (r *resource) write(st *settings, out pmetric.Metrics, now int64) {
	at := r.newest
	if at == 0 || r.lag <= int64(maxLag) {
		at = uint64(now)
	}
	r.written, _ = st.Write(out, r.attrs, r.instance, r.families[:], at, r.written)
}
