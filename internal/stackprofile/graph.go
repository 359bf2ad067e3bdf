// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package stackprofile

import (
	"cmp"
	"math"
	"slices"
	"strconv"
)

// Graph is the tree of stacks that a flame graph draws, as JSON.
type Graph struct {
	Start   int64        `json:"start"` // unix ms
	End     int64        `json:"end"`
	Sources []GraphLabel `json:"sources"` // of the samples, in the order of their names
	Frames  []GraphFrame `json:"frames"`
	Tags    []GraphTags  `json:"tags"`             // the first is empty
	Nodes   []GraphNode  `json:"nodes"`            // a parent precedes its children
	Merged  int          `json:"merged,omitempty"` // samples that are below "(other stacks)", because they have the least
}

// GraphLabel is a service whose samples a Graph has.
type GraphLabel struct {
	Service string `json:"service"`
	Version string `json:"version,omitempty"`
}

// GraphFrame is a frame of a Graph.
type GraphFrame struct {
	Name string `json:"name"`
	Full string `json:"full,omitempty"`
	Kind string `json:"kind"`
}

// GraphTags are the labels of a sample by which a flame graph groups stacks. Unknown ones are "".
type GraphTags struct {
	Rank     string `json:"rank,omitempty"`
	Device   string `json:"device,omitempty"`
	Throttle string `json:"throttle,omitempty"`
}

// GraphNode is one stack of a Graph, with one set of tags. Its values do not include the nodes
// below it, whose tags may be others: a node with tags has no children.
type GraphNode struct {
	Parent int            `json:"p"` // -1: a root
	Frame  int            `json:"f"`
	Tags   int            `json:"g,omitempty"`
	Values [types]float64 `json:"v"`           // in the order of Types
	Trace  string         `json:"t,omitempty"` // of the slowest span
}

// NewGraph returns the tree of the samples, with about maxNodes nodes: beyond that, the samples
// with the smallest values are summed below "(other stacks)" of their service.
func NewGraph(list []*Profile, maxNodes int) *Graph {
	g := &Graph{Sources: []GraphLabel{}, Frames: []GraphFrame{}, Tags: []GraphTags{{}}, Nodes: []GraphNode{}}
	var samples []*Sample
	start, end := uint64(0), uint64(0)
	for _, p := range list {
		if l := (GraphLabel{p.Source.Service, p.Source.Version}); !slices.Contains(g.Sources, l) {
			g.Sources = append(g.Sources, l)
		}
		if start == 0 || p.Start < start {
			start = p.Start
		}
		end = max(end, p.End)
		samples = append(samples, p.Samples()...)
	}
	slices.SortFunc(g.Sources, func(a, b GraphLabel) int {
		return cmp.Or(cmp.Compare(a.Service, b.Service), cmp.Compare(a.Version, b.Version))
	})
	g.Start, g.End = int64(start/1e6), int64(end/1e6)
	totals := Totals(list)
	weight := func(s *Sample) (most float64) {
		for i, v := range s.Values {
			if v > 0 {
				most = max(most, v/totals[i])
			}
		}
		return most
	}
	slices.SortStableFunc(samples, func(a, b *Sample) int { return cmp.Compare(weight(b), weight(a)) })
	b := graphBuilder{
		Graph: g, frames: map[Frame]int{}, tags: map[GraphTags]int{{}: 0}, nodes: map[[3]int]int{}, slowest: map[int]int64{},
	}
	var frames []*Frame
	for _, s := range samples {
		frames = s.Stack.Frames(frames[:0])
		tags := b.tagsOf(s.Labels)
		if len(g.Nodes) >= maxNodes && b.new(frames, tags) {
			frames, tags = append(frames[:1], &Frame{Range, "(other stacks)", ""}), 0
			g.Merged++
		}
		b.add(frames, tags, s)
	}
	return g
}

type graphBuilder struct {
	*Graph
	frames  map[Frame]int
	tags    map[GraphTags]int
	nodes   map[[3]int]int // by parent, frame and tags
	slowest map[int]int64
}

func (b *graphBuilder) tagsOf(l *Labels) int {
	t := GraphTags{Device: l.Device, Throttle: l.Throttle}
	if l.Rank >= 0 {
		t.Rank = strconv.FormatInt(l.Rank, 10)
	}
	i, ok := b.tags[t]
	if !ok {
		i = len(b.Tags)
		b.tags[t] = i
		b.Tags = append(b.Tags, t)
	}
	return i
}

// new reports whether a stack has no node with these tags yet.
func (b *graphBuilder) new(frames []*Frame, tags int) bool {
	at := -1
	for k, f := range frames {
		i, ok := b.frames[*f]
		if ok {
			at, ok = b.nodes[nodeKey(at, i, tags, k == len(frames)-1)]
		}
		if !ok {
			return true
		}
	}
	return false
}

// nodeKey returns the key of a node; the nodes above the last of a stack are shared by all tags.
func nodeKey(parent, frame, tags int, last bool) [3]int {
	if !last {
		tags = 0
	}
	return [3]int{parent, frame, tags}
}

func (b *graphBuilder) add(frames []*Frame, tags int, s *Sample) {
	at := -1
	for k, f := range frames {
		i, ok := b.frames[*f]
		if !ok {
			i = len(b.Frames)
			b.frames[*f] = i
			b.Frames = append(b.Frames, GraphFrame{f.Name, f.Full, f.Kind.String()})
		}
		key := nodeKey(at, i, tags, k == len(frames)-1)
		next, ok := b.nodes[key]
		if !ok {
			next = len(b.Nodes)
			b.nodes[key] = next
			b.Nodes = append(b.Nodes, GraphNode{Parent: at, Frame: i, Tags: key[2]})
		}
		at = next
	}
	n := &b.Nodes[at]
	for i, v := range s.Values {
		if sum := n.Values[i] + v; !math.IsInf(sum, 0) && !math.IsNaN(sum) {
			n.Values[i] = sum
		}
	}
	if !s.Link.Span.IsEmpty() && (n.Trace == "" || s.slowest > b.slowest[at]) {
		n.Trace, b.slowest[at] = s.Link.Trace.String(), s.slowest
	}
}

// Between returns copies of the profiles of windows that overlap a time, in unix nanoseconds, one
// for each source. Of one window for all, it returns everything.
func (b *Builder) Between(from, to uint64) (list []*Profile) {
	at := map[Source]*Profile{}
	length := uint64(b.opts.Window)
	for start, w := range b.windows {
		if length > 0 && (start+length <= from || start >= to) {
			continue
		}
		for source, p := range w.profiles {
			sum := at[source]
			first, last := p.Start, p.End
			if length == 0 {
				first, last = p.start, max(p.start, p.end)
			}
			if sum == nil {
				sum = &Profile{Source: source, Start: first, End: last, samples: make(map[sampleKey]*Sample, len(p.samples))}
				at[source] = sum
				list = append(list, sum)
			}
			sum.Start, sum.End = min(sum.Start, first), max(sum.End, last)
			for key, s := range p.samples {
				if x := sum.samples[key]; x != nil {
					x.merge(s)
					continue
				}
				x := *s
				sum.samples[key] = &x
			}
		}
	}
	sortProfiles(list)
	return list
}

func (s *Sample) merge(x *Sample) {
	for i, v := range x.Values {
		s.Values[i] += v
	}
	if x.slowest > s.slowest {
		s.slowest, s.Link = x.slowest, x.Link
	}
}
