// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/otelgpu/otelgpu/gpuspan/internal/options"
	"github.com/otelgpu/otelgpu/gpuspan/internal/statistics"
)

type collector struct {
	mu       sync.Mutex
	service  string
	sketch   func() Sketch
	now      func() time.Time
	start    time.Time
	nodes    []*node // nodes[0] is the root
	overflow int64
	timed    int64 // timed sections, and how many of them have
	onHost   int64 // with the host's times
	latest   int64 // latest end of a timed section, unix nanoseconds
	covered  union
	loops    []*loop
	devices  []Device
	stated   map[int]Peaks    // by WithDevices, by ordinal
	dropped  map[string]int64 // since the process began, by reason
	before   map[string]int64 // the same at the last reset
	first    map[string]bool  // names that have run, where samples carry no occurrence
	streams  streams
	loose    time.Duration // of outermost sections on unknown streams
}

// Option configures the statistics of a profiler, by gpuspan.WithReport.
type Option interface{ apply(*collector) }

type optionFunc func(*collector)

func (f optionFunc) apply(c *collector) { f(c) }

// WithSketch sets the function that creates the sketch of each operation's and phase's durations,
// such as ddsketch.New. By default quantiles are computed from a uniform sample of 512 durations.
func WithSketch(newSketch func() Sketch) Option {
	return optionFunc(func(c *collector) {
		if newSketch != nil {
			c.sketch = newSketch
		}
	})
}

// WithService sets the name of the program in reports; default none.
func WithService(name string) Option { return optionFunc(func(c *collector) { c.service = name }) }

// WithDevices sets devices and their peaks, which override the peaks that a profiler finds in
// package peaks; default none. Without peaks, shares of peak are unknown.
func WithDevices(d ...Device) Option {
	return optionFunc(func(c *collector) {
		c.devices = append(c.devices, d...)
		for _, d := range d {
			if d.Peaks.known() {
				c.stated[d.Ordinal] = d.Peaks
			}
		}
	})
}

var _ statistics.Collector[Info, Device, Summary] = (*collector)(nil)

func init() {
	statistics.New = func(now func() time.Time, opts any) any { return newCollector(now, opts.([]Option)...) }
}

func newCollector(now func() time.Time, opts ...Option) *collector {
	c := &collector{
		sketch: newReservoir, now: now, nodes: []*node{{}}, first: map[string]bool{},
		stated: map[int]Peaks{}, streams: streams{},
	}
	options.All(opts, Option.apply)(c)
	c.start = c.now()
	return c
}

func (c *collector) SetDevice(d Device) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p, ok := c.stated[d.Ordinal]; ok {
		d.Peaks = p
	}
	i := slices.IndexFunc(c.devices, func(x Device) bool { return x.Ordinal == d.Ordinal })
	if i < 0 {
		i, c.devices = len(c.devices), append(c.devices, d)
	}
	c.devices[i] = d
}

func (c *collector) SetDropped(reason string, n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n == 0 {
		return
	}
	if c.dropped == nil {
		c.dropped = map[string]int64{}
	}
	c.dropped[reason] = n
}

func (c *collector) Node(parent statistics.Node, op Info) statistics.Node {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.node(parent)
	if n, ok := p.children[op.Name]; ok {
		return n
	}
	if len(c.nodes) > maxNodes && op.Name != overflowName {
		// One node for all that exceed the limit, so that their time stays in the totals. It is
		// below the root: a node for every parent could again exceed the limit.
		p, parent, op = c.nodes[0], 0, Info{Name: overflowName}
		if n, ok := p.children[op.Name]; ok {
			return n
		}
	}
	n := statistics.Node(len(c.nodes))
	if p.children == nil {
		p.children = map[string]statistics.Node{}
	}
	p.children[op.Name] = n
	p.order = append(p.order, n)
	c.nodes = append(c.nodes, &node{parent: parent, figures: figures{Operation: Operation{Info: op}}})
	return n
}

func (c *collector) node(n statistics.Node) *node {
	if n < 0 || int(n) >= len(c.nodes) {
		return c.nodes[0]
	}
	return c.nodes[n]
}

func (c *collector) Section(n statistics.Node, s statistics.Sample) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if nd := c.countable(n, 1); nd != nil {
		s.Synchronous = s.Synchronous || nd.Synchronous || nd.onHost()
		first := c.isFirst(nd, s)
		nd.section(s, first, c.sketch)
		if s.Timed && s.Duration >= 0 && !nd.onHost() {
			end := s.Start + int64(s.Duration)
			c.timed++
			if s.OnHost {
				c.onHost++
			}
			c.covered.add(s.Start, end)
			c.latest = max(c.latest, end)
			switch {
			case s.Stream != 0:
				c.streams.of(streamKey{s.Device, s.Stream}).covered.add(s.Start, end)
			case nd.parent == 0:
				c.loose += s.Duration
			}
			if nd.parent == 0 && s.Stream != 0 && nd.Name != overflowName {
				r := run{s.Start, end, n, s.OnHost && !s.Synchronous, first, s.Precision, work{
					s.Duration, IO(s.Memory), Transfer(s.PCIe), s.Items, s.FLOPs,
				}}
				c.streams.add(streamKey{s.Device, s.Stream}, r, func(in run) { c.nodes[in.node].lies(n, in, c.sketch) })
			}
		}
	}
}

func (c *collector) Untimed(n statistics.Node, count int64, s statistics.Sample) {
	if count < 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if nd := c.countable(n, count); nd != nil {
		c.first[nd.Name] = true
		nd.All.work(count, s)
		nd.Rest.work(count, s)
	}
}

func (c *collector) countable(n statistics.Node, count int64) *node {
	nd := c.node(n)
	if nd == c.nodes[0] {
		return nil
	}
	if nd.Name == overflowName {
		c.overflow += count
	}
	return nd
}

func (c *collector) isFirst(nd *node, s statistics.Sample) bool {
	if s.Occurrence > 0 {
		return s.Occurrence == 1
	}
	first := !c.first[nd.Name]
	c.first[nd.Name] = true // bounded by the number of nodes
	return first
}

func (c *collector) Step(name string, s statistics.StepSample) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.loops, func(l *loop) bool { return l.Name == name })
	if i < 0 && len(c.loops) == maxLoops {
		c.overflow++
		return
	}
	if i < 0 {
		i, c.loops = len(c.loops), append(c.loops, &loop{Loop: Loop{Name: name}})
	}
	c.loops[i].step(s, c.sketch)
}

func (c *collector) Reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.nodes {
		n.figures = figures{Operation: Operation{Info: n.Info}}
	}
	c.loops, c.overflow, c.timed, c.onHost, c.latest, c.covered = nil, 0, 0, 0, 0, union{}
	c.streams, c.loose = streams{}, 0
	c.start, c.before = c.now(), maps.Clone(c.dropped)
}
