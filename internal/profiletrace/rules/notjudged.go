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
	"github.com/otelgpu/otelgpu/internal/profiletrace/timeline"
	"github.com/otelgpu/otelgpu/semconv"
)

// notableReason is the part of the time that was not judged from which on the remedy mentions a
// reason.
const notableReason = semconv.FindingNotJudgedReason

// notJudged reports kernels that could not be compared with the device's peak, if they fill most of
// the window: without it, a device that computes slowly but without gaps would be healthy. Kernels
// that only move bytes are judged as such.
func (j *judge) notJudged(d *facts.Totals, r *facts.Report) {
	type reason struct {
		text, remedy string
		time         time.Duration
	}
	left := time.Duration(d.Parts[timeline.Computing])
	var noPeak time.Duration
	for _, o := range r.Operators {
		switch {
		case o.PeakShare > 0:
			left -= o.Alone
		case o.Calls > 0:
			left -= o.Alone
			noPeak += o.Alone - o.Moved
		default:
			left -= o.Moved
		}
	}
	opaque := min(d.Opaque, max(0, left))
	reasons := []reason{
		{
			"no operator's work is known",
			"record operators with the shapes of their inputs (record_shapes=True, also of emit_nvtx)",
			max(0, left-opaque),
		},
		{
			"compiled regions and graphs do not show their operators",
			"name the traces in which the graphs were captured (--captures), or profile once without graphs and compilation",
			opaque,
		},
		{"no peak is known", "name a device that docs/peaks.md has (--device)", noPeak},
	}
	if !j.f.Peak.Known {
		reasons[2].text += ": " + j.f.Peak.Reason
	}
	slices.SortStableFunc(reasons, func(a, b reason) int { return cmp.Compare(b.time, a.time) })
	sum := reasons[0].time + reasons[1].time + reasons[2].time
	if sum == 0 || j.length <= 0 {
		return
	}
	var because, remedies []string
	for _, x := range reasons {
		if float64(x.time) >= notableReason*float64(sum) {
			because = append(because, fmt.Sprintf("%s (%s)", x.text, finding.Duration(x.time)))
			remedies = append(remedies, x.remedy)
		}
	}
	evidence := fmt.Sprintf("%s of %s", finding.Duration(sum), finding.Duration(j.length))
	if len(because) > 1 {
		evidence += ": " + strings.Join(because, ", ")
	}
	v := finding.Finding{
		Kind: semconv.GPUFindingKindNotJudged, Certainty: finding.High,
		Chain: []string{
			reasons[0].text,
			fmt.Sprintf("whether the kernels of %s are efficient is not known for %s", j.device0(), finding.Duration(sum)),
		},
		Evidence: evidence, Remedy: strings.Join(remedies, "; "),
	}
	if j.largest.Gain > 0 {
		v.Evidence += fmt.Sprintf("; of what was judged, the largest is %s with %.3g %%", j.largest.Kind, 100*j.largest.Share)
	}
	j.note(v, float64(sum)/float64(j.length), thresholdNotJudged)
}
