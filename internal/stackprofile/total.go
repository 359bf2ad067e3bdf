// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package stackprofile

import (
	"strings"

	"github.com/otelgpu/otelgpu/internal/spanfacts"
)

// Total is a profile of each source, for a producer that knows the stack of each value, as
// profilers' files state it. It is not safe for concurrent use.
type Total struct {
	frames   map[Frame]*Frame // by their names as given
	stacks   map[stackKey]*Stack
	labels   map[Labels]*Labels
	profiles map[Source]*Profile
	samples  int
	merged   int64
}

// maxTotal bounds the samples of a Total, and the stacks of which they are the innermost.
const maxTotal = 1 << 18

// NewTotal returns an empty total.
func NewTotal() *Total {
	return &Total{
		frames: map[Frame]*Frame{}, stacks: map[stackKey]*Stack{}, labels: map[Labels]*Labels{},
		profiles: map[Source]*Profile{},
	}
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
	given := Frame{k, name, full}
	f := t.frames[given]
	if f == nil {
		if len(t.frames) >= maxTotal {
			return up
		}
		f = newFrame(k, name, full)
		t.frames[Frame{k, strings.Clone(name), strings.Clone(full)}] = f
	}
	key := stackKey{up, f}
	s := t.stacks[key]
	if s == nil {
		if up != nil && len(t.stacks) >= 2*maxTotal {
			return up
		}
		s = &Stack{Up: up, Frame: f, depth: 1}
		if up != nil {
			s.depth += up.depth
		}
		t.stacks[key] = s
	}
	return s
}

// Root returns the stack that has the service only.
func (t *Total) Root(in Source) *Stack { return t.Child(nil, Service, serviceName(in.Service), "") }

// Add adds a value. Beyond the limit on samples, values of further stacks are below "(other
// stacks)".
func (t *Total) Add(in Source, v Value) {
	p := t.profiles[in]
	if p == nil {
		p = &Profile{Source: in, Start: v.Start, End: v.End, samples: map[sampleKey]*Sample{}}
		t.profiles[in] = p
	}
	p.Start, p.End = min(p.Start, v.Start), max(p.End, v.End)
	unit := Time
	if v.Idle != NotIdle {
		unit, v.Stack, v.Labels.State = IdleTime, t.Child(v.Stack, Idle, v.Idle.String(), ""), v.Idle.state()
	}
	key := sampleKey{v.Stack, t.labels[v.Labels]}
	s := p.samples[key]
	if s == nil && t.samples >= maxTotal {
		t.merged++
		v.Labels = Labels{Rank: -1}
		key = sampleKey{t.Child(t.Root(in), Range, otherStacks, ""), t.labels[v.Labels]}
		s = p.samples[key]
	}
	if s == nil {
		if key.labels == nil {
			key.labels = new(Labels)
			*key.labels = v.Labels
			t.labels[v.Labels] = key.labels
		}
		t.samples++
		s = &Sample{Stack: key.stack, Labels: key.labels}
		p.samples[key] = s
	}
	s.Values[unit] += float64(v.Time)
	s.keep(v.Slowest, v.Link)
}

// Profiles returns the profiles, in the order of time and source.
func (t *Total) Profiles() (list []*Profile) {
	for _, p := range t.profiles {
		list = append(list, p)
	}
	sortProfiles(list)
	return list
}

// Merged returns how many values are below "(other stacks)".
func (t *Total) Merged() int64 { return t.merged }
