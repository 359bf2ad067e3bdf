// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package link

import (
	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
)

// Stacks are the distinct stacks of host ranges around launches, each as its innermost range and
// the stack around that.
type Stacks struct {
	list   []StackRange
	depths []uint16
	of     map[StackRange]uint32
	loops  []string
	loopOf map[string]uint32
}

// StackRange is the innermost range of a stack.
type StackRange struct {
	Kind event.Kind
	name uint32 // of steps the number of their loop
	Up   uint32 // the stack around it; steps are outermost
}

// NoRanges is the stack of what no range is around. Stack 0 is not known.
const NoRanges = 1

// Limits of stacks. Beyond them, ranges count for the stack around them.
const (
	maxStacks     = 1 << 18
	maxStackDepth = 1000
)

// At returns the innermost range of a stack other than NoRanges.
func (t *Stacks) At(stack uint32) StackRange { return t.list[stack] }

// Name returns the name of a range, of a step the name of its loop.
func (t *Stacks) Name(r StackRange, names *event.Names) string {
	if r.Kind == event.KindStep {
		return t.loops[r.name]
	}
	return names.Name(r.name)
}

// enter returns the stack of what is inside a range.
func (t *Stacks) enter(r StackRange) uint32 {
	if at, ok := t.of[r]; ok {
		return at
	}
	if t.of == nil {
		t.list, t.depths, t.of = make([]StackRange, NoRanges+1), make([]uint16, NoRanges+1), map[StackRange]uint32{}
	}
	if len(t.list) >= maxStacks || t.depths[r.Up] >= maxStackDepth {
		return r.Up
	}
	at := uint32(len(t.list))
	t.list, t.depths, t.of[r] = append(t.list, r), append(t.depths, t.depths[r.Up]+1), at
	return at
}

// stackOf returns the stack of what is inside the innermost of the open ranges of a thread. It is
// found when something is launched, because most ranges launch nothing.
func (s *Sweep) stackOf(open []frame) uint32 {
	if s.observer == nil {
		return NoRanges
	}
	n := len(open)
	for n > 0 && open[n-1].stack == 0 {
		n--
	}
	stack := uint32(NoRanges)
	if n > 0 {
		stack = open[n-1].stack
	}
	for i := n; i < len(open); i++ {
		f := &open[i]
		if stack == NoRanges && f.base != 0 {
			stack = f.base
		}
		switch f.kind {
		case event.KindStep:
			stack = f.Step.stack
		case event.KindAnnotation, event.KindModule, event.KindOperator, event.KindOther:
			stack = s.in.Stacks.enter(StackRange{f.kind, f.nameID, stack})
		}
		f.stack = stack
	}
	return stack
}

// loop returns the stack inside a step of a loop.
func (t *Stacks) loop(name string) uint32 {
	at, ok := t.loopOf[name]
	if !ok {
		if len(t.loops) >= maxStacks {
			return NoRanges
		}
		if t.loopOf == nil {
			t.loopOf = map[string]uint32{}
		}
		at = uint32(len(t.loops))
		t.loops, t.loopOf[name] = append(t.loops, name), at
	}
	return t.enter(StackRange{event.KindStep, at, NoRanges})
}
