// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"maps"
	"slices"

	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
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

func (r *replay) add(a *event.Record, key uint64) {
	if r.count++; r.count == 1 {
		r.track = a.Track
	}
	r.scattered = r.scattered || a.Track != r.track
	r.set += event.Mix(key)
	r.kinds = event.Mix(r.kinds) + uint64(a.Kind)
}

// known is a captured graph in the words of the profile whose replays it explains.
type known struct {
	*match
	ops, ins []uint32 // names, by node
	works    []Work
	byKey    map[uint64][]int // nodes of a kernel, in the order of their capture
	byID     map[int64]int    // node by its number; nil: not by numbers
}

// Replays are the launches of graphs.
type Replays struct {
	Graphs
	of map[int64]*replay // by correlation
}

// Replays searches the events, and finds the captured graph of each launch of a graph.
func (in *Input) Replays(ctx context.Context) (Replays, error) {
	if !in.LaunchesGraphs() || in.captures.Len()+in.captures.Lost == 0 && !in.Names.Any(beginsCapture) {
		return Replays{}, nil
	}
	g := in.newGraphs()
	g.wanted = true
	if err := g.run(ctx); err != nil {
		return Replays{}, err
	}
	g.found.add(&in.captures)
	st := Graphs{Captured: g.found.Len(), Lost: g.found.Lost}
	index := g.found.index()
	found := map[*match]*known{}
	knownAs := func(m *match) *known {
		if m != nil && found[m] == nil {
			found[m] = in.know(m)
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
				k = in.know(m)
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
	return Replays{st, g.replays}, nil
}

// ranks returns the positions of a graph's nodes in the order of their numbers, which grow as nodes
// are added, and their kinds in that order.
func (g *graphs) ranks(graph int64) (places map[int64]int, kinds uint64) {
	nodes := g.ids[graph]
	places = make(map[int64]int, len(nodes))
	for i, id := range slices.Sorted(maps.Keys(nodes)) {
		places[id] = i
		kinds = event.Mix(kinds) + uint64(nodes[id])
	}
	return places, kinds
}

// sameKernels finds captured graphs: those whose calls name their kernels by these, others by the
// order of kernels, copies and memsets.
type sameKernels struct {
	count int
	named bool
	sum   uint64
}

// match is the first graph with some kernels. If several have them, same means that their operators
// and shapes are the same, and sameRanges that the ranges around them are: the layers of a model
// that are captured one by one differ in these only.
type match struct {
	*captured
	same, sameRanges bool
}

// captureIndex is captured graphs by their kernels.
type captureIndex map[sameKernels]*match

// Launches of a capture that may have become no node of the graph: HIP records some, as of empty
// fills.
const (
	MaxMissing   = 2 // of a graph of any size
	missingShare = 0.01
)

// nearest returns the captured graph that has all kernels of the replay and a few more, if there is
// exactly one. The sums of the keys differ by the keys of the missing nodes, so that no list of a
// replay's kernels is kept.
func (x captureIndex) nearest(r *replay) (best *match) {
	for k, m := range x {
		missing := k.count - r.count
		if !k.named || missing < 1 || missing > MaxMissing || float64(missing) > max(1, missingShare*float64(k.count)) {
			continue
		}
		keys := map[uint64]bool{}
		for _, n := range m.nodes {
			keys[event.Mix(n.key)] = true
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

// know translates a captured graph to the profile's names, with the ranges around launches if they
// are certain.
func (in *Input) know(m *match) *known {
	k := &known{match: m, byKey: map[uint64][]int{}}
	c := m.captured
	if c == nil || !m.same {
		return k
	}
	for i, n := range c.nodes {
		within := n.in
		if !m.sameRanges {
			within = ""
		}
		k.ops, k.ins = append(k.ops, in.nameOf(n.op)), append(k.ins, in.nameOf(within))
		k.byKey[n.key] = append(k.byKey[n.key], i)
	}
	for _, w := range c.works {
		k.works = append(k.works, Work{
			Work: w.Work, elements: w.elements, op: in.nameOf(w.op), shape: in.nameOf(w.shape), Launches: w.launches,
		})
	}
	return k
}

func (in *Input) nameOf(s string) uint32 {
	if s == "" {
		return 0
	}
	return in.Names.ID(s)
}

// playing is a replay during a sweep.
type playing struct {
	of    *known
	works []Work         // of this replay
	seen  map[uint64]int // activities of a kernel
	next  int
}

// replayed finds what launched the activity, if a graph of known nodes did.
func (s *Sweep) replayed(a *Activity) {
	r := s.replays[a.Correlation]
	if r == nil || r.of == nil {
		return
	}
	pl := s.playing[a.Correlation]
	if pl == nil {
		pl = &playing{of: r.of, works: slices.Clone(r.of.works), seen: map[uint64]int{}}
		s.playing[a.Correlation] = pl
	}
	i, ok := pl.node(a, s.in.Names)
	if pl.next == r.count {
		delete(s.playing, a.Correlation) // the works stay with the activities
	}
	if !ok {
		return
	}
	n := &pl.of.nodes[i]
	l := &a.Launch
	l.Op, l.opaque, l.Work = pl.of.ops[i], n.opaque, nil
	a.Replayed, a.Within = true, pl.of.ins[i]
	if n.work > 0 {
		l.Work = &pl.works[n.work-1]
	}
}

func (p *playing) node(a *Activity, names *event.Names) (i int, ok bool) {
	p.next++
	switch {
	case p.of.byID != nil:
		i, ok = p.of.byID[a.Detail.GraphNode]
		return i, ok && i < len(p.of.nodes)
	case !p.of.named:
		return p.next - 1, p.next <= len(p.of.nodes)
	}
	key := nodeKey(a.Kind, names.Name(a.Name))
	list := p.of.byKey[key]
	k := p.seen[key]
	p.seen[key]++
	if k >= len(list) {
		return 0, false
	}
	return list[k], true
}
