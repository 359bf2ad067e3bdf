// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"strings"
	"time"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/semconv"
)

// fusion judges elementwise kernels in a row, without operators that have a finding of low
// efficiency: what one writes and the next reads would stay in registers. Each of the tensors of an
// operator takes the same part of its time.
func (j *judge) fusion(r *facts.Report, claimed map[string]bool, needed float64) {
	var gain float64
	var links int64
	var where []finding.Location
	known := true
	for _, o := range r.Operators {
		if o.Handed == 0 || claimed[o.Name] || o.Time == 0 {
			continue
		}
		tensors := int64(3) // most have two inputs
		if n := int64(strings.Count(o.Shapes, "[")); n > 0 {
			tensors = n + 1
		} else {
			known = false
		}
		part := min(1, float64(o.Handed)/float64(tensors)/float64(o.Time)) * needed * float64(o.Alone)
		gain += part
		links += o.Links
		where = append(where, finding.Location{Name: o.WithShapes(), Time: time.Duration(part), Count: o.Kernels})
	}
	if gain < thresholdGain*float64(j.length) {
		return
	}
	where = finding.Longest(where)
	v := finding.Finding{
		Kind: semconv.GPUFindingKindFusion, Gain: time.Duration(gain), Where: where,
		Certainty: finding.Medium,
		Chain: []string{
			"elementwise kernels in a row write and read again what one kernel would keep in registers",
			fmt.Sprintf("%s moved bytes for %s that a fused kernel would not", j.device0(), finding.Duration(gain)),
		},
		Evidence: fmt.Sprintf("%s to the next elementwise kernel over as many elements; most in %s",
			finding.Count(links, "result goes", "results go"), finding.Names(where)),
	}
	if !known {
		v.Certainty = finding.Low
		v.Evidence += "; where shapes are not recorded, three tensors of equal size are assumed"
	}
	for _, o := range r.Operators {
		if o.Handed > 0 {
			claimed[o.Name] = true
		}
	}
	j.add(v)
}
