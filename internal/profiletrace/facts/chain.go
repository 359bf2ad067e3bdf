// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"time"

	"github.com/otelgpu/otelgpu/internal/profiletrace/timeline"
)

// link is an elementwise kernel that another one may follow.
type link struct {
	op       *operatorSum
	name     uint32 // of the kernel
	run      int    // how many of that kernel of that operator came right before
	launched uint64
	shape    uint32
	duration time.Duration
}

// longestChain is how often one kernel of one operator follows itself over the same elements: x times a times b.
const longestChain = 1

// chain takes note of two elementwise kernels in a row over as many elements: the first writes what the second reads.
func (d *Device) chain(a *timeline.Activity, op *operatorSum) {
	before := d.chains[a.Stream]
	if !a.Maps || a.Length() < ShortKernel {
		if before.op != nil {
			delete(d.chains, a.Stream)
		}
		return
	}
	now := link{op, a.Name, 0, a.Launched, a.Shape, a.Length()}
	if before.op == op && before.name == a.Name {
		now.run = before.run + 1
	}
	// Many of one kernel in a row go over as many tensors, as of an optimizer, and none reads what the one before wrote.
	if before.op != nil && now.run <= longestChain && (now.launched != 0 && now.launched == before.launched ||
		now.shape != 0 && now.shape == before.shape) {
		before.op.Handed += before.duration
		op.Handed += now.duration
		op.Links++
	}
	if len(d.chains) < maxClasses {
		d.chains[a.Stream] = now
	}
}
