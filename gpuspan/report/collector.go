// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"slices"
	"sync"
	"time"

	"github.com/otelgpu/otelgpu/gpuspan/internal/intervals"
	"github.com/otelgpu/otelgpu/gpuspan/internal/options"
	"github.com/otelgpu/otelgpu/gpuspan/internal/statistics"
	"github.com/otelgpu/otelgpu/semconv"
)

const (
	maxNodes   = 4096 // positions in the nesting; further ones are counted under overflowName
	maxKernels = 32   // kernels kept for one operation
	maxLoops   = 64
	maxPhases  = 64

	overflowName = "(other)"

	// starvedPart: a section is host-starved if the device finished within this part of its
	// duration after the host did. If work had been queued ahead, the device would have finished
	// much later than the host's End.
	starvedPart = semconv.FindingLaunchBoundEndDelay
	// floorFactor: sections shorter than this many empty sections mostly measure the launch, not
	// the work.
	floorFactor = semconv.FindingBelowFloorFloor
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
	stated   map[int]Peaks // by WithDevices, by ordinal
	dropped  map[string]int64
	first    map[string]bool // names that have run, where samples carry no occurrence
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
	c.start = c.now()
}

// maxOpen bounds the disjoint intervals that may still grow.
const maxOpen = 1024

// union measures the union of intervals that arrive in any order, in bounded memory: the oldest of
// more than maxOpen disjoint intervals is closed, and what arrives before its end later on counts
// as covered already, so the length is never too large.
type union struct {
	open   intervals.Set[int64]
	closed int64 // length of closed intervals
	mark   int64 // end of the latest closed interval
	marked bool
}

func (u *union) add(start, end int64) {
	if u.marked {
		start = max(start, u.mark)
	}
	u.open.Add(start, end)
	if n := len(u.open.List); n > maxOpen { // half at a time, so that closing costs O(1) an interval
		length, mark := u.open.Take(n / 2)
		u.closed, u.mark, u.marked = u.closed+length, mark, true
	}
}

func (u *union) length() int64 { return u.closed + u.open.Length() }

// A stream does one thing after the other. So if one outermost section is inside another of its
// stream, it is part of that section's work, regardless of the context it was started with, such as
// a section in a phase that is started with the step's context:
//
//	optimizer  ├────────────┤   outermost
//	adamw        ├────────┤     outermost by its context; within optimizer
//
// The other's time includes it. gpu_join and gpu_metrics nest spans by the same rule.
// An operation that runs both alone and inside another has a row for each.
type streams map[streamKey]*timeline

type streamKey struct{ device, stream int }

// timeline is what ran on one stream.
type timeline struct {
	runs    []run
	covered union
}

// run is an outermost timed section that no later one enclosed so far.
type run struct {
	start, end int64 // unix nanoseconds
	node       statistics.Node
	launched   bool // no device timed it, and its end is not its work's
	first      bool // in the process
	precision  string
	work       work
}

// maxRuns limits the runs that are kept of a stream, and so the number of runs inside one section.
// maxStreams limits the streams.
const maxRuns, maxStreams = 1024, 1024

// of returns the timeline of a stream. Streams beyond the limit share one.
func (s streams) of(k streamKey) *timeline {
	if s[k] == nil {
		if len(s) >= maxStreams {
			k = streamKey{}
		}
		if s[k] == nil {
			s[k] = &timeline{}
		}
	}
	return s[k]
}

// total returns for how long anything ran, summed over the streams.
func (s streams) total() (t time.Duration) {
	for _, x := range s {
		t += time.Duration(x.covered.length())
	}
	return t
}

// add adds a run, in the order of ends as a profiler reports the runs of a stream, and calls inside
// with each run inside it.
func (s streams) add(k streamKey, r run, inside func(run)) {
	x := s.of(k)
	n := len(x.runs)
	for n > 0 && x.runs[n-1].start >= r.start {
		n--
	}
	kept := x.runs[:n]
	for _, in := range x.runs[n:] {
		if in.end <= r.end {
			inside(in)
		} else {
			kept = append(kept, in)
		}
	}
	if len(kept) == maxRuns {
		kept = slices.Delete(kept, 0, maxRuns/2)
	}
	x.runs = append(kept, r)
}
