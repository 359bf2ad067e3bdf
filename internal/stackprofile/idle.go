// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package stackprofile

import (
	"cmp"
	"slices"

	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/semconv"
)

// timeline is a device's activities between which idle time was not counted yet.
type timeline struct {
	pending []activity
	horizon uint64 // no pending span of the device starts before
	busy    uint64 // end of the latest activity that was counted; 0: none
	sampled bool   // that activity
}

// activity is a span with device time and its stack.
type activity struct {
	start, end uint64
	launch     uint64 // 0: unknown
	stack      *Stack
	labels     *Labels
	source     *Source
	key        spanfacts.Key
	sampled    bool // similar ones were not
}

// settleIdle counts the idle time of each device up to the first span that waits.
func (b *Builder) settleIdle(all bool) {
	for _, t := range b.devices {
		t.horizon = ^uint64(0)
	}
	if !all {
		for i := range b.spans {
			if s := &b.spans[i]; s.device != nil {
				s.device.horizon = min(s.device.horizon, s.start)
			}
		}
	}
	for _, t := range b.devices {
		if len(t.pending) >= b.opts.MaxSpans {
			t.horizon = ^uint64(0)
		}
		b.idle(t)
	}
}

func (b *Builder) idle(t *timeline) {
	used := len(t.pending)
	if used == 0 {
		t.pending = nil
		return
	}
	slices.SortFunc(t.pending, func(x, y activity) int {
		return cmp.Or(cmp.Compare(x.start, y.start), cmp.Compare(y.end, x.end))
	})
	n := 0
	for ; n < len(t.pending) && t.pending[n].start < t.horizon; n++ {
		x := &t.pending[n]
		if t.busy > 0 && x.start > t.busy {
			if gap := x.start - t.busy; !x.sampled && !t.sampled && (b.opts.MaxGap < 0 || gap <= uint64(b.opts.MaxGap)) {
				b.gap(x, gap, t.busy)
			}
		} else if x.start < t.busy && n == 0 && x.end < t.busy {
			b.stats.IdleLate++ // the time around it may have been counted as idle
		}
		if x.end > t.busy {
			t.busy, t.sampled = x.end, x.sampled
		}
	}
	t.pending = slices.Delete(t.pending, 0, n)
	if cap(t.pending) > 4*used+1024 {
		t.pending = slices.Clone(t.pending)
	}
}

// IdleCause is why a device was idle, by the launch of the activity after it.
type IdleCause uint8

// Causes.
const (
	NotIdle IdleCause = iota
	IdleUnknown
	IdleLate   // launched while the device was idle
	IdleInTime // launched before
	idleCauses
)

// IdleBefore returns why a device was idle from an instant on until an activity that was launched
// at another; zero: unknown. Both are in ns of one clock.
func IdleBefore(launch, from uint64) IdleCause {
	switch {
	case launch > from:
		return IdleLate
	case launch > 0:
		return IdleInTime
	}
	return IdleUnknown
}

// String returns the name of the cause's frame.
func (c IdleCause) String() string {
	return [...]string{"", "idle (cause unknown)", "idle (launched late)", "idle (launched in time)"}[c]
}

// state returns the value of gpu.activity.state.
func (c IdleCause) state() string {
	if c == IdleLate {
		return semconv.GPUActivityStateStarved
	}
	return semconv.GPUActivityStateIdle
}

// idleKey finds the labels of idle time before an activity.
type idleKey struct {
	labels *Labels // of the activity
	state  string
}

// gap counts idle time before an activity.
func (b *Builder) gap(x *activity, length, from uint64) {
	reason := IdleBefore(x.launch, from)
	key := idleKey{x.labels, reason.state()}
	l, ok := b.idles.get(key)
	if !ok {
		idle := *x.labels
		idle.State = key.state
		l = b.labelled(idle)
		b.idles.put(key, l)
	}
	p := b.profile(x.start, x.source)
	p.start, p.end = min(p.start, from), max(p.end, x.start)
	b.sample(p, b.child(x.stack, b.reasons[reason]), l).addIdle(length, x.key)
}
