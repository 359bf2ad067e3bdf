// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"time"

	"github.com/otelgpu/otelgpu/internal/profiletrace/timeline"
	"github.com/otelgpu/otelgpu/semconv"
)

// scores follows what one stream does between two batched products.
type scores struct {
	parts   []scorePart // from the last product on; empty: none yet
	softmax bool
}

// scorePart is a kernel that computes, changes or uses scores.
type scorePart struct {
	op       *operatorSum
	duration time.Duration
	moves    bool
}

// maxParts is how many kernels there may be from one product to the other: scaling, mask, casts,
// softmax, dropout.
const maxParts = semconv.FindingUnfusedAttentionKernels

// attends records attention in parts. Kernels in it that only move bytes count as such.
func (d *Device) attends(a *timeline.Activity, op *operatorSum) {
	s := d.scores[a.Stream]
	part := scorePart{op, a.Length(), a.Moves != timeline.MovesNothing}
	switch {
	case a.Role == timeline.RoleProduct && s.softmax:
		d.Attentions++
		for _, p := range append(s.parts, part) {
			if !p.moves {
				p.op.Attention += p.duration
			}
		}
		s.parts, s.softmax = s.parts[:0], false
	case a.Role == timeline.RoleProduct:
		s.parts = append(s.parts[:0], part)
	case len(s.parts) == 0 && a.Role == timeline.RoleOther:
		return
	case a.Role == timeline.RoleEnds:
		s.parts, s.softmax = s.parts[:0], false
	case len(s.parts) == 0 || len(s.parts) == maxParts:
		s.parts, s.softmax = s.parts[:0], false
	default:
		s.parts, s.softmax = append(s.parts, part), s.softmax || a.Role == timeline.RoleSoftmax
	}
	if _, known := d.scores[a.Stream]; known || len(d.scores) < maxClasses {
		d.scores[a.Stream] = s
	}
}
