// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"hash/fnv"
	"slices"
	"strings"

	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
	"github.com/otelgpu/otelgpu/internal/profiletrace/timeline"
)

// A launch of a CUDA or HIP graph is one call, under which no operator ran. While the graph was
// captured, operators did run, and their launches became its nodes. So the record of a capture, in
// the same file or in another one, has the operator, shapes and range of each activity of a replay.

// Captures holds the graphs whose capture a profile recorded.
type Captures struct {
	graphs []*captured
	nodes  int
	Lost   int // captures known only in part: too large, or with a graph in the graph
}

// Len returns the number of graphs.
func (c *Captures) Len() int { return len(c.graphs) }

func (c *Captures) add(o *Captures) {
	c.graphs, c.nodes, c.Lost = append(c.graphs, o.graphs...), c.nodes+o.nodes, c.Lost+o.Lost
}

// captured is one graph: its nodes in the order of their launches.
type captured struct {
	nodes []capturedNode
	works []capturedWork // of operators, one for each call
	named bool           // all calls name the kernel that they launched
	set   uint64         // sum of the nodes' keys
	kinds uint64         // of nodes, in order
	meant uint64         // operators, shapes and work, in order
	// ranges around the launches, in order
	ranges uint64

	process *Process // while it is open
	track   uint32
	end     int64 // of the last launch
	spoilt  bool
}

type capturedNode struct {
	kind   event.Kind
	key    uint64 // see nodeKey; 0: the call does not name the kernel that it launched
	op, in string // innermost operator, and innermost annotation or module, around the launch
	work   int    // 1 + index in works; 0: none
	opaque bool
	ran    bool // runs on the device immediately, so it is not a node
}

type capturedWork struct {
	timeline.Work
	op, shape string
	elements  float64
	launches  int // of kernels
	from      *Work
}

// Limits. Beyond them replays have no operators.
const (
	maxCaptured = 1 << 18 // nodes of all captures of a profile
	maxOpen     = 64      // captures that go on at one time
	maxReplays  = 1 << 16 // launches of graphs
	maxNodeIDs  = 1 << 18 // numbers of nodes of all graphs
)

// Parts of the names of calls.
const (
	beginsCapture = "StreamBeginCapture"
	endsCapture   = "StreamEndCapture"
	launchesGraph = "GraphLaunch"
)

// nodeKey returns the same for a captured launch and its activity. Copies and memsets have no name
// when they are captured, and HIP runs some of them as internal kernels.
func nodeKey(kind event.Kind, name string) uint64 {
	switch {
	case kind == event.KindCopy, strings.HasPrefix(name, "__amd_rocclr_copy"):
		return uint64(event.KindCopy)
	case kind == event.KindMemset, strings.HasPrefix(name, "__amd_rocclr_fill"):
		return uint64(event.KindMemset)
	}
	return textHash(name)
}

func textHash(s string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(s))
	return h.Sum64()
}

// Captures searches the events for captures of graphs.
func (in *Input) Captures(ctx context.Context) (Captures, error) {
	if in.Len() == 0 || !in.Names.Any(beginsCapture) {
		return Captures{}, nil
	}
	g := in.newGraphs()
	err := g.run(ctx)
	return g.found, err
}

// LaunchesGraphs reports whether captures of other files may add operators to this one.
func (in *Input) LaunchesGraphs() bool { return in.Names.Any(launchesGraph) }

// Know adds captures of another profile, for Emit.
func (in *Input) Know(c *Captures) { in.captures.add(c) }

// graphs is a sweep over a profile that finds captures and replays.
type graphs struct {
	in      *Input
	found   Captures
	open    []*captured
	calls   map[int64]capturedCall         // captured, by correlation
	replays map[int64]*replay              // by correlation
	ids     map[int64]map[int64]event.Kind // kinds of nodes by number, by graph
	idCount int
	keys    map[uint32]uint64 // by name
	wanted  bool              // replays are analyzed
}

type capturedCall struct {
	graph *captured
	node  int
}

func (in *Input) newGraphs() *graphs {
	return &graphs{
		in: in, calls: map[int64]capturedCall{}, replays: map[int64]*replay{}, ids: map[int64]map[int64]event.Kind{},
		keys: map[uint32]uint64{},
	}
}

// Range keeps no range.
func (g *graphs) Range(*event.Record, *Node, int, *Process, *Step) *Node { return nil }

// Activity does nothing: activity is called instead.
func (g *graphs) Activity(*Activity, *Node, *Process) {}

func (g *graphs) run(ctx context.Context) error {
	s := g.in.NewSweep(g)
	s.analyses, s.graphs = true, g
	err := s.Run(ctx)
	for _, c := range g.found.graphs {
		c.finish()
	}
	g.found.graphs = slices.DeleteFunc(g.found.graphs, func(c *captured) bool { return len(c.nodes) == 0 })
	return err
}

