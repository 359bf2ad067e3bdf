// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"time"

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

// node is one operation at one position in the nesting.
type node struct {
	parent   statistics.Node
	children map[string]statistics.Node
	order    []statistics.Node
	figures
}

// figures has the fields that Reset clears, except Info.
type figures struct {
	Operation // except for its position, shares and Durations
	sets
	within        map[statistics.Node]*nested // outermost runs inside runs of other nodes
	l2, l2Seconds float64                     // hit ratio × seconds, and the seconds
}

// sets are the durations of all runs, of the first in the process, and of the others.
type sets struct{ all, first, rest durations }

// nested are the runs of an operation that are inside runs of another on their stream.
type nested struct {
	All, First, Rest Figures
	sets
}

func (n *node) section(s statistics.Sample, first bool, sketch func() Sketch) {
	n.All.run(s, &n.all, sketch)
	if first {
		n.First.run(s, &n.first, nil)
	} else {
		n.Rest.run(s, &n.rest, nil)
	}
	n.Device = s.Device
	n.MemoryPeak, n.MemorySpike = max(n.MemoryPeak, s.MemoryUsed), max(n.MemorySpike, s.MemoryDelta)
	n.AccessPattern = cmp.Or(s.AccessPattern, n.AccessPattern)
	if s.HasZeroCopy {
		n.ZeroCopy = NoZeroCopy
		if s.ZeroCopy {
			n.ZeroCopy = UsesZeroCopy
		}
	}
	if s.Kernel != "" {
		n.kernel(s.Kernel, s.Module)
	}
	if !s.Timed {
		return
	}
	if s.HasL2HitRatio {
		n.l2 += s.L2HitRatio * s.Duration.Seconds()
		n.l2Seconds += s.Duration.Seconds()
	}
	if s.Floor > 0 {
		n.Floor = s.Floor
		if s.Duration < floorFactor*s.Floor {
			n.BelowFloor++
		}
	}
	if s.HasDelay && float64(s.EndDelay) < starvedPart*float64(s.Duration) {
		n.Starved++
	}
}

// lies adds an outermost run that is inside a run of another node, which may have the same
// operation.
func (n *node) lies(in statistics.Node, r run, sketch func() Sketch) {
	if n.within == nil {
		n.within = map[statistics.Node]*nested{} // bounded by the number of nodes
	}
	x := n.within[in]
	if x == nil {
		x = &nested{}
		n.within[in] = x
	}
	s := statistics.Sample{
		Timed: true, OnHost: r.launched, Duration: r.work.time, Memory: statistics.IO(r.work.memory),
		PCIe: statistics.Transfer(r.work.pcie), Items: r.work.items, FLOPs: r.work.flops, Precision: r.precision,
	}
	x.All.run(s, &x.all, sketch)
	if r.first {
		x.First.run(s, &x.first, nil)
	} else {
		x.Rest.run(s, &x.rest, nil)
	}
}

// alone returns the figures of the runs that are inside no other: of all, what the nested ones
// leave.
func (n *node) alone() Operation {
	o, d := n.Operation, n.sets
	o.First, o.Rest = o.First.minus(Figures{}), o.Rest.minus(Figures{})
	for _, x := range n.within {
		o.All, o.First, o.Rest = o.All.minus(x.All), o.First.minus(x.First), o.Rest.minus(x.Rest)
		d.all, d.first, d.rest = d.all.minus(&x.all), d.first.minus(&x.first), d.rest.minus(&x.rest)
	}
	o.complete(&d)
	return o
}

// complete sets the durations of an operation.
func (o *Operation) complete(d *sets) {
	o.All, o.First, o.Rest = o.All.complete(&d.all), o.First.complete(&d.first), o.Rest.complete(&d.rest)
}

// minus returns the figures without some of the runs.
func (f Figures) minus(o Figures) Figures {
	f.Count -= o.Count
	f.Memory.add(o.Memory.negative())
	f.PCIe.add(o.PCIe.negative())
	f.Items -= o.Items
	f.FLOPs = maps.Clone(f.FLOPs)
	for p, v := range o.FLOPs {
		if f.FLOPs[p] -= v; f.FLOPs[p] <= 0 {
			delete(f.FLOPs, p)
		}
	}
	t := o.timed
	f.timed.add(work{-t.time, t.memory.negative(), t.pcie.negative(), -t.items, -t.flops})
	return f
}

