// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package stackprofile

import (
	"math"

	"github.com/otelgpu/otelgpu/internal/spanfacts"
)

// Total is a profile of each source, for a producer that knows the stack of each value, as
// profilers' files state it. It is not safe for concurrent use.
type Total struct{ b *Builder }

// maxTotal bounds the samples of a Total.
const maxTotal = 1 << 18

// NewTotal returns an empty total.
func NewTotal() *Total {
	b := New(Options{MaxStacks: maxTotal, Repeats: -1})
	b.frames.max, b.stacks.max = maxTotal, maxTotal
	return &Total{b}
}

// Value is what one stack of a source has: time on a device, or idle time before its activities.
type Value struct {
	Stack      *Stack
	Labels     Labels
	Idle       IdleCause // NotIdle: Time is on a device
	Time       int64     // ns
	Start, End uint64    // unix ns, of what the value is from
	Slowest    int64     // ns, of the activity that Link names
	Link       spanfacts.Key
}

// Child returns a stack with one more frame within; up nil: an empty stack.
func (t *Total) Child(up *Stack, k Kind, name, full string) *Stack {
	return t.b.child(up, t.b.frame(k, name, full))
}

// Root returns the stack that has the service only.
func (t *Total) Root(in Source) *Stack { return t.b.rootOf(t.b.source(in)) }

// Add adds a value. Beyond the limit on samples, values of further stacks are below "(other
// stacks)".
func (t *Total) Add(in Source, v Value) {
	p := t.b.profile(0, t.b.source(in))
	p.start, p.end = min(p.start, v.Start), max(p.end, v.End)
	unit := Time
	if v.Idle != NotIdle {
		unit, v.Stack, v.Labels.State = IdleTime, t.b.child(v.Stack, t.b.reasons[v.Idle]), v.Idle.state()
	}
	s := t.b.sample(p, v.Stack, t.b.labelled(v.Labels))
	s.Values[unit] += float64(v.Time)
	s.keep(v.Slowest, v.Link)
}

// Profiles returns copies of the profiles, in the order of time and source.
func (t *Total) Profiles() []*Profile { return t.b.Between(0, math.MaxUint64) }

// Merged returns how many values are below "(other stacks)".
func (t *Total) Merged() int64 { return t.b.stats.Overflow }
