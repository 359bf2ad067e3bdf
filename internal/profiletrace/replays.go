// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package profiletrace

import (
	"context"
	"maps"
	"slices"
)

// Graphs counts the launches of graphs whose operators are known.
type Graphs struct {
	Launches  int64 // that have activities
	Known     int64 // of a captured graph
	Near      int64 // of Known, by all names of kernels but a few that the capture has more
	Ambiguous int64 // of several captured graphs with the same kernels and other shapes
	Captured  int   // graphs whose capture was recorded
	Lost      int   // captures known only in part
}

// replay is one launch of a graph.
type replay struct {
	count     int
	set       uint64 // sum of the activities' keys
	kinds     uint64 // of activities, in the order of their starts
	graph     int64
	track     uint32
	scattered bool // over several streams
	unstated  bool // some activity does not state its node
	of        *known
}

func (r *replay) add(a *record, key uint64) {
	if r.count++; r.count == 1 {
		r.track = a.track
	}
	r.scattered = r.scattered || a.track != r.track
	r.set += mix(key)
	r.kinds = mix(r.kinds) + uint64(a.kind)
}

// known is a captured graph in the words of the profile whose replays it explains.
type known struct {
	*match
	ops, ins []uint32 // names, by node
	works    []work
	byKey    map[uint64][]int // nodes of a kernel, in the order of their capture
	byID     map[int64]int    // node by its number; nil: not by numbers
}

// replaysOf searches the events, and finds the captured graph of each launch of a graph.
func (p *Profile) replaysOf(ctx context.Context) (map[int64]*replay, Graphs, error) {
	if !p.LaunchesGraphs() || p.captures.Len()+p.captures.Lost == 0 && !p.Names.any(beginsCapture) {
		return nil, Graphs{}, nil
	}
	g := p.newGraphs()
	g.wanted = true
	if err := g.run(ctx); err != nil {
		return nil, Graphs{}, err
	}
	g.found.add(&p.captures)
	st := Graphs{Captured: g.found.Len(), Lost: g.found.Lost}
	index := g.found.index()
	found := map[*match]*known{}
	knownAs := func(m *match) *known {
		if m != nil && found[m] == nil {
			found[m] = p.know(m)
		}
		return found[m]
	}
	numbered := map[int64]*known{}     // by graph
	nearly := map[sameKernels]*match{} // of replays whose kernels no capture has exactly
	for _, r := range g.replays {
		if r.count == 0 {
			continue
		}
		st.Launches++
		m := index[sameKernels{r.count, true, r.set}]
		var k *known
		near := false
		if m == nil && r.unstated {
			kernels := sameKernels{r.count, true, r.set}
			if _, known := nearly[kernels]; !known {
				nearly[kernels] = index.nearest(r)
			}
			m = nearly[kernels]
			near = m != nil
		}
		switch {
		case m != nil:
			k = knownAs(m)
		case r.unstated && !r.scattered:
			m = index[sameKernels{r.count, false, r.kinds}]
			k = knownAs(m)
		case !r.unstated:
			if k = numbered[r.graph]; k == nil {
				places, kinds := g.ranks(r.graph)
				if m = index[sameKernels{len(places), false, kinds}]; m == nil {
					m = &match{} // none matches
				}
				k = p.know(m)
				k.byID, numbered[r.graph] = places, k
			}
			if m = k.match; len(k.byID) != r.count {
				m = nil
			}
		}
		switch {
		case m == nil || m.captured == nil:
		case !m.same:
			st.Ambiguous++
		default:
			st.Known++
			if near {
				st.Near++
			}
			r.of = k
		}
	}
	return g.replays, st, nil
}

// ranks returns the positions of a graph's nodes in the order of their numbers, which grow as nodes are added, and
// their kinds in that order.
func (g *graphs) ranks(graph int64) (places map[int64]int, kinds uint64) {
	nodes := g.ids[graph]
	places = make(map[int64]int, len(nodes))
	for i, id := range slices.Sorted(maps.Keys(nodes)) {
		places[id] = i
		kinds = mix(kinds) + uint64(nodes[id])
	}
	return places, kinds
}

// sameKernels finds captured graphs: those whose calls name their kernels by these, others by the order of kernels,
// copies and memsets.
type sameKernels struct {
	count int
	named bool
	sum   uint64
}

