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
	pushed               time.Duration // of exposed, not of waits: exposed by the waits of earlier collectives
	shares               float64       // sum of exposed ÷ length
}

func (c *collective) add(a *active) {
	c.count++
	c.time += a.duration
	c.exposed += a.exposed
	if a.duration > 0 {
		c.shares += float64(a.exposed) / float64(a.duration)
	}
	if c.count == 1 || a.duration < c.least {
		c.least = a.duration
	}
}

// backlog is how much earlier the next collective of a stream would have run without the waits of
// the collectives before it. Where those waits were hidden by computing, the next one would have
// been, too: a late rank exposes transfers that it does not delay itself.
type backlog struct {
	stream, end int64
	hidden      time.Duration // waiting beside computing, not yet charged

	computed [64]struct{ launched, end int64 } // the last kernels that compute
	kernels  int
}

func (b *backlog) computes(end int64, l *timeline.Launch) {
	if l.Known {
		k := &b.computed[b.kernels%len(b.computed)]
		k.launched, k.end = l.Start, end
		b.kernels++
	}
}

// beside returns how long the device computed before the start of a collective that could have run
// beside it: it was launched, and the kernels launched before it, whose results it may need, had
// ended.
func (b *backlog) beside(start int64, l *timeline.Launch) int64 {
	if !l.Known {
		return 0
	}
	from, to := l.End, int64(0)
	for _, k := range b.computed[:min(b.kernels, len(b.computed))] {
		if to = max(to, k.end); k.launched < l.Start {
			from = max(from, k.end)
		}
	}
	return max(0, min(start, to)-from)
}

// queuedBehind is the largest pause between two collectives of which the second one was queued.
const queuedBehind = int64(20 * time.Microsecond)

func (b *backlog) add(a *active) {
	start := a.end - int64(a.duration)
	if a.stream != b.stream || start < b.end || start-b.end > queuedBehind {
		b.hidden = 0
	}
	b.stream, b.end = a.stream, a.end
	if a.duration <= 0 {
		return
	}
	c := a.coll
	part := float64(a.exposed) / float64(a.duration)
	n := min(b.hidden, time.Duration(float64(c.least)*part), time.Duration(a.queued))
	c.pushed += n
	b.hidden += time.Duration(float64(a.duration-c.least)*(1-part)) - n
}

func (d *Device) collectiveOf(a *timeline.Activity) *collective {
	k := collectiveKey{name: a.Name, collective: a.Collective, bytes: a.Bytes, group: a.Group}
	if a.Bytes == 0 {
		k.launched, k.occurrence = a.Launched, a.Occurrence
	}
	return boundedmap.Bounded(d.coll, k, collectiveKey{}, maxClasses)
}

// waiting returns the part of the exposed time in which the collectives waited for others: the time
// of each beyond the shortest of its kind, and what such waits pushed out of hiding. Kinds are
// distinguished by sizes, otherwise by positions in steps.
func (c *collective) waiting(k collectiveKey) time.Duration {
	if !c.comparable(k) {
		return 0
	}
	return max(0, min(c.exposed, c.exposed-time.Duration(float64(c.least)*c.shares)+c.pushed))
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