func (n *node) kernel(name, module string) {
	i := slices.IndexFunc(n.Kernels, func(k Kernel) bool { return k.Name == name && k.Module == module })
	if i < 0 {
		if len(n.Kernels) == maxKernels {
			return
		}
		n.Kernels = append(n.Kernels, Kernel{Name: name, Module: module})
		i = len(n.Kernels) - 1
	}
	n.Kernels[i].Count++
}

// run adds a run, and its duration to d.
func (f *Figures) run(s statistics.Sample, d *durations, sketch func() Sketch) {
	f.work(1, s)
	if !s.Timed || s.Duration < 0 {
		return
	}
	d.add(s.Duration, sketch)
	if s.OnHost && !s.Synchronous {
		return // from launch to return: not the time of the work
	}
	f.timed.add(work{s.Duration, IO(s.Memory), Transfer(s.PCIe), s.Items, s.FLOPs})
}

// work adds the declared work of s, which is the sum over count runs.
func (f *Figures) work(count int64, s statistics.Sample) {
	f.Count += count
	f.Memory.add(IO(s.Memory))
	f.PCIe.add(Transfer(s.PCIe))
	f.Items += s.Items
	if s.FLOPs != 0 {
		if f.FLOPs == nil {
			f.FLOPs = map[string]float64{}
		}
		f.FLOPs[s.Precision] += s.FLOPs
	}
}

// complete returns a copy with the durations.
func (f Figures) complete(d *durations) Figures {
	f.Duration, f.FLOPs = d.summary(), maps.Clone(f.FLOPs)
	return f
}

// durations are summed up by Welford's running mean and variance (Technometrics 4, 1962), in
// nanoseconds, because a sum of squares would lose the variance of long, even ones to rounding, and
// by a sketch if quantiles are needed.
type durations struct {
	n            int64
	total        time.Duration
	min, max     time.Duration
	mean, square float64
	sketch       Sketch
}

func (w *durations) add(d time.Duration, sketch func() Sketch) {
	if w.n == 0 || d < w.min {
		w.min = d
	}
	w.max = max(w.max, d)
	w.n++
	w.total += d
	delta := float64(d) - w.mean
	w.mean += delta / float64(w.n)
	w.square += delta * (float64(d) - w.mean)
	if sketch == nil {
		return
	}
	if w.sketch == nil {
		w.sketch = sketch()
	}
	w.sketch.Add(d.Seconds())
}

func (w *durations) summary() Durations {
	if w.n == 0 {
		return Durations{}
	}
	d := Durations{
		Count: w.n, Total: w.total, Min: w.min, Max: w.max,
		Mean:   time.Duration(math.Round(w.mean)),
		StdDev: time.Duration(math.Round(math.Sqrt(w.square / float64(w.n)))),
	}
	if s := w.sketch; s != nil {
		d.P50, d.P99 = quantile(s, .5, d), quantile(s, .99, d)
	}
	return d
}

// quantile limits a sketch's estimate to the extremes, which are exact.
func quantile(s Sketch, q float64, d Durations) time.Duration {
	v, ok := s.Quantile(q)
	if !ok {
		return 0
	}
	return min(max(time.Duration(math.Round(v*1e9)), d.Min), d.Max)
}

// minus returns the statistics without some of the durations, by the inverse of Chan's update. The
// extremes of all durations remain, and quantiles are unknown.
func (w durations) minus(o *durations) durations {
	if o.n == 0 {
		return w
	}
	out := durations{n: w.n - o.n, total: w.total - o.total, min: w.min, max: w.max}
	if out.n <= 0 {
		return durations{}
	}
	out.mean = float64(out.total) / float64(out.n)
	delta := o.mean - out.mean
	out.square = max(w.square-o.square-delta*delta*float64(o.n)*float64(out.n)/float64(w.n), 0)
	return out
}

