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

// loopKey identifies a series of steps.
type loopKey struct {
	name, itemType string
	rank           int64 // −1: no rank; a resource has several ranks if resource_attributes omits the rank
}

// loop has the series that the steps of a loop feed; nil until the first step that has a value.
type loop struct {
	duration, items, itemRate, itemEnergy *series.Series
	phases                                map[string]*series.Series
}

// step adds a step to its loop's metrics. It reports whether there were too many series.
func (a *aggregator) step(r *resource, f *facts, weight float64, now int64) (over bool) {
	key := loopKey{f.Name, f.StepItemType, r.rank}
	l := r.loops[key]
	if l == nil {
		l = &loop{phases: make(map[string]*series.Series)}
		if len(r.loops) < a.cfg.CardinalityLimit {
			r.loops[loopKey{strings.Clone(key.name), strings.Clone(key.itemType), key.rank}] = l
		}
	}
	need := func(s **series.Series, id metricID, phase string) *series.Series {
		if (*s).GivenUp() { // evicted for a series before it
			*s = r.stepSeries(&a.settings, id, f, phase)
		}
		over = over || r.families[id].Overflowed(*s)
		return *s
	}
	if f.StepTime() > 0 {
		need(&l.duration, metricStepDuration, "").Record(f.StepTime(), weight, f.Key, f.End, now)
	}
	for _, p := range f.Phases() {
		s, known := l.phases[p.Name]
		need(&s, metricPhaseDuration, p.Name).Record(p.Duration, weight, f.Key, f.End, now)
		if !known && len(l.phases) < a.cfg.CardinalityLimit {
			l.phases[strings.Clone(p.Name)] = s
		}
	}
	if f.StepItems > 0 {
		need(&l.items, metricStepItems, "").Add(f.StepItems*weight, now)
		if f.StepTime() > 0 {
			need(&l.itemRate, metricStepItemRate, "").Ratio(f.StepItems*weight, f.StepTime()*weight, now)
		}
		if f.Energy > 0 {
			need(&l.itemEnergy, metricItemEnergy, "").Ratio(f.Energy, f.StepItems*weight, now)
		}
	}
	return over
}

func (r *resource) stepSeries(st *settings, id metricID, f *facts, phase string) *series.Series {
	attrs := pcommon.NewMap()
	attrs.PutStr(string(semconv.GPUOperationNameKey), f.Name)
	if r.rank >= 0 {
		attrs.PutInt(string(semconv.GPUJobRankKey), r.rank)
	}
	switch id {
	case metricPhaseDuration:
		attrs.PutStr(string(semconv.GPUStepPhaseNameKey), phase)
	case metricStepItems, metricStepItemRate:
		sharedcomponent.PutText(attrs, semconv.GPUStepItemTypeKey, f.StepItemType)
	case metricItemEnergy:
		attrs.PutStr(string(semconv.GPUOperationTypeKey), semconv.GPUOperationTypeStep)
		sharedcomponent.PutText(attrs, semconv.GPUOperationItemTypeKey, f.StepItemType)
	}
	return r.families[id].Get(&st.Settings, attrs, r.startOf(st, f))
}
