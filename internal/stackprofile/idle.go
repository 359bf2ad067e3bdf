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
	evicted bool   // it is no longer in Builder.devices
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
	if len(t.pending) == 0 {
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
	if cap(t.pending) > 4*len(t.pending)+1024 {
		t.pending = slices.Clone(t.pending)
	}
}

// gap counts idle time before an activity.
func (b *Builder) gap(x *activity, length, from uint64) {
	l, name := *x.labels, "idle (cause unknown)"
	l.State = semconv.GPUActivityStateIdle
	switch {
	case x.launch > from:
		l.State, name = semconv.GPUActivityStateStarved, "idle (launched late)"
	case x.launch > 0:
		name = "idle (launched in time)"
	}
	p := b.profile(x.start, x.source)
	p.start, p.end = min(p.start, from), max(p.end, x.start)
	stack := b.child(x.stack, b.frame(Idle, name, ""))
	b.sample(p, stack, b.labelled(l)).add(0, 0, float64(length), &span{key: x.key, time: int64(length)})
}
