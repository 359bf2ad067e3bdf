// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetricsconnector

import (
	"cmp"
	"slices"
	"strings"

	"github.com/otelgpu/otelgpu/internal/gputime"
	"github.com/otelgpu/otelgpu/internal/streamnest"
)

const (
	// maxNames bounds the operations by name directly below one span, maxDepth the levels below one; what is beyond is in no sum.
	maxNames, maxDepth = 64, 16
	// maxSums bounds the spans below which sums are held, maxParts the sums of all of them, about 100 bytes each.
	maxSums, maxParts = 1 << 16, 1 << 18
	// maxHosts bounds the walk through host spans; a circle of parents ends there too.
	maxHosts = 128
)

// took is how long operations took together, and where they lie.
type took struct {
	duration   float64 // s
	start, end uint64  // from the start of the first to the end of the last, unix ns; 0: not known
}

func (t *took) add(more took) {
	t.duration += more.duration
	switch {
	case !gputime.Sound(more.start, more.end):
	case t.start == 0:
		t.start, t.end = more.start, more.end
	default:
		t.start, t.end = min(t.start, more.start), max(t.end, more.end)
	}
}

// place is where they lie, without their time.
func (t took) place() took { return took{0, t.start, t.end} }

// part are the operations of one name below one span, and what lies below those.
type part struct {
	name, category string
	took
	below *parts // nil: nothing is known
}

// parts are what lies below one span, by name.
type parts struct {
	list   []*part
	height int // levels; at most maxDepth
}

func (p *parts) find(name string) *part {
	if p == nil {
		return nil
	}
	for _, x := range p.list {
		if x.name == name {
			return x
		}
	}
	return nil
}

// size is the number of parts at all levels.
func (p *parts) size() (n int) {
	if p == nil {
		return 0
	}
	for _, x := range p.list {
		n += 1 + x.below.size()
	}
	return n
}

// add adds operations of one name and what lies below them. The result is the change of the size of p.
func (p *parts) add(name, category string, t took, below *parts) (grown int) {
	if below != nil {
		below.cut(maxDepth - 1)
	}
	x := p.find(name)
	if x == nil {
		if len(p.list) >= maxNames {
			return 0
		}
		x = &part{name: name, category: category}
		p.list = append(p.list, x)
		grown = 1
	}
	x.took.add(t)
	switch {
	case below == nil:
	case x.below == nil:
		x.below = below
		grown += below.size()
	default:
		grown += x.below.join(below)
	}
	p.height = max(p.height, 1)
	if x.below != nil {
		p.height = max(p.height, x.below.height+1)
	}
	return grown
}

// cut drops what is more than so many levels deep.
func (p *parts) cut(levels int) {
	if p.height <= levels {
		return
	}
	p.height = levels
	for _, x := range p.list {
		switch {
		case x.below == nil:
		case levels == 1:
			x.below = nil
		default:
			x.below.cut(levels - 1)
		}
	}
}

// join adds all of q.
func (p *parts) join(q *parts) (grown int) {
	for _, x := range q.list {
		grown += p.add(x.name, x.category, x.took, x.below)
	}
	return grown
}

// sectionTree sums up operations by name, level by level, until a step takes what lies below it. Spans of a batch may come in
// any order, and over batches children before parents, which is how they end.
type sectionTree struct {
	sums  map[spanKey]*parts
	order []spanKey // oldest first; those that were taken stay until they reach the front
	count int       // parts in sums

	// of the batch that is being read
	spans   []treeSpan
	streams []streamnest.Span // the same
	index   map[spanKey]int   // of spans
	path    []int
	hosts   []hostSpan
	ups     map[spanKey]spanKey // parents of hosts
}

type treeSpan struct {
	key, parent    spanKey
	process        uint64
	device, stream int64 // -1: none
	start, end     uint64
	time           float64
	name, category string
	depth          int // spans of the batch around it, and itself
}

// hostSpan is a span that is not of the GPU.
type hostSpan struct{ key, parent spanKey }

func newSectionTree() sectionTree {
	return sectionTree{sums: make(map[spanKey]*parts), index: make(map[spanKey]int), ups: make(map[spanKey]spanKey)}
}

// add takes a span of the batch; process is a number of whose it is.
func (t *sectionTree) add(process uint64, f *facts) {
	t.spans = append(t.spans, treeSpan{
		key: spanKey{f.traceID, f.spanID}, parent: spanKey{f.traceID, f.parentSpanID},
		process: process, device: f.ordinal, stream: f.stream, start: f.start, end: f.end, time: f.time, name: f.name, category: f.category,
	})
}

