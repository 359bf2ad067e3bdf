// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"strings"
	"time"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/internal/profiletrace/timeline"
	"github.com/otelgpu/otelgpu/semconv"
)

// attention judges attention in parts: one fused kernel would keep the scores on chip, and run the
// products at the peak. If their work or the peak is unknown, only the time between the products
// counts. It returns the operators without that time.
func (j *judge) attention(d *facts.Totals, list []facts.Operator, needed float64) []facts.Operator {
	var alone, least float64
	var where []finding.Location
	rest := make([]facts.Operator, 0, len(list))
	for _, o := range list {
		if o.Attention == 0 || o.Time <= 0 {
			rest = append(rest, o)
			continue
		}
		part := min(1, float64(o.Attention)/float64(o.Time))
		time := part * float64(o.Alone)
		alone += time
		if name := strings.ToLower(o.Name + o.Kernel); !timeline.Contains(name, "softmax") && product(o.Name) {
			if peak := j.f.Peak.FLOPs.Of(o.Precision); peak > 0 && o.FLOPs > 0 {
				time = min(time, part*o.FLOPs/(reachable*peak)*1e9)
			}
			least += time
		}
		where = append(where, finding.Location{Name: o.WithShapes(), In: o.Kernel, Time: o.Alone, Count: o.Kernels})
		if part < 1 {
			rest = append(rest, o.Less(part))
		}
	}
	gain := needed * (alone - least)
	if gain < thresholdGain*float64(j.length) {
		return list
	}
	where = finding.Longest(where)
	j.add(finding.Finding{
		Kind: semconv.GPUFindingKindUnfusedAttention, Gain: time.Duration(gain), Where: where, Certainty: finding.Medium,
		Chain: []string{
			"attention is computed in parts (a product, a softmax, a product), which write all scores to memory and read them " +
				"again",
			fmt.Sprintf("%s computed for %s where a kernel that keeps the scores on the chip would do in %s", j.device0(),
				finding.Duration(needed*alone), finding.Duration(needed*least)),
		},
		Evidence: fmt.Sprintf("%s; most in %s", finding.Count(d.Attentions, "time", "times"), finding.Names(where)),
	})
	return rest
}
