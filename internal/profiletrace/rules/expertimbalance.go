// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/semconv"
)

// unevenTokens is the difference between what a rank sends to the experts of others and what its own experts receive,
// as a part of their mean, above which waiting in all-to-alls is caused by the experts: an even router stays far below
// it.
const unevenTokens = semconv.FindingExpertImbalanceDifference

// experts judges waiting in all-to-alls whose two sides differ, because the router gives some ranks more tokens. It
// returns the report without that time. Where the sides are equal, a rank is late for another reason.
func (j *judge) experts(d *facts.Totals, r *facts.Report) *facts.Report {
	e := &d.Experts
	waiting, uneven := e.Waiting(), e.Uneven()
	if uneven < unevenTokens || float64(waiting) < thresholdGain*float64(j.length) {
		return r
	}
	rest, left := *r, waiting
	rest.Collectives = slices.Clone(r.Collectives)
	for i := range rest.Collectives {
		if c := &rest.Collectives[i]; strings.HasPrefix(c.Name, "all_to_all") {
			for _, t := range []*time.Duration{&c.Waiting, &c.Moving} {
				n := min(left, *t)
				*t, left = *t-n, left-n
			}
		}
	}
	v := finding.New(semconv.GPUFindingKindExpertImbalance, finding.Medium)
	v.Gain = waiting
	v.Where = []finding.Location{{Name: "all_to_all", Time: waiting, Count: e.Count}}
	v.Chain = []string{
		"the router gives the experts of some ranks more tokens", "the other ranks wait for them in all-to-alls",
		fmt.Sprintf("%s computed nothing for %s", j.device0(), finding.Duration(waiting)),
	}
	v.Evidence = fmt.Sprintf("the two sides of %s differ by %.3g %%; longer than the fastest takes for its size: %s of %s",
		finding.Count(e.Count, "all-to-all", "all-to-alls"), 100*uneven, finding.Duration(waiting),
		finding.Duration(e.Exposed))
	j.add(v)
	return &rest
}
