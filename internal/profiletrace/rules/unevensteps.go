// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/semconv"
)

// Limits of uneven steps. The first step often includes start-up, and if many are long, length is
// no exception.
const (
	longStep   = semconv.FindingUnevenStepsFactor
	mostLong   = semconv.FindingUnevenStepsLongSteps
	leastSteps = semconv.FindingUnevenStepsSteps // without the first
	inStep     = 0.8                             // of the window: steps that wait for the device
)

// unevenSteps notes steps that take much longer than the median one. It has no gain: what they wait
// for is the gain of other findings.
func (j *judge) unevenSteps(r *facts.Report) {
	if len(r.ByStep) <= leastSteps {
		return
	}
	loop, _, _ := strings.Cut(r.ByStep[0].Name, "#")
	for i := range r.ByStep {
		if name, _, _ := strings.Cut(r.ByStep[i].Name, "#"); name != loop {
			return // several loops
		}
	}
	steps := slices.Clone(r.ByStep[1:])
	slices.SortStableFunc(steps, func(a, b facts.Step) int { return cmp.Compare(b.Time, a.Time) })
	median := steps[len(steps)/2].Time
	var all, excess time.Duration
	var long []finding.Location
	for i := range steps {
		s := &steps[i]
		all += s.Time
		if float64(s.Time) >= longStep*float64(median) {
			excess += s.Time - median
			long = append(long, finding.Location{Name: s.Name, Time: s.Time, Count: 1})
		}
	}
	if all <= 0 || float64(len(long)) > mostLong*float64(len(steps)) {
		return
	}
	v := finding.New(semconv.GPUFindingKindUnevenSteps, finding.High)
	v.Where = finding.Longest(long)
	v.Chain = []string{
		fmt.Sprintf("%d of %d steps take at least %g times as long as the median", len(long), len(steps), longStep),
	}
	v.Evidence = fmt.Sprintf("%s longer than if they took %s, in %s", finding.Duration(excess), finding.Duration(median),
		finding.Names(v.Where))
	// The host's steps last as long as their work if they cover the window.
	j.uneven = float64(all) >= inStep*float64(j.length)
	j.note(v, float64(excess)/float64(all), semconv.FindingUnevenStepsThreshold)
}
