// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetricsconnector

import (
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/otelgpu/otelgpu/internal/series"
	"github.com/otelgpu/otelgpu/semconv"
)

// loopKey is what steps of one series have in common.
type loopKey struct {
	name, itemType string
	rank           int64 // −1: none; a resource has several where resource_attributes leaves the rank out
}

// loop are the series that the steps of a loop feed; nil until the first step that has a value.
type loop struct {
	duration, items, itemRate, itemEnergy *series.Series
	phases                                map[string]*series.Series
}

// step adds a step to its loop's metrics.
func (a *aggregator) step(r *resource, f *facts, weight float64, now int64) {
	key := loopKey{f.Name, f.StepItemType, r.rank}
	l := r.loops[key]
	if l == nil {
		l = &loop{phases: make(map[string]*series.Series)}
		if len(r.loops) < a.cfg.CardinalityLimit {
			r.loops[loopKey{strings.Clone(key.name), strings.Clone(key.itemType), key.rank}] = l
		}
	}
	over := false
	need := func(s *series.Series, id metricID, put func(pcommon.Map)) *series.Series {
		if s == nil {
			s = r.stepSeries(&a.settings, id, f, put)
		}
		over = over || r.overflowed(id, s)
		return s
	}
	itemType := func(m pcommon.Map) {
		if f.StepItemType != "" {
			m.PutStr(string(semconv.GPUStepItemTypeKey), f.StepItemType)
		}
	}
	if f.StepTime() > 0 {
		l.duration = need(l.duration, metricStepDuration, nil)
		l.duration.Record(f.StepTime(), weight, f.Key, f.End, now)
	}
	for _, p := range f.Phases() {
		s := need(l.phases[p.Name], metricPhaseDuration, func(m pcommon.Map) {
			m.PutStr(string(semconv.GPUStepPhaseNameKey),
				p.Name)
		})
		if _, known := l.phases[p.Name]; !known && len(l.phases) < a.cfg.CardinalityLimit {
			l.phases[strings.Clone(p.Name)] = s
		}
		s.Record(p.Duration, weight, f.Key, f.End, now)
	}
	if f.StepItems > 0 {
		l.items = need(l.items, metricStepItems, itemType)
		l.items.Add(f.StepItems*weight, now)
		if f.StepTime() > 0 {
			l.itemRate = need(l.itemRate, metricStepItemRate, itemType)
			l.itemRate.Ratio(f.StepItems*weight, f.StepTime()*weight, now)
		}
		if f.Energy > 0 {
			l.itemEnergy = need(l.itemEnergy, metricItemEnergy, func(m pcommon.Map) {
				m.PutStr(string(semconv.GPUOperationTypeKey), semconv.GPUOperationTypeStep)
				if f.StepItemType != "" {
					m.PutStr(string(semconv.GPUOperationItemTypeKey), f.StepItemType)
				}
			})
			l.itemEnergy.Ratio(f.Energy, f.StepItems*weight, now)
		}
	}
	if over {
		a.stats.overflow++
	}
}

func (r *resource) stepSeries(st *settings, id metricID, f *facts, put func(pcommon.Map)) *series.Series {
	attrs := pcommon.NewMap()
	attrs.PutStr(string(semconv.GPUOperationNameKey), f.Name)
	if r.rank >= 0 {
		attrs.PutInt(string(semconv.GPUJobRankKey), r.rank)
	}
	if put != nil {
		put(attrs)
	}
	return r.families[id].Get(&st.Settings, attrs, r.startOf(st, f))
}
