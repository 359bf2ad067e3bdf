// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetricsconnector

import (
	"strings"

	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/internal/spantree"
	"github.com/otelgpu/otelgpu/internal/straggler"
)

const (
	// maxSums limits the spans for whose descendants sums are kept, and the spans that are
	// remembered; maxParts limits the parts of all sums, about 100 bytes each.
	maxSums, maxParts = 1 << 16, 1 << 18
	// maxHosts limits the walk through host spans; a cycle of parents ends there too.
	maxHosts = 128
)

// sectionTree sums up the operations of a rank by name, level by level, until a step takes the sums
// of its descendants.
type sectionTree struct {
	*spantree.Tree[sectionSpan, *descendants]
	count int // parts in sums

	spans   []treeSpan           // of the current batch
	streams []spanfacts.NestSpan // the same
	own     treeSpan             // the span that is being added
}

// descendants are what is below a span.
type descendants struct {
	straggler.Sections
	meetings []straggler.Meeting // collectives directly below
}

// sectionSpan is a span that has arrived. If it has no name, it is a host span, and what is below
// it counts for the span above it.
type sectionSpan struct {
	name, category string
	ends           bool // nothing below it counts
}

type treeSpan struct {
	spanfacts.NestSpan
	key            spanfacts.Key
	time           float64
	name, category string
	meeting        *straggler.Meeting
}

func newSectionTree() *sectionTree {
	t := &sectionTree{}
	t.Tree = spantree.New(spantree.Rules[sectionSpan, *descendants]{
		MaxSums: maxSums, MaxSpans: maxSums / 4,
		Lift: t.lift, Dropped: func(d **descendants) { t.count -= (*d).Size() },
	})
	return t
}

// read adds a span of the batch; process identifies its process.
func (t *sectionTree) read(process uint64, f *facts) {
	t.spans = append(t.spans, treeSpan{
		key: f.Key, time: f.Time, name: f.Name, category: f.Category,
		NestSpan: spanfacts.NestSpan{
			Owner: process, Device: f.Device.Number(), Stream: f.Stream, Trace: f.Key.Trace, Parent: f.Parent,
			Start: int64(f.Start), End: int64(f.End),
		},
	})
}

// pass adds a span that is not a section: a host span, or one below which nothing counts, which may
// be a collective.
func (t *sectionTree) pass(process uint64, f *facts, meeting *straggler.Meeting, ends bool) {
	t.own.meeting = meeting
	t.Add(spantree.Span{Process: process, Key: f.Key, Parent: f.Parent}, sectionSpan{ends: ends}, meeting != nil, 0)
}

// settle adds the spans of the batch to the sums.
func (t *sectionTree) settle() {
	for i := range t.spans {
		t.streams = append(t.streams, t.spans[i].NestSpan)
		s := &t.streams[i]
		for range maxHosts { // siblings on a stream may be below different host spans
			host, up := t.Find(s.Owner, spanfacts.Key{Trace: s.Trace, Span: s.Parent})
			if host == nil || host.name != "" || host.ends {
				break
			}
			s.Parent = up
		}
	}
	spanfacts.Nest(t.streams, func(inner, outer int) {
		x := &t.streams[inner]
		x.Trace, x.Parent = t.spans[outer].key.Trace, t.spans[outer].key.Span
	})
	for i := range t.spans {
		t.own = t.spans[i]
		t.section(t.streams[i].Parent)
	}
	clear(t.spans) // their strings share the batch's memory
	t.own = treeSpan{}
	t.spans, t.streams = t.spans[:0], t.streams[:0]
}

// section adds a section, which is in t.own, below a parent.
func (t *sectionTree) section(parent [8]byte) {
	for t.count >= maxParts && t.Waiting() > 0 {
		t.DropOldest()
	}
	t.Add(spantree.Span{Process: t.own.Owner, Key: t.own.key, Parent: parent}, sectionSpan{name: t.own.name}, true, 0)
}

// lift adds a span to what is below the span above it.
func (t *sectionTree) lift(n *sectionSpan, own bool, from, into **descendants) bool {
	var inside *straggler.Sections
	if *from != nil {
		inside = &(*from).Sections
		t.count -= inside.Size()
	}
	if n.ends && !own {
		return false
	}
	if *into == nil {
		*into = &descendants{}
	}
	to := *into
	switch {
	case n.ends:
		if len(to.meetings) < maxMeetings {
			to.meetings = append(to.meetings, *t.own.meeting)
		}
	case n.name == "":
		t.count += to.Join(inside)
		room := min(len((*from).meetings), maxMeetings-len(to.meetings))
		to.meetings = append(to.meetings, (*from).meetings[:room]...)
	case own:
		if known := to.Find(n.name); known != nil {
			n.name, n.category = known.Name, known.Category
		} else {
			n.name, n.category = strings.Clone(n.name), strings.Clone(t.own.category)
		}
		extent := straggler.Extent{Start: uint64(t.own.Start), End: uint64(t.own.End)}
		if !spanfacts.Sound(extent.Start, extent.End) {
			extent = straggler.Extent{}
		}
		t.count += to.Add(n.name, n.category, t.own.time, extent, inside)
	default:
		t.count += to.Add(n.name, n.category, 0, straggler.Extent{}, inside)
	}
	return true
}

// take removes and returns what is below a step; nil if unknown.
func (t *sectionTree) take(process uint64, step spanfacts.Key) *descendants {
	d, ok := t.Take(process, step)
	if ok {
		t.count -= d.Size()
	}
	return d
}
