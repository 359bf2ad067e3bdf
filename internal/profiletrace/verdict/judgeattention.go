// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"fmt"
	"strings"
	"time"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/semconv"
)

// Role is what a kernel is in attention that is computed in parts: a batched product makes the scores, a softmax
// follows, and another batched product uses them. The backward pass is alike.
type Role uint8

// Roles.
const (
	RoleOther   Role = iota
	RoleProduct      // a batched product of matrices
	RoleSoftmax
	RoleEnds // a plain product, a selection or fused attention, which is never between the two products
)

// scores follows what one stream does between two batched products.
type scores struct {
	parts   []scorePart // from the last product on; empty: there was none
	softmax bool
}

// scorePart is a kernel that makes, changes or uses scores.
type scorePart struct {
	op       *operator
	duration time.Duration
	moves    bool
}

// maxParts is how many kernels there may be from one product to the other: scaling, mask, casts, softmax, dropout.
const maxParts = 16

// attends takes note of attention in parts. Kernels in it that only move bytes count as that.
func (d *Device) attends(a *Activity, op *operator) {
	s := d.scores[a.Stream]
	part := scorePart{op, a.length(), a.Moves != MovesNothing}
	switch {
	case a.Role == RoleProduct && s.softmax:
		d.attentions++
		for _, p := range append(s.parts, part) {
			if !p.moves {
				p.op.attention += p.duration
			}
		}
		s.parts, s.softmax = s.parts[:0], false
	case a.Role == RoleProduct:
		s.parts = append(s.parts[:0], part)
	case len(s.parts) == 0 && a.Role == RoleOther:
		return
	case a.Role == RoleEnds:
		s.parts, s.softmax = s.parts[:0], false
	case len(s.parts) == 0 || len(s.parts) == maxParts:
		s.parts, s.softmax = s.parts[:0], false
	default:
		s.parts, s.softmax = append(s.parts, part), s.softmax || a.Role == RoleSoftmax
	}
	if _, known := d.scores[a.Stream]; known || len(d.scores) < maxClasses {
		d.scores[a.Stream] = s
	}
}

// attention judges attention in parts: one kernel would keep the scores in the multiprocessors, and do the products at
// the peak. Where their work or the peak is not known, only what is between the products counts. It returns the
// operators without that time.
func (j *judge) attention(d *Device, list []Operator, needed float64) []Operator {
	var alone, least float64
	var where []finding.Place
	rest := make([]Operator, 0, len(list))
	for _, o := range list {
		if o.attention == 0 || o.Time <= 0 {
			rest = append(rest, o)
			continue
		}
		part := min(1, float64(o.attention)/float64(o.Time))
		time := part * float64(o.Alone)
		alone += time
		if name := strings.ToLower(o.Name + o.Kernel); !contains(name, "softmax") && product(o.Name) {
			if peak := j.f.Peak.FLOPs.Of(o.Precision); peak > 0 && o.FLOPs > 0 {
				time = min(time, part*o.FLOPs/(reachable*peak)*1e9)
			}
			least += time
		}
		where = append(where, finding.Place{Name: o.withShapes(), In: o.Kernel, Time: o.Alone, Count: o.Kernels})
		if part < 1 {
			rest = append(rest, o.less(part))
		}
	}
	gain := needed * (alone - least)
	if gain < thresholdGain*float64(j.length) {
		return list
	}
	where = Longest(where)
	j.add(finding.Finding{
		Kind: semconv.GPUFindingKindUnfusedAttention, Gain: time.Duration(gain), Where: where, Certainty: finding.Medium,
		Chain: []string{
			"attention is computed in parts (a product, a softmax, a product), which write all scores to memory and read them " +
				"again",
			fmt.Sprintf("%s computed for %s where a kernel that keeps the scores on the chip would do in %s", j.device0(),
				finding.Duration(needed*alone), finding.Duration(needed*least)),
		},
		Evidence: fmt.Sprintf("%s; most in %s", finding.Count(d.attentions, "time", "times"), Names(where)),
		Remedy: "fused attention: scaled_dot_product_attention with a backend that is not math (sdpa_kernel; half " +
			"precision, a mask that it takes), FlashAttention, attn_implementation",
	})
	return rest
}

// less is the operator without a part of all that it did.
func (o Operator) less(part float64) Operator {
	left := 1 - part
	o.FLOPs, o.Bytes = left*o.FLOPs, left*o.Bytes
	return o.within(scaled(o.Time, left), scaled(o.Alone, left), left)
}

func scaled(t time.Duration, by float64) time.Duration { return time.Duration(by * float64(t)) }

// within is the operator with the rest of its times, and as much of what else is counted by time.
func (o Operator) within(of, alone time.Duration, left float64) Operator {
	o.Time, o.Alone = of, alone
	o.narrow, o.empty, o.handed = scaled(o.narrow, left), left*o.empty, scaled(o.handed, left)
	return o
}
