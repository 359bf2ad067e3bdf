// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"time"

	"github.com/otelgpu/otelgpu/internal/boundedmap"
	"github.com/otelgpu/otelgpu/internal/profiletrace/timeline"
	"github.com/otelgpu/otelgpu/semconv"
)

// opKey is an operator with the shapes of its inputs.
type opKey struct{ name, shape uint32 }

// operator is an operator while its calls with the same shapes are summed up.
type operatorSum struct {
	Operator
	names map[uint32]time.Duration // time of its kernels by name
}

// kernel is the kernels of one name while they are summed up.
type kernel struct {
	Kernel
	worked time.Duration // for which work was counted
}

// Limits of what a device keeps. Beyond them shapes are not distinguished, then names.
const (
	maxOperators = 1 << 14
	maxKernels   = 1 << 16
	maxClasses   = 1 << 12
)

func (d *Device) operatorOf(a *timeline.Activity, duration time.Duration) *operatorSum {
	rest := opKey{name: a.Operator}
	if len(d.ops) >= 2*maxOperators {
		rest.name = 0
	}
	o := boundedmap.Bounded(d.ops, opKey{a.Operator, a.Shape}, rest, maxOperators)
	if o.Kernels++; o.Kernels == 1 {
		o.names = map[uint32]time.Duration{}
	}
	o.names[a.Name] += duration
	o.Time += duration
	if a.Work != nil {
		o.Calls++
		o.FLOPs += a.Work.FLOPs
		o.Bytes += a.Work.Bytes
		o.Precision = a.Work.Precision
	}
	return o
}

func (d *Device) kernelOf(a *timeline.Activity, duration time.Duration) *kernel {
	k := boundedmap.Bounded(d.kern, a.Name, 0, maxKernels)
	if k.Count++; k.Count == 1 {
		k.Comm = a.Class == timeline.Communicating
	}
	k.Time += duration
	k.launch(&a.Config, duration)
	return k
}

// collectiveKey identifies collectives that take equally long if all ranks arrive together.
type collectiveKey struct {
	name       uint32 // of the kernel
	collective string
	bytes      int64
	group      int64
	launched   uint64 // launch configuration, where bytes are not stated
	occurrence int64  // among the collectives of a step, where bytes are not stated and steps are
}

// collective is the collectives of a kind while they are summed up.
type collective struct {
	count                int64
	time, exposed, least time.Duration
	shares               float64 // sum of exposed ÷ length
}

func (d *Device) collectiveOf(a *timeline.Activity) *collective {
	k := collectiveKey{name: a.Name, collective: a.Collective, bytes: a.Bytes, group: a.Group}
	if a.Bytes == 0 {
		k.launched, k.occurrence = a.Launched, a.Occurrence
	}
	return boundedmap.Bounded(d.coll, k, collectiveKey{}, maxClasses)
}

// waiting returns the part of the exposed time in which the collectives waited for others: the time
// of each beyond the shortest of its kind. Kinds are distinguished by sizes, otherwise by positions
// in steps.
func (c *collective) waiting(k collectiveKey) time.Duration {
	if !c.comparable(k) {
		return 0
	}
	return max(0, min(c.exposed, c.exposed-time.Duration(float64(c.least)*c.shares)))
}

// comparable reports whether there are enough collectives of the kind, and a way to distinguish it.
func (c *collective) comparable(k collectiveKey) bool {
	return c.count >= leastRepeats && (k.bytes > 0 || k.occurrence > 0)
}

// leastRepeats is the minimum number of collectives of a kind to know their shortest time.
const leastRepeats = semconv.FindingLateRankCollectives

// copyKey identifies a kind of copies.
type copyKey struct{ direction, memory string }

func (d *Device) copyOf(a *timeline.Activity, duration time.Duration) *Copy {
	c := boundedmap.Bounded(d.copies, copyKey{a.Direction, a.Memory}, copyKey{}, maxClasses)
	c.Count++
	c.Time += duration
	c.Bytes += a.Bytes
	return c
}