// call reads a call of the runtime and the ranges around it.
func (g *graphs) call(r *event.Record, f *frame, p *Process, class timeline.Range) {
	name := g.in.Names.Name(r.Name)
	switch {
	case strings.Contains(name, beginsCapture):
		if len(g.open) == maxOpen {
			g.open = g.open[1:]
			g.found.Lost++
		}
		g.open = append(g.open, &captured{named: true, process: p, track: r.Track})
	case strings.Contains(name, endsCapture):
		if c := g.capturing(p, r.Track); c != nil {
			g.open = slices.DeleteFunc(g.open, func(o *captured) bool { return o == c })
			if c.spoilt {
				g.found.Lost++
			} else {
				g.found.graphs = append(g.found.graphs, c)
			}
		}
	case strings.Contains(name, launchesGraph):
		if c := g.capturing(p, r.Track); c != nil {
			c.spoilt = true
		} else if g.wanted && r.Correlation != 0 && len(g.replays) < maxReplays {
			g.replays[r.Correlation] = &replay{}
		}
	case class == timeline.CallLaunch:
		if c := g.capturing(p, r.Track); c != nil {
			g.node(c, r, f, name)
		}
	}
}

// capturing returns the capture that a launch of the thread belongs to: the thread's own, otherwise
// the only one of its process, because a backward pass launches from its own thread.
func (g *graphs) capturing(p *Process, track uint32) (c *captured) {
	for _, o := range slices.Backward(g.open) {
		if o.process != p {
			continue
		}
		if o.track == track {
			return o
		}
		if c != nil {
			return nil
		}
		c = o
	}
	return c
}

func (g *graphs) node(c *captured, r *event.Record, f *frame, name string) {
	if r.Key < c.end { // a driver's call within the runtime's
		return
	}
	c.end = r.Key + r.Duration
	if g.found.nodes++; g.found.nodes > maxCaptured {
		c.spoilt, c.nodes = true, nil
		return
	}
	n := capturedNode{kind: event.KindKernel, opaque: f.opaque}
	switch lower := strings.ToLower(name); {
	case strings.Contains(lower, "memcpy"):
		n.kind = event.KindCopy
	case strings.Contains(lower, "memset"):
		n.kind = event.KindMemset
	}
	var d event.Detail
	if d.Decode(r.Detail); n.kind != event.KindKernel || d.Launches != 0 {
		n.key = nodeKey(n.kind, g.in.Names.Name(d.Launches))
	}
	n.op, n.in = g.in.Names.Text(f.Op), g.in.Names.Text(f.around)
	if w := f.Work; w != nil {
		i := slices.IndexFunc(c.works[max(0, len(c.works)-8):], func(o capturedWork) bool { return o.from == w })
		if i >= 0 {
			i += max(0, len(c.works)-8)
		} else {
			i = len(c.works)
			c.works = append(c.works, capturedWork{
				Work: w.Work, elements: w.elements, op: g.in.Names.Name(w.op), shape: g.in.Names.Text(w.shape), from: w,
			})
		}
		n.work = i + 1
	}
	g.calls[r.Correlation] = capturedCall{c, len(c.nodes)}
	c.nodes = append(c.nodes, n)
}

// finish removes what was launched during the capture but is not part of the graph.
func (c *captured) finish() {
	c.nodes = slices.DeleteFunc(c.nodes, func(n capturedNode) bool { return n.ran })
	for i := range c.works {
		c.works[i].from = nil
	}
	for _, n := range c.nodes {
		c.named = c.named && n.key != 0
		c.set += event.Mix(n.key)
		c.kinds = event.Mix(c.kinds) + uint64(n.kind)
		c.meant, c.ranges = event.Mix(c.meant^textHash(n.op)), event.Mix(c.ranges^textHash(n.in))
		if n.work == 0 {
			continue
		}
		w := &c.works[n.work-1]
		if n.kind == event.KindKernel {
			w.launches++
		}
		amount := uint64(w.FLOPs) + uint64(w.Bytes) + uint64(w.elements)
		c.meant = event.Mix(c.meant ^ textHash(w.op+w.shape) + uint64(n.work)<<32 + amount)
	}
	c.process = nil
}

// activity reads an activity of the device: captured launches did not run, and what a graph
// launched is one of its nodes.
func (g *graphs) activity(r *event.Record) {
	if at, ok := g.calls[r.Correlation]; ok && r.Correlation != 0 && at.node < len(at.graph.nodes) {
		at.graph.nodes[at.node].ran = true
		return
	}
	rep := g.replays[r.Correlation]
	if rep == nil {
		return
	}
	key, ok := g.keys[r.Name]
	if !ok {
		key = nodeKey(r.Kind, g.in.Names.Name(r.Name))
		g.keys[r.Name] = key
	}
	rep.add(r, key)
	var d event.Detail
	d.Decode(r.Detail)
	rep.unstated = rep.unstated || d.GraphNode == 0 || d.WholeGraph
	if rep.unstated {
		return
	}
	rep.graph = graphOf(&d)
	nodes := g.ids[rep.graph]
	if nodes == nil {
		nodes = map[int64]event.Kind{}
		g.ids[rep.graph] = nodes
	}
	if _, seen := nodes[d.GraphNode]; !seen {
		if g.idCount == maxNodeIDs {
			rep.unstated = true
			return
		}
		g.idCount++
		nodes[d.GraphNode] = r.Kind
	}
}

// graphOf returns the number of an activity's graph: CUPTI's numbers of nodes have it in their
// upper half.
func graphOf(d *event.Detail) int64 {
	if d.Graph != 0 {
		return d.Graph
	}
	return d.GraphNode >> 32
}