const reservoirSize = 512

// reservoir is a uniform sample of all durations, by Vitter's Algorithm R (ACM TOMS 11, 1985). It
// is exact up to 512 durations; beyond, the 99th percentile is off by about 0.44 percent of rank
// (one standard deviation).
type reservoir struct {
	seen   uint64
	values []float64
	random *rand.Rand
}

func newReservoir() Sketch {
	// A fixed seed: the same run gives the same report.
	return &reservoir{random: rand.New(rand.NewPCG(1, 2))}
}

func (r *reservoir) Add(seconds float64) {
	r.seen++
	if len(r.values) < reservoirSize {
		r.values = append(r.values, seconds)
		return
	}
	if i := r.random.Uint64N(r.seen); i < reservoirSize {
		r.values[i] = seconds
	}
}

// Quantile returns the value of rank ceil(q × n), the nearest-rank definition.
func (r *reservoir) Quantile(q float64) (float64, bool) {
	if len(r.values) == 0 {
		return 0, false
	}
	sorted := slices.Sorted(slices.Values(r.values))
	i := int(math.Ceil(q*float64(len(sorted)))) - 1
	return sorted[min(max(i, 0), len(sorted)-1)], true
}

type loop struct {
	Loop      // except for Steps, durations, and MFU
	dur, host durations
	phases    []*phase
	device    int                 // of the latest step
	flopTime  map[string]flopTime // by precision: FLOPs and device seconds of the steps that stated them
}

type flopTime struct{ flops, seconds float64 }

type phase struct {
	name    string
	dur     durations
	unknown durations // of the steps in which it is unknown
}

func (l *loop) step(s statistics.StepSample, sketch func() Sketch) {
	l.dur.add(s.Duration, sketch)
	if s.Host > 0 {
		l.host.add(s.Host, nil)
	}
	for _, p := range s.Phases {
		switch ph := l.phase(p.Name); {
		case ph == nil:
		case p.Unknown:
			ph.unknown.add(s.Duration, nil)
		default:
			ph.dur.add(p.Duration, sketch)
		}
	}
	if s.Untimed == 0 {
		l.Covered += s.Covered
	}
	if s.Partial {
		l.Partial++
		l.partial += s.Duration
	} else {
		l.Overlap += s.Overlap
		l.Other += s.Other
		l.Exposed += s.Exposed
		l.Waiting += s.Waiting
	}
	l.device = s.Device
	l.Items += s.Items
	l.ItemType = cmp.Or(s.ItemType, l.ItemType)
	if s.ModelFLOPs > 0 {
		l.ModelFLOPs += s.ModelFLOPs
		if l.flopTime == nil {
			l.flopTime = map[string]flopTime{}
		}
		f := l.flopTime[s.Precision]
		f.flops += s.ModelFLOPs
		f.seconds += s.Duration.Seconds() * float64(max(s.Devices, 1))
		l.flopTime[s.Precision] = f
	}
}

func (l *loop) phase(name string) *phase {
	i := slices.IndexFunc(l.phases, func(p *phase) bool { return p.name == name })
	if i >= 0 {
		return l.phases[i]
	}
	if len(l.phases) == maxPhases {
		return nil
	}
	p := &phase{name: name}
	l.phases = append(l.phases, p)
	return p
}

func (l *loop) summary(peaks Peaks) Loop {
	out := l.Loop
	out.Steps, out.Duration, out.Host = l.dur.n, l.dur.summary(), l.host.summary()
	for _, p := range l.phases {
		out.Phases = append(out.Phases, Phase{
			Name: p.name, Duration: p.dur.summary(), Unknown: p.unknown.n, unknown: p.unknown.total,
		})
	}
	// A mean over precisions has no peak to compare with, so MFU requires every step to state one
	// precision.
	if len(l.flopTime) == 1 {
		for precision, f := range l.flopTime {
			if peak := peaks.FLOPs[precision]; peak > 0 && f.seconds > 0 {
				out.MFU = f.flops / f.seconds / peak
			}
		}
	}
	return out
}
