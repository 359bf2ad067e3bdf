// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"slices"

	"github.com/otelgpu/otelgpu/gpuspan/internal/record"
)

// MaxHeld bounds the records of all nests that wait for their outermost section. Further records are measured and
// counted but get no span.
const MaxHeld = 8192

// nester keeps outermost sections until those inside them are resolved.
type nester struct {
	placer
	spare   *record.SpareNests
	nests   []*record.Nest // empty ones
	Waiting []*record.Slot // outermost sections that wait for sections in them
	HeldNow int            // records retained by waiting nests
}

// settleInner passes on a resolved section that is inside another, so that a long outer section does not block short
// inner ones.
func (t *nester) settleInner(r *record.Record, s *record.Stream, root *record.Slot) {
	r.HeldOn = s
	if root.Nest == nil && t.HeldNow < MaxHeld {
		root.Held = append(root.Held, r)
		t.HeldNow++
		return
	}
	n := t.newNestOf(s, r)
	// If its outermost section was abandoned while waiting for it, the parent is that section's span.
	if n.Late = root.Nest; n.Late == nil {
		t.p.Drop(record.DropNestLimit)
		n.Around = root.Rec.Op
	}
	t.queue(root.Stream, n)
}

func (t *nester) newNest(s *record.Stream) *record.Nest {
	if len(t.nests) == 0 {
		t.nests = t.spare.TakeAll(t.nests)
	}
	var n *record.Nest
	if last := len(t.nests) - 1; last >= 0 {
		n, t.nests = t.nests[last], t.nests[:last]
	} else {
		n = &record.Nest{}
	}
	n.Stream, n.Root = s, &n.Own
	return n
}

// newNestOf returns the nest of a record that is out of its slot already.
func (t *nester) newNestOf(s *record.Stream, root *record.Record) *record.Nest {
	n := t.newNest(s)
	n.Root = root
	return n
}

// settleRoot handles a resolved outermost section, whose slot is kept until the sections in it are resolved.
func (t *nester) settleRoot(sl *record.Slot) {
	if sl.Refs.Load() == 1 {
		t.complete(sl)
		return
	}
	sl.Resolved = t.p.Clock.Now()
	sl.Rec.Done = true
	sl.Hold()
	t.Waiting = append(t.Waiting, sl)
}

// unref drops a reference to an outermost slot. The slot's own reference goes last, in complete.
func (t *nester) unref(root *record.Slot) {
	if root.Refs.Add(-1) == 1 && root.Rec.Done && root.State == record.SlotHeld {
		t.Waiting = slices.DeleteFunc(t.Waiting, func(o *record.Slot) bool { return o == root })
		t.complete(root)
	}
}

// CheckWaiting completes nests whose inner sections are gone, and abandons nests that waited too long.
func (t *nester) CheckWaiting(now int64, all bool) {
	t.Waiting = slices.DeleteFunc(t.Waiting, func(sl *record.Slot) bool {
		if sl.Refs.Load() == 1 {
			t.complete(sl)
			return true
		}
		if sl.Nest == nil && (all || record.TooOld(sl.Resolved, now, t.p.Cfg.NestDeadline)) {
			t.part(sl, takeOut(sl))
		}
		return false
	})
}

// part passes a nest on before all sections in it are resolved. The rest follows late.
func (t *nester) part(sl *record.Slot, r *record.Record) {
	n := t.newNestOf(sl.Stream, r)
	n.Kept = true
	sl.Nest = n
	t.takeHeld(sl, n)
	t.queue(sl.Stream, n)
}

// complete passes on a nest and frees the outermost section's slot.
func (t *nester) complete(sl *record.Slot) {
	if sl.Nest != nil {
		sl.Nest = nil
		free(sl)
		return
	}
	n := t.newNest(sl.Stream)
	t.takeHeld(sl, n)
	sl.Stream.Mu.Lock()
	n.Own.Take(sl)
	sl.Stream.Release(sl)
	sl.Stream.Mu.Unlock()
	t.queue(n.Stream, n)
}

func (t *nester) takeHeld(sl *record.Slot, n *record.Nest) {
	n.Held, sl.Held = sl.Held, n.Held
	t.HeldNow -= len(n.Held)
}

// settleBoundary passes on the resolved boundaries of a step.
func (t *nester) settleBoundary(sl *record.Slot) {
	sl.Hold()
	n := t.newNest(sl.Stream)
	n.Step = sl
	t.queue(sl.Stream, n)
}

// nestsPending reports whether a nest waits for its deadline. Nests past their deadline are not visited: an inner
// section wakes the thread if it ends after all.
func (t *nester) nestsPending() bool {
	return slices.ContainsFunc(t.Waiting, func(sl *record.Slot) bool { return sl.Nest == nil })
}