// match is the first graph with some kernels. If several have them, same means that their operators and shapes are the
// same, and sameRanges that the ranges around them are: the layers of a model that are captured one by one differ in
// these only.
type match struct {
	*captured
	same, sameRanges bool
}

// captureIndex is captured graphs by their kernels.
type captureIndex map[sameKernels]*match

// Launches of a capture that may have become no node of the graph: HIP records some, as of empty fills.
const (
	MaxMissing   = 2 // of a graph of any size
	missingShare = 0.01
)

// nearest returns the captured graph that has all kernels of the replay and a few more, if there is exactly one. The
// sums of the keys differ by the keys of the missing nodes, so that no list of a replay's kernels is kept.
func (x captureIndex) nearest(r *replay) (best *match) {
	for k, m := range x {
		missing := k.count - r.count
		if !k.named || missing < 1 || missing > MaxMissing || float64(missing) > max(1, missingShare*float64(k.count)) {
			continue
		}
		keys := map[uint64]bool{}
		for _, n := range m.nodes {
			keys[mix(n.key)] = true
		}
		rest := k.sum - r.set
		found := missing == 1 && keys[rest]
		if missing == 2 {
			for key := range keys {
				found = found || keys[rest-key]
			}
		}
		if found {
			if best != nil {
				return nil
			}
			best = m
		}
	}
	return best
}

func (c *Captures) index() captureIndex {
	m := captureIndex{}
	for _, x := range c.graphs {
		k := sameKernels{len(x.nodes), x.named, x.kinds}
		if x.named {
			k.sum = x.set
		}
		if o := m[k]; o != nil {
			o.same, o.sameRanges = o.same && x.meant == o.meant, o.sameRanges && x.ranges == o.ranges
		} else {
			m[k] = &match{x, true, true}
		}
	}
	return m
}

// know translates a captured graph to the profile's names, with the ranges around launches if they are certain.
func (p *Profile) know(m *match) *known {
	k := &known{match: m, byKey: map[uint64][]int{}}
	c := m.captured
	if c == nil || !m.same {
		return k
	}
	for i, n := range c.nodes {
		in := n.in
		if !m.sameRanges {
			in = ""
		}
		k.ops, k.ins = append(k.ops, p.nameOf(n.op)), append(k.ins, p.nameOf(in))
		k.byKey[n.key] = append(k.byKey[n.key], i)
	}
	for _, w := range c.works {
		k.works = append(k.works, work{
			Work: w.Work, elements: w.elements, op: p.nameOf(w.op), shape: p.nameOf(w.shape), launches: w.launches,
		})
	}
	return k
}

func (p *Profile) nameOf(s string) uint32 {
	if s == "" {
		return 0
	}
	return p.Names.ID(s)
}

// playing is a replay during a sweep.
type playing struct {
	of    *known
	works []work         // of this replay
	seen  map[uint64]int // activities of a kernel
	next  int
}

// replayed finds what launched the activity, if a graph of known nodes did.
func (s *sweep) replayed(a *activity) {
	r := s.replays[a.corr]
	if r == nil || r.of == nil {
		return
	}
	pl := s.playing[a.corr]
	if pl == nil {
		pl = &playing{of: r.of, works: slices.Clone(r.of.works), seen: map[uint64]int{}}
		s.playing[a.corr] = pl
	}
	i, ok := pl.node(a, s.p.Names)
	if pl.next == r.count {
		delete(s.playing, a.corr) // the works stay with the activities
	}
	if !ok {
		return
	}
	n := &pl.of.nodes[i]
	l := &a.launch
	l.op, l.opaque, l.work = pl.of.ops[i], n.opaque, nil
	a.replayed, a.within = true, pl.of.ins[i]
	if n.work > 0 {
		l.work = &pl.works[n.work-1]
	}
}

func (p *playing) node(a *activity, names *Names) (i int, ok bool) {
	p.next++
	switch {
	case p.of.byID != nil:
		i, ok = p.of.byID[a.detail.GraphNode]
		return i, ok && i < len(p.of.nodes)
	case !p.of.named:
		return p.next - 1, p.next <= len(p.of.nodes)
	}
	key := nodeKey(a.kind, names.Name(a.name))
	list := p.of.byKey[key]
	k := p.seen[key]
	p.seen[key]++
	if k >= len(list) {
		return 0, false
	}
	return list[k], true
}