// addHost takes a host span of the batch, so that what lies below it is found above it.
func (t *sectionTree) addHost(f *facts) {
	t.hosts = append(t.hosts, hostSpan{spanKey{f.traceID, f.spanID}, spanKey{f.traceID, f.parentSpanID}})
}

// settle takes the spans of the batch into the sums, children before parents.
func (t *sectionTree) settle() {
	if len(t.spans) > 0 || len(t.sums) > 0 {
		for _, h := range t.hosts {
			t.ups[h.key] = h.parent
		}
		for i := range t.spans {
			t.spans[i].parent = t.above(t.spans[i].parent)
		}
		for i := range t.spans {
			s := &t.spans[i]
			t.streams = append(t.streams, streamnest.Span{
				Owner: s.process, Device: s.device, Stream: s.stream, Trace: s.parent.trace, Parent: s.parent.span, Start: int64(s.start), End: int64(s.end),
			})
		}
		streamnest.Each(t.streams, func(inner, outer int) {
			parent := t.spans[outer].key
			t.spans[inner].parent, t.streams[inner].Trace, t.streams[inner].Parent = parent, parent.trace, parent.span
		})
		t.streams = t.streams[:0]
		t.depths()
		slices.SortFunc(t.spans, func(x, y treeSpan) int { return cmp.Compare(y.depth, x.depth) })
		for i := range t.spans {
			t.span(&t.spans[i])
			t.spans[i] = treeSpan{} // its strings are the batch's memory
		}
		for _, h := range t.hosts {
			t.lift(h.key, t.above(h.parent))
		}
		clear(t.ups)
	}
	t.spans, t.hosts = t.spans[:0], t.hosts[:0]
}

// depths finds how deep spans are within others. Times do not say that: a section on an idle stream begins before the one around it, whose
// stream is still busy.
func (t *sectionTree) depths() {
	const onPath = -1
	for i := range t.spans {
		t.index[t.spans[i].key] = i
	}
	for i := range t.spans {
		at, depth := i, t.spans[i].depth
		for depth == 0 {
			t.spans[at].depth = onPath
			t.path = append(t.path, at)
			up, ok := t.index[t.spans[at].parent]
			if !ok {
				break
			}
			at, depth = up, t.spans[up].depth
		}
		depth = max(depth, 0) // a circle of parents ends where it began
		for _, at := range slices.Backward(t.path) {
			depth++
			t.spans[at].depth = depth
		}
		t.path = t.path[:0]
	}
	clear(t.index)
}

// above is the first of a span and its ancestors that is no host span of this batch.
func (t *sectionTree) above(key spanKey) spanKey {
	for range maxHosts {
		up, ok := t.ups[key]
		if !ok {
			break
		}
		key = up
	}
	return key
}

// span adds a span, with what lies below it, to the sums below its parent.
func (t *sectionTree) span(s *treeSpan) {
	below := t.take(s.key)
	if s.parent.span.IsEmpty() {
		return
	}
	for len(t.order) > 0 && t.count >= maxParts {
		t.drop()
	}
	at := t.at(s.parent)
	name, category := s.name, s.category
	if at.find(name) == nil {
		name, category = strings.Clone(name), strings.Clone(category)
	}
	t.count += at.add(name, category, took{s.time, s.start, s.end}, below)
}

// lift moves what waits for a host span, whose batch came later, to what is above it.
func (t *sectionTree) lift(host, up spanKey) {
	if below := t.take(host); below != nil && !up.span.IsEmpty() && up != host {
		t.count += t.at(up).join(below)
	}
}

// at are the sums below a span, made when there are none.
func (t *sectionTree) at(key spanKey) *parts {
	p := t.sums[key]
	if p == nil {
		for len(t.order) > 0 && (len(t.sums) >= maxSums || len(t.order) >= 4*maxSums) {
			t.drop()
		}
		p = &parts{}
		t.sums[key] = p
		t.order = append(t.order, key)
	}
	return p
}

// drop gives up the oldest sums.
func (t *sectionTree) drop() {
	t.take(t.order[0])
	t.order = t.order[1:]
}

// take removes and returns what lies below a span; nil when nothing is known.
func (t *sectionTree) take(key spanKey) *parts {
	p := t.sums[key]
	if p != nil {
		delete(t.sums, key)
		t.count -= p.size()
	}
	return p
}
