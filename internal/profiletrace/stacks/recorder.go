// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package stacks sums the time of a profile's activities, and the idle time before them, by the
// host ranges around their launches.
package stacks

import (
	"cmp"
	"maps"
	"slices"

	"github.com/otelgpu/otelgpu/internal/profiletrace/emit"
	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
	"github.com/otelgpu/otelgpu/internal/profiletrace/link"
	"github.com/otelgpu/otelgpu/internal/profiletrace/vocabulary"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/internal/stackprofile"
	"github.com/otelgpu/otelgpu/semconv"
)

// Recorder is the observer of a profile.
type Recorder struct {
	in      *link.Input
	ids     *emit.Emitter // nil: spans have no identities
	sums    map[key]*sum
	rest    sum             // of what is beyond the limit
	busy    map[int64]int64 // by device: end of its activities so far
	started bool
	from    int64
	to      int64
}

// key identifies equal stacks without their names.
type key struct {
	stack, name      uint32
	operator, within uint32 // of a graph's node when it was captured
	kind             event.Kind
	communicates     bool
	graph            bool // the activity is all work of a graph's launch
	pageable         bool
	device           int64
}

// sum is the time of equal stacks, and their idle time by its cause.
type sum [stackprofile.IdleInTime + 1]struct {
	time, slowest int64
	link          spanfacts.Key // of the slowest activity
}

// maxSums bounds the distinct stacks.
const maxSums = 1 << 18

// New returns the observer of a profile.
func New(in *link.Input) *Recorder {
	r := &Recorder{in: in, sums: map[key]*sum{}, busy: map[int64]int64{}}
	r.ids, _ = emit.NewEmitter(in, emit.Config{Detail: emit.LevelKernels}, &emit.Offers{})
	return r
}

// Range does nothing: activities have the ranges around them.
func (*Recorder) Range(*event.Record) {}

// Step does nothing.
func (*Recorder) Step(*link.Step) {}

// Activity adds an activity, and the idle time of its device before it.
func (r *Recorder) Activity(a *link.Activity) {
	if a.Duration <= 0 {
		return
	}
	if !r.started {
		r.started, r.from = true, a.Start
	}
	r.to = max(r.to, a.End)
	s := r.sumOf(a)
	r.add(s, stackprofile.NotIdle, a.Duration, a)
	busy, known := r.busy[a.Device]
	if known && a.Start > busy {
		launch := uint64(0)
		if a.HasLaunch && a.Launch.Start <= a.Start {
			launch = uint64(r.in.Meta.Base + a.Launch.Start)
		}
		r.add(s, stackprofile.IdleBefore(launch, uint64(r.in.Meta.Base+busy)), a.Start-busy, a)
	}
	if !known || a.End > busy {
		r.busy[a.Device] = a.End
	}
}

func (r *Recorder) sumOf(a *link.Activity) *sum {
	k := key{
		stack: max(a.Launch.Stack, link.NoRanges), name: a.Name, kind: a.Kind, communicates: a.Communicates,
		graph: a.Detail.WholeGraph, pageable: a.Detail.HostMemory == semconv.GPUCopyHostMemoryPageable, device: a.Device,
	}
	if a.Replayed {
		k.operator, k.within = a.Launch.Op, a.Within
	}
	s := r.sums[k]
	if s == nil {
		if len(r.sums) >= maxSums {
			return &r.rest
		}
		s = &sum{}
		r.sums[k] = s
	}
	return s
}

func (r *Recorder) add(to *sum, cause stackprofile.IdleCause, time int64, a *link.Activity) {
	x := &to[cause]
	if x.time += time; time > x.slowest {
		if x.slowest = time; r.ids != nil {
			x.link = r.ids.Key(a)
		}
	}
}

// AddTo adds what was recorded to a total, the largest times first.
func (r *Recorder) AddTo(t *stackprofile.Total) {
	in := stackprofile.Source{
		Service:   cmp.Or(r.in.Resource(semconv.ServiceNameKey), r.in.Meta.Service, r.in.Service),
		Namespace: r.in.Resource("service.namespace"), Version: r.in.Resource("service.version"),
	}
	rank, _ := r.in.Rank()
	n := names{Recorder: r, t: t, root: t.Root(in), stacks: map[uint32]*stackprofile.Stack{}}
	n.outside = t.Child(n.root, stackprofile.Range, r.in.Root, "")
	put := func(k key, s *sum) {
		labels := stackprofile.Labels{Rank: rank}
		stack := n.root
		if k.kind != 0 {
			labels.Device, labels.Model = r.in.Meta.DeviceOf(k.device).ID, r.in.ModelOf(k.device)
			stack = n.activity(k)
		}
		if k.communicates {
			labels.Phase = semconv.GPUOperationCategoryComm
		}
		for cause, x := range s {
			if x.time > 0 {
				t.Add(in, stackprofile.Value{
					Stack: stack, Labels: labels, Idle: stackprofile.IdleCause(cause), Time: x.time,
					Start: uint64(r.in.Meta.Base + r.from), End: uint64(r.in.Meta.Base + r.to), Slowest: x.slowest, Link: x.link,
				})
			}
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(r.sums), func(a, b key) int {
		return cmp.Or(cmp.Compare(r.sums[b][0].time, r.sums[a][0].time), cmp.Compare(a.stack, b.stack),
			cmp.Compare(a.name, b.name), cmp.Compare(a.device, b.device))
	}) {
		put(k, r.sums[k])
	}
	put(key{}, &r.rest)
}

// names makes the stacks of a total.
type names struct {
	*Recorder
	t             *stackprofile.Total
	root, outside *stackprofile.Stack // of the service, and of what is in no step
	stacks        map[uint32]*stackprofile.Stack
}

func (n *names) stack(id uint32) *stackprofile.Stack {
	if id == link.NoRanges {
		return n.outside
	}
	if s := n.stacks[id]; s != nil {
		return s
	}
	x := n.in.Stacks.At(id)
	up := n.root
	if x.Kind != event.KindStep || n.in.Meta.TraceParent != "" {
		up = n.stack(x.Up)
	}
	name := n.in.Stacks.Name(x, n.in.Names)
	kind := stackprofile.HostKind(name)
	switch x.Kind {
	case event.KindStep:
		kind = stackprofile.Step
	case event.KindModule:
		class, _, numbered := vocabulary.SplitInstance(name)
		if name = class; numbered {
			kind = stackprofile.Module
		}
	}
	s := n.t.Child(up, kind, spanName(name), "")
	n.stacks[id] = s
	return s
}

// activity returns the stack of activities.
func (n *names) activity(k key) *stackprofile.Stack {
	up := n.stack(k.stack)
	if k.within != 0 {
		within := n.in.Names.Name(k.within)
		up = n.t.Child(up, stackprofile.HostKind(within), within, "")
	}
	if k.operator != 0 {
		up = n.t.Child(up, stackprofile.Operator, n.in.Names.Name(k.operator), "")
	}
	full := n.in.Names.Name(k.name)
	switch {
	case k.kind == event.KindCopy:
		name := spanName(full)
		if k.pageable && stackprofile.Unmarked(name, semconv.GPUCopyHostMemoryPageable) {
			name += stackprofile.Pageable
		}
		return n.t.Child(up, stackprofile.Copy, name, "")
	case k.kind == event.KindMemset, k.graph:
		return n.t.Child(up, stackprofile.Kernel, spanName(full), "")
	}
	return n.t.Child(up, stackprofile.Kernel, spanName(n.in.ShortName(k.name)), full)
}

// spanName returns a name as spans have it.
func spanName(s string) string { return spanfacts.DistinctText(s, spanfacts.MaxText) }
