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
	run      int    // number of preceding runs of that kernel of that operator
	launched uint64
	shape    uint32
	duration time.Duration
}

// longestChain is how often one kernel of one operator follows itself over the same elements: x
// times a times b.
const longestChain = 1

// chain records two consecutive elementwise kernels over as many elements: the first writes what
// the second reads.
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
	// Consecutive runs of one kernel, as of an optimizer, go over as many tensors, and none reads
	// what the previous one wrote.
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
