// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"cmp"
	"maps"
	"slices"

	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
)

// HostTime is an operator or a named range on the host. Times are ns.
type HostTime struct {
	Name  string `json:"name"`
	Count int64  `json:"count"`
	Time  int64  `json:"time_ns"` // with what it called
	Self  int64  `json:"self_ns"`
}

// HostStep is a step on the host.
type HostStep struct {
	Name string `json:"name"`
	Time int64  `json:"time_ns"`
}

// hostTimes sums the ranges of the host, of which a profile without a device consists.
type hostTimes struct {
	names map[uint32]*HostTime
	open  map[uint32][]openRange // by track, the innermost last
	steps []HostStep
}

type openRange struct {
	end  int64
	name uint32
}

// add adds a range; they come by their start.
func (h *hostTimes) add(x *event.Record, name func(uint32) string) {
	switch x.Kind {
	case event.KindStep:
		if len(h.steps) < shownProfileStep {
			h.steps = append(h.steps, HostStep{name(x.Name), x.Duration})
		}
		return
	case event.KindOperator, event.KindAnnotation:
	default:
		return
	}
	t := h.names[x.Name]
	if t == nil {
		if len(h.names) >= maxNames {
			return
		}
		t = &HostTime{}
		h.names[x.Name] = t
	}
	stack := h.open[x.Track]
	for len(stack) > 0 && stack[len(stack)-1].end <= x.Start() {
		stack = stack[:len(stack)-1]
	}
	if n := len(stack); n > 0 {
		h.names[stack[n-1].name].Self -= x.Duration
	}
	t.Count++
	t.Self += x.Duration
	if !slices.ContainsFunc(stack, func(o openRange) bool { return o.name == x.Name }) {
		t.Time += x.Duration
	}
	h.open[x.Track] = append(stack, openRange{x.Start() + x.Duration, x.Name})
}

// list returns the names with the most time of their own.
func (h *hostTimes) list(name func(uint32) string) []HostTime {
	out := make([]HostTime, 0, len(h.names))
	for _, id := range slices.Sorted(maps.Keys(h.names)) {
		t := *h.names[id]
		t.Name, t.Self = name(id), max(0, t.Self)
		out = append(out, t)
	}
	slices.SortStableFunc(out, func(a, b HostTime) int { return cmp.Compare(b.Self, a.Self) })
	out, _ = most(out, shownOperators)
	return out
}
