// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetricsconnector

import (
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
	name string // unit and description are the registry's
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
	instance   string // service.instance.id, where attrs have none
	families   [metrics]series.Family
	operations operations
	loops      map[loopKey]*loop
	devices    map[deviceKey]*timeline

	newest  uint64 // end of the newest span, unix ns: the time of the next points
	written uint64 // time of the last points
	lag     int64  // of that span behind the clock when it came, ns
	seen    int64  // when the last span came

	service, job string
	rank, world  int64 // −1 where unknown
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

// identify takes who this is from the spans' resource, of which several may share the series.
func (r *resource) identify(of *spanfacts.Resource) {
	r.service, r.job, r.rank, r.world = of.Service, of.JobID, of.Rank, of.WorldSize
}

// startOf is the time from which a series made for a span counts: the span's start, but not before points that were
// written, for a series that was given up must not overlap itself. 0, unknown, where the start is of a clock that was
// not set and the points are not.
func (r *resource) startOf(st *settings, f *facts) uint64 {
	if f.Start < spanfacts.Earliest && max(f.End, r.newest) >= spanfacts.Earliest {
		return r.written
	}
	return r.notBefore(st, f.Start)
}

// notBefore is a time from which a series counts, after points that were written: those of a service that runs may be
// of the Collector that ran here before, for a restart changes no series.
func (r *resource) notBefore(st *settings, start uint64) uint64 {
	if r.newest+uint64(maxLag) >= st.since {
		start = max(start, st.since)
	}
	return max(start, r.written)
}

// expire gives up what was last seen before a time; it returns the number of series, and whether nothing is left.
func (r *resource) expire(st *settings, before int64) (expired int, empty bool) {
	left := 0
	for i := range r.families {
		expired += r.families[i].Expire(&st.Settings, before)
		left += r.families[i].Len()
	}
	if expired > 0 { // operations may point to series that are gone; they are found again by the next spans
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

// maxLag is how far behind the clock the spans of a running service come; older ones are from files.
const maxLag = 5 * time.Minute

// write adds the resource's points, if it has any. now is that of the host's clock, unix ns. Their time is that of the
// output, as of those of gpu_requests, for Prometheus takes target_info only in order, which both have of one service.
// For spans from files it is the end of the newest one.
func (r *resource) write(st *settings, out pmetric.Metrics, now int64) {
	at := r.newest
	if at == 0 || r.lag <= int64(maxLag) {
		at = uint64(now)
	}
	r.written, _ = st.Write(out, r.attrs, r.instance, r.families[:], at, r.written)
}
