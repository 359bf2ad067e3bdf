// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package stackprofile

import (
	"cmp"
	"strings"
	"time"

	"github.com/otelgpu/otelgpu/internal/hashindex"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/internal/spantree"
)

// Options of a Builder. Zero values take the defaults of [DefaultOptions], except that Window 0 is
// one window for all.
type Options struct {
	Window    time.Duration // length of a profile, aligned to the Unix epoch; 0: one profile for all spans
	Settle    time.Duration // how long a tree must have been quiet
	MaxWait   time.Duration // how long a span waits for the spans around it at most
	MaxGap    time.Duration // a longer gap between two activities is a pause, not idle time; negative: no limit
	MaxStacks int           // samples of a window
	MaxSpans  int           // spans that wait
	Repeats   int           // spans that are remembered to be counted once; negative: none
	Weights   bool          // GPU time is weighted by the sampling threshold in a span's trace state
}

// DefaultOptions returns the connector's defaults.
func DefaultOptions() Options {
	return Options{
		Window: time.Minute, Settle: 5 * time.Second, MaxWait: time.Minute, MaxGap: time.Second,
		MaxStacks: 100_000, MaxSpans: 100_000, Repeats: 200_000,
	}
}

func (o *Options) complete() {
	d := DefaultOptions()
	o.Settle, o.MaxWait = cmp.Or(o.Settle, d.Settle), cmp.Or(o.MaxWait, d.MaxWait)
	o.MaxGap, o.MaxStacks = cmp.Or(o.MaxGap, d.MaxGap), cmp.Or(o.MaxStacks, d.MaxStacks)
	o.MaxSpans, o.Repeats = cmp.Or(o.MaxSpans, d.MaxSpans), cmp.Or(o.Repeats, d.Repeats)
}

// Stats are counts since the last [Builder.Stats].
type Stats struct {
	Spans      int64 // GPU spans accepted
	Repeated   int64 // GPU spans that had arrived before
	Invalid    int64 // GPU spans whose times are not usable; their energy counts
	Incomplete int64 // GPU spans with time or energy whose stack lacks spans that did not arrive in time
	Late       int64 // GPU spans that arrived after the span around them was counted
	IdleLate   int64 // activities that arrived after the idle time around them was counted
	Overflow   int64 // values counted under "(other stacks)"
	Forgotten  int64 // spans that did not arrive and are no longer waited for; if one arrives later, its time counts twice
}

// Builder aggregates spans. It is not safe for concurrent use.
type Builder struct {
	opts    Options
	stats   Stats
	repeats spanfacts.Repeats
	frames  generations[Frame, *Frame]
	labels  generations[Labels, *Labels]
	sources generations[Source, *Source]
	stacks  generations[stackKey, *Stack]
	root    generations[*Source, *Stack]
	idles   generations[idleKey, *Labels]
	reasons [idleCauses]*Frame
	cached  [slots]*Frame // latest results of frame

	spans  []span                                // pending
	index  hashindex.Index                       // of spans that have an ID
	done   *spantree.Tree[counted, countedBelow] // spans that were counted, and what was below spans to come
	pieces int                                   // pieces of time that wait

	devices map[deviceKey]*timeline
	windows map[uint64]*window
	latest  uint64 // of windows; it may have been taken

	// Scratch memory.
	facts  spanfacts.Facts
	seen   [slots]lastSeen
	nest   []spanfacts.NestSpan
	nested []int32 // of nest: in spans
	trees  []tree
	top    []int32
	covers []covered
	path   []int32
	found  []resolved
	hangs  []hanging
	hashes [ahead]uint64 // of the keys of the next spans
}

type stackKey struct {
	up    *Stack
	frame *Frame
}

// New returns an empty Builder.
func New(o Options) *Builder {
	o.complete()
	b := &Builder{
		opts:    o,
		devices: map[deviceKey]*timeline{}, windows: map[uint64]*window{},
	}
	b.repeats.Max = o.Repeats
	b.frames.max, b.labels.max, b.sources.max, b.root.max = 20_000, 20_000, 1000, 1000
	b.stacks.max, b.idles.max = 50_000, 1000
	for i := range idleCauses {
		b.reasons[i] = newFrame(Idle, i.String(), "")
	}
	b.done = spantree.New(spantree.Rules[counted, countedBelow]{
		MaxSpans: o.MaxSpans / 2, MaxSums: o.MaxSpans / 4,
		Dropped: func(o *countedBelow) {
			b.pieces -= len(o.pieces)
			b.stats.Forgotten++
		},
	})
	return b
}

// Stats returns what happened since the last call.
func (b *Builder) Stats() Stats {
	s := b.stats
	b.stats = Stats{}
	return s
}

// Pending returns the number of spans that wait.
func (b *Builder) Pending() int { return len(b.spans) }

// Stacks returns the number of samples in windows that were not taken.
func (b *Builder) Stacks() (n int) {
	for _, w := range b.windows {
		n += w.samples
	}
	return n
}

func (b *Builder) frame(k Kind, name, full string) *Frame {
	key := Frame{k, name, full}
	last := &b.cached[key.slot()]
	if *last != nil && **last == key { // names that are neither shortened nor truncated
		return *last
	}
	if f, ok := b.frames.get(key); ok {
		*last = f
		return f
	}
	f := newFrame(k, name, full)
	if len(name) > maxName || len(full) > maxName {
		return f // keys of such a length are not kept
	}
	b.frames.put(Frame{k, strings.Clone(name), strings.Clone(full)}, f)
	return f
}

func (b *Builder) source(r Source) *Source {
	if s, ok := b.sources.get(r); ok {
		return s
	}
	s := &Source{strings.Clone(r.Service), strings.Clone(r.Namespace), strings.Clone(r.Version)}
	b.sources.put(*s, s)
	return s
}

func (b *Builder) labelled(l Labels) *Labels {
	if x, ok := b.labels.get(l); ok {
		return x
	}
	x := &Labels{
		strings.Clone(l.Device), strings.Clone(l.Model), strings.Clone(l.Phase), strings.Clone(l.Throttle),
		strings.Clone(l.State), l.Rank,
	}
	b.labels.put(*x, x)
	return x
}

// child returns the stack with one more frame; up nil: an empty stack.
func (b *Builder) child(up *Stack, f *Frame) *Stack {
	key := stackKey{up, f}
	if s, ok := b.stacks.get(key); ok {
		return s
	}
	s := &Stack{Up: up, Frame: f, depth: 1}
	if up != nil {
		s.depth += up.depth
	}
	b.stacks.put(key, s)
	return s
}

// rootOf returns the stack that has the service only.
func (b *Builder) rootOf(s *Source) *Stack {
	if x, ok := b.root.get(s); ok {
		return x
	}
	x := b.child(nil, b.frame(Service, serviceName(s.Service), ""))
	b.root.put(s, x)
	return x
}

func serviceName(s string) string { return cmp.Or(s, "unknown_service") }
