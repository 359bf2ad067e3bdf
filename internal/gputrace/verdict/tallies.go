// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package verdict

import "github.com/otelgpu/otelgpu/internal/keyed"

// opKey is an operator with the shapes of its inputs.
type opKey struct{ name, shape uint32 }

// operator is what one operator did on the device, over all its calls with the same shapes.
type operator struct {
	calls, kernels int64
	time           int64   // of its kernels
	alone          int64   // of that, what no other kernel claims
	moved          int64   // of that, by kernels that move bytes and compute nothing
	movedTime      int64   // of time, by those
	attention      int64   // of time, by parts of attention; see scores
	narrow         int64   // of alone
	empty          float64 // of narrow, the part of the device that no block fills
	work           Work    // of all calls that counted
	known          bool
	handed, links  int64            // time of kernels beside another elementwise one, once for each side; pairs
	names          map[uint32]int64 // time of its kernels by name
}

// KernelTimes are the times of all kernels by name.
func (d *Device) KernelTimes() map[uint32]int64 {
	m := make(map[uint32]int64, len(d.kern))
	for name, k := range d.kern {
		m[name] = k.time
	}
	return m
}

// kernel is what the kernels of one name did.
type kernel struct {
	count, time, alone int64
	comm               bool
	work               Work
	worked             int64 // time for which work was counted
}

// Bounds of what a device remembers. Beyond them shapes are not told apart, then names.
const (
	maxOperators = 1 << 14
	maxKernels   = 1 << 16
	maxClasses   = 1 << 12
)

func (d *Device) operatorOf(a *Activity, duration int64) *operator {
	rest := opKey{name: a.Operator}
	if len(d.ops) >= 2*maxOperators {
		rest.name = 0
	}
	o := keyed.Bounded(d.ops, opKey{a.Operator, a.Shape}, rest, maxOperators)
	if o.kernels++; o.kernels == 1 {
		o.names = map[uint32]int64{}
	}
	o.names[a.Name] += duration
	o.time += duration
	if a.Work != nil {
		o.calls++
		o.known = true
		o.work.FLOPs += a.Work.FLOPs
		o.work.Bytes += a.Work.Bytes
		o.work.Precision = a.Work.Precision
	}
	return o
}

func (d *Device) kernelOf(a *Activity, duration int64) *kernel {
	k := keyed.Bounded(d.kern, a.Name, 0, maxKernels)
	if k.count++; k.count == 1 {
		k.comm = a.Class == Communicating
	}
	k.time += duration
	return k
}

// collectiveKey tells collectives apart that take the same time when all ranks come together.
type collectiveKey struct {
	name       uint32 // of the kernel
	collective string
	bytes      int64
	group      int64
	launched   uint64 // launch configuration, where bytes are not stated
	place      int64  // among the collectives of a step, where bytes are not stated and steps are
}

type collective struct {
	count, time, exposed, least int64
	shares                      float64 // sum of exposed ÷ length
}

func (d *Device) collectiveOf(a *Activity) *collective {
	k := collectiveKey{name: a.Name, collective: a.Collective, bytes: a.Bytes, group: a.Group}
	if a.Bytes == 0 {
		k.launched, k.place = a.Launched, a.Place
	}
	return keyed.Bounded(d.coll, k, collectiveKey{}, maxClasses)
}

// waiting is the part of the exposed time in which the collectives waited for others: what each took longer than the
// shortest of its kind. Kinds are told apart by sizes, else by places in steps.
func (c *collective) waiting(k collectiveKey) int64 {
	if !c.comparable(k) {
		return 0
	}
	return max(0, min(c.exposed, c.exposed-int64(float64(c.least)*c.shares)))
}

// comparable reports whether there are enough of the kind, and a way to tell it from others.
func (c *collective) comparable(k collectiveKey) bool {
	return c.count >= leastRepeats && (k.bytes > 0 || k.place > 0)
}

// leastRepeats is how many collectives of a kind it takes to know what one takes at least.
const leastRepeats = 3

type copyKey struct {
	direction, memory string
}

// copies are the copies of one direction.
type copies struct {
	count, time, bytes, exposed int64
	stalled                     int64   // beside kernels, of migrations towards the device: those wait for pages
	in                          account // exposed time by the ranges that asked
}

func (d *Device) copyOf(a *Activity, duration int64) *copies {
	c := keyed.Bounded(d.copy, copyKey{a.Direction, a.Memory}, copyKey{}, maxClasses)
	c.count++
	c.time += duration
	c.bytes += a.Bytes
	return c
}
