// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
)

const (
	oracleLength = 4000 // ms of spans; samples start a second earlier and end a second later
	oracleEvery  = 100  // ms between samples
)

// metered is a device of the oracle with its values at each sample, by ms.
type metered struct {
	id      string
	board   int // index of the physical GPU in the list, its own for a physical GPU
	times   []int
	samples map[int]*devicesamples.Sample
	fields  []devicesamples.Field
}

func (d *metered) has(f devicesamples.Field) bool { return slices.Contains(d.fields, f) }

// pair returns the samples around the ms that starts at m; false if they are too far apart, or a
// counter was reset.
func (d *metered) pair(f devicesamples.Field, m int) (t0, t1 int, v0, v1 float64, ok bool) {
	i, _ := slices.BinarySearch(d.times, m+1)
	if i == 0 || i == len(d.times) || d.times[i]-d.times[i-1] > 3*oracleEvery {
		return 0, 0, 0, 0, false
	}
	t0, t1 = d.times[i-1], d.times[i]
	v0, v1 = d.samples[t0].Values[f], d.samples[t1].Values[f]
	return t0, t1, v0, v1, f != devicesamples.Energy || v1 >= v0
}

// worked is a span of the oracle: times in ms.
type worked struct {
	id, parent int // indexes in the list; parent -1: none
	through    bool
	kind       string
	process    int
	devices    []int
	stream     int
	start, end int
	queue      int
	own        map[int]float64 // by board
	known      map[int]int     // ms of each board's counter
	nested     int             // id of the enclosing span on its stream; 0: none
}

func (s *worked) begins() int { return s.start + s.queue }

// oracle has random devices, and spans of processes that use them, and computes millisecond by
// millisecond what README specifies for each.
type oracle struct {
	rng     *rand.Rand
	devices []*metered
	spans   []*worked // ordered by request, one for each process
	shift   int
}

func newOracle(seed uint64) *oracle {
	x := &oracle{rng: rand.New(rand.NewPCG(seed, 99)), shift: int(seed%3)*250 - 250}
	r := x.rng
	whole := []devicesamples.Field{
		devicesamples.Energy, devicesamples.Power, devicesamples.Temperature,
		devicesamples.Utilization, devicesamples.SMUtilization, devicesamples.ClockSM,
		devicesamples.MemoryUsed, devicesamples.Throttle,
	}
	first := whole
	if seed%2 == 1 { // its power is the increase of its counter
		first = slices.Delete(slices.Clone(whole), 1, 2)
	}
	for i, fields := range [][]devicesamples.Field{
		first, whole[1:], // one without a counter of energy
		{devicesamples.Utilization, devicesamples.MemoryUsed}, {devicesamples.SMUtilization},
	} {
		d := &metered{
			id: fmt.Sprintf("GPU-00000000-0000-4000-8000-%012d", i), board: i, fields: fields,
			samples: map[int]*devicesamples.Sample{},
		}
		if i > 1 {
			d.id, d.board = "MIG"+d.id[3:], 0
		}
		gap, reset, joules := r.IntN(2*oracleLength), r.IntN(2*oracleLength), 1e4
		for t := -1000; t <= oracleLength+1000; t += oracleEvery {
			joules += 50 * r.Float64()
			if t >= reset {
				joules, reset = 10*r.Float64(), math.MaxInt
			}
			if t > gap && t < gap+1200 {
				continue
			}
			s := &devicesamples.Sample{}
			for _, f := range fields {
				switch v := r.Float64(); f {
				case devicesamples.Energy:
					s.Set(f, joules)
				case devicesamples.Power:
					s.Set(f, 100)
					if t > gap { // on a slope, part of a cell would have the cell's mean
						s.Set(f, 300)
					}
				case devicesamples.Throttle:
					s.Set(f, float64(r.IntN(4)*r.IntN(2)))
				default:
					if f.Kind() != devicesamples.KindInterval {
						v *= 250
					}
					s.Set(f, v)
				}
			}
			d.times, d.samples[t] = append(d.times, t), s
		}
		x.devices = append(x.devices, d)
	}
	for process := range 1 + r.IntN(3) {
		var of []*worked
		for range 1 + r.IntN(8) {
			s := &worked{
				parent: -1, process: process, kind: "section", stream: r.IntN(3) - 1, devices: []int{r.IntN(len(x.devices))},
				own: map[int]float64{}, known: map[int]int{}, id: len(x.spans) + len(of) + 1,
			}
			s.start = r.IntN(oracleLength - 10)
			s.end = s.start + 1 + r.IntN(oracleLength-s.start-1)
			switch r.IntN(5) {
			case 0:
				s.kind, s.stream = "request", -1
				s.devices = r.Perm(len(x.devices))[:1+r.IntN(len(x.devices))]
				s.queue = r.IntN(2) * r.IntN(s.end-s.start) / 125 * 125 // exactly representable in seconds
			case 1:
				s.kind, s.stream = "step", -1
			}
			if p := r.IntN(2 * (len(of) + 1)); p < len(of) && s.kind == "section" {
				up := of[p]
				s.parent, s.through = up.id, r.IntN(3) == 0
				if r.IntN(4) > 0 {
					s.devices = []int{up.devices[r.IntN(len(up.devices))]}
				}
				s.start = up.begins() + r.IntN(up.end-up.begins())
				s.end = s.start + 1 + r.IntN(up.end-s.start)
			}
			of = append(of, s)
		}
		slices.SortStableFunc(of, func(a, b *worked) int { return a.end - b.end })
		for j, in := range of { // an enclosing sibling on its stream, if it arrives later
			for _, out := range of[j+1:] {
				if in.stream >= 0 && in.stream == out.stream && in.parent == out.parent && in.devices[0] == out.devices[0] &&
					in.start >= out.start {
					in.nested = out.id
					break
				}
			}
		}
		x.spans = append(x.spans, of...)
	}
	x.share()
	return x
}

func (x *oracle) span(id int) *worked {
	return x.spans[slices.IndexFunc(x.spans, func(s *worked) bool { return s.id == id })]
}

// up returns the enclosing span, or nil for an outermost one.
func (x *oracle) up(s *worked) *worked {
	switch {
	case s.nested > 0:
		return x.span(s.nested)
	case s.parent > 0:
		return x.span(s.parent)
	}
	return nil
}

// boards returns the physical GPUs of a span's devices, each once.
func (x *oracle) boards(s *worked) (list []int) {
	for _, d := range s.devices {
		if b := x.devices[d].board; !slices.Contains(list, b) {
			list = append(list, b)
		}
	}
	return list
}

// flow returns the energy of a physical GPU in the ms that starts at m, in J.
func (x *oracle) flow(b, m int) (joules float64, known bool) {
	d, m := x.devices[b], m+x.shift
	if d.has(devicesamples.Energy) {
		t0, t1, v0, v1, ok := d.pair(devicesamples.Energy, m)
		return (v1 - v0) / float64(t1-t0), ok
	}
	_, _, v0, v1, ok := d.pair(devicesamples.Power, m)
	return (v0 + v1) / 2000, ok
}

func (x *oracle) share() {
	for b := range 2 {
		for m := range oracleLength {
			joules, known := x.flow(b, m)
			var active []*worked
			for _, s := range x.spans {
				if slices.Contains(x.boards(s), b) && s.begins() <= m && m < s.end {
					active = append(active, s)
				}
			}
			above := map[*worked]bool{}
			for _, s := range active {
				for a := x.up(s); a != nil && slices.Contains(x.boards(a), b); a = x.up(a) {
					above[a] = true // above a span on another physical GPU it is unknown
				}
			}
			innermost := map[int][2][]*worked{}
			for _, s := range active {
				if known {
					s.known[b]++
				}
				if above[s] {
					continue
				}
				of, k := innermost[s.process], 0
				if s.kind == "request" {
					k = 1
				}
				of[k] = append(of[k], s)
				innermost[s.process] = of
			}
			for _, of := range innermost {
				list := of[0]
				if len(list) == 0 {
					list = of[1]
				}
				for _, s := range list {
					if known {
						s.own[b] += joules / float64(len(innermost)) / float64(len(list))
					}
				}
			}
		}
	}
}

// below returns the energy of a span's descendants on a physical GPU.
func (x *oracle) below(s *worked, b int) (sum float64) {
	for _, c := range x.spans {
		if x.up(c) == s {
			sum += c.own[b] + x.below(c, b)
		}
	}
	return sum
}

// value returns the mean and maximum of a device's field in the ms that starts at m. Ratios and
// masks apply since the previous sample.
func (d *metered) value(f devicesamples.Field, m int) (mean, most float64, ok bool) {
	t0, t1, v0, v1, ok := d.pair(f, m)
	at := func(t float64) float64 { return v0 + (v1-v0)*(t-float64(t0))/float64(t1-t0) }
	switch f {
	case devicesamples.Utilization, devicesamples.SMUtilization, devicesamples.Throttle:
		return v1, v1, ok
	case devicesamples.Energy:
		return (v1 - v0) / float64(t1-t0) * 1000, 0, ok
	}
	return at(float64(m) + 0.5), max(at(float64(m)), at(float64(m+1))), ok
}

// read returns the mean and maximum of a device's field in an interval; ok is false if all of it is
// unknown.
func (x *oracle) read(d *metered, f devicesamples.Field, from, to int) (mean, most float64, covered int, ok bool) {
	most = math.Inf(-1)
	for m := from; m < to; m++ {
		if v, top, ok := d.value(f, m+x.shift); ok && d.has(f) {
			mean, most, covered = mean+v, max(most, top), covered+1
		}
	}
	return mean / float64(covered), most, covered, covered > 0
}

// oracleMeans are the fields that have a mean, and whether a device has it only if it measures it
// itself.
var oracleMeans = map[string]struct {
	field devicesamples.Field
	own   bool
}{
	"gpu.utilization": {devicesamples.Utilization, true}, "gpu.sm.utilization": {devicesamples.SMUtilization, true},
	"gpu.clock.sm.frequency": {devicesamples.ClockSM, false}, "gpu.power": {devicesamples.Power, false},
}

// says returns the attributes that README specifies for a span.
func (x *oracle) says(s *worked, energyOnMIG bool) map[string]any {
	from, to := s.begins(), s.end
	out := map[string]any{}
	if len(s.devices) > 1 {
		out["gpu.device.count"] = float64(len(s.devices))
	}
	sum, n := map[string]float64{}, map[string]float64{}
	energy, own, memory, hottest := 0., 0., 0., math.Inf(-1)
	known, hasMemory, held, worst, mask := true, true, false, 0, uint64(0)
	for _, i := range s.devices {
		d := x.devices[i]
		either := func(f devicesamples.Field) *metered {
			if d.has(f) {
				return d
			}
			return x.devices[d.board]
		}
		if _, _, _, ok := x.read(d, d.fields[0], from, to); !ok { // all unknown
			return out
		}
		known = known && (energyOnMIG || d.board == i)
		for key, m := range oracleMeans {
			at, f := d, m.field
			if !m.own {
				at = either(f)
			}
			if f == devicesamples.Power && !at.has(f) {
				f = devicesamples.Energy
			}
			if v, _, _, ok := x.read(at, f, from, to); ok {
				sum[key] += v
				n[key]++
			}
		}
		used, _, _, ok := x.read(d, devicesamples.MemoryUsed, from, to)
		memory, hasMemory = memory+used, hasMemory && ok
		if _, top, _, ok := x.read(either(devicesamples.Temperature), devicesamples.Temperature, from, to); ok {
			hottest = max(hottest, top)
		}
		of, some := either(devicesamples.Throttle), 0
		for m := from; m < to; m++ {
			if v, _, ok := of.value(devicesamples.Throttle, m+x.shift); ok {
				held = true
				mask |= uint64(v)
				if v > 0 {
					some++
				}
			}
		}
		worst = max(worst, some)
	}
	for _, b := range x.boards(s) {
		if s.known[b] == 0 {
			known = false
			if len(s.devices) > 1 {
				return out
			}
		}
		energy += s.own[b] + x.below(s, b)
		own += s.own[b]
	}
	for b := range 2 { // of descendants on devices where the span is not
		if !slices.Contains(x.boards(s), b) {
			energy += x.below(s, b)
		}
	}
	if known {
		out["gpu.energy"], out["gpu.self_energy"] = energy, own
	}
	for key, v := range sum {
		out[key] = v / n[key]
	}
	if hasMemory {
		out["gpu.memory.usage"] = math.Round(memory)
	}
	if !math.IsInf(hottest, 0) {
		out["gpu.temperature.max"] = hottest
	}
	if held {
		out["gpu.throttle.time"] = float64(worst) / 1000
		var reasons []string
		devicesamples.ThrottleReason(mask).Each(func(r devicesamples.ThrottleReason) {
			reasons = append(reasons, r.String())
		})
		slices.Sort(reasons)
		out["gpu.throttle.reasons"] = strings.Join(reasons, " ")
	}
	return out
}

// Compares random work on physical GPUs and their MIG instances, in trees, concurrently on streams,
// with host spans and requests on several devices, with the specification in README, computed
// millisecond by millisecond.
func TestRandomSpansEqualASumOverMilliseconds(t *testing.T) {
	for seed := range uint64(40) {
		x := newOracle(seed)
		synctest.Test(t, func(t *testing.T) { x.run(t, seed) })
		if t.Failed() {
			t.Fatal("seed", seed)
		}
	}
}

func (x *oracle) run(t *testing.T, seed uint64) {
	onMIG := seed%4 < 2
	r := newRig(t).join(func(c *Config) {
		c.EnergyOnMIG, c.Shift = onMIG, time.Duration(x.shift)*time.Millisecond
	})
	defer r.close()
	zero := time.Now().Add(time.Second)
	ms := func(m int) time.Time { return zero.Add(time.Duration(m) * time.Millisecond) }
	time.Sleep(6100 * time.Millisecond)
	for i, d := range x.devices {
		desc := devicesamples.Device{ID: d.id, Interval: oracleEvery * time.Millisecond, Source: "simulated"}
		if d.board != i {
			desc.Parent = x.devices[d.board].id
		}
		var all []devicesamples.Sample
		for _, at := range d.times {
			s := *d.samples[at]
			s.Time = ms(at).UnixNano()
			all = append(all, s)
		}
		r.device(desc).Write(all)
	}
	for process := range 3 {
		td := newTraces(fmt.Sprint("p", process))
		for _, s := range x.spans {
			if s.process != process {
				continue
			}
			parent := uint64(max(s.parent, 0))
			if s.through {
				parent = uint64(1000 + s.id)
				td.host(parent, uint64(max(s.parent, 0)), ms(s.start), ms(s.end))
			}
			var ids []string
			for _, d := range s.devices {
				ids = append(ids, x.devices[d].id)
			}
			at := td.gpu(uint64(s.id), parent, ms(s.start), ms(s.end)).Attributes()
			at.PutStr("gpu.operation.type", s.kind)
			at.PutStr("hw.id", strings.Join(ids, ","))
			if s.stream >= 0 {
				at.PutInt("gpu.stream.id", int64(s.stream))
			}
			if s.queue > 0 {
				at.PutDouble("gpu.request.queue.duration", float64(s.queue)/1000)
			}
		}
		for range 1 + x.rng.IntN(2) { // possibly repeated, as by a sender that missed the response
			again := ptrace.NewTraces()
			td.CopyTo(again)
			if again.SpanCount() > 0 {
				r.consume(again)
			}
		}
	}
	time.Sleep(12 * time.Second)
	got, sum, withheld := r.spans(), 0., 0.
	for _, s := range x.spans {
		require.Contains(t, got, uint64(s.id))
		has := got[uint64(s.id)].Attributes().AsRaw()
		where := fmt.Sprintf("seed %d shift %d: %+v has %v", seed, x.shift, *s, has)
		want := x.says(s, onMIG)
		if _, some := has["gpu.energy"]; some && has["gpu.self_energy"] == nil {
			has["gpu.self_energy"] = has["gpu.energy"]
		}
		for _, key := range []string{
			"gpu.energy", "gpu.self_energy", "gpu.utilization", "gpu.sm.utilization", "gpu.clock.sm.frequency", "gpu.power",
			"gpu.memory.usage", "gpu.temperature.max", "gpu.throttle.time", "gpu.throttle.reasons", "gpu.device.count",
		} {
			w, some := want[key]
			if strings.HasSuffix(key, "energy") && some && w != "" && has[key] == nil && w.(float64) > 0 {
				if key == "gpu.self_energy" {
					withheld += w.(float64)
				}
				continue // its error exceeds it
			}
			require.Equal(t, some && w != "", has[key] != nil, "%s: %v\n%s", key, w, where)
			switch v := has[key].(type) {
			case float64:
				require.InDelta(t, w, v, 1e-9*(1+math.Abs(v)), "%s\n%s", key, where)
			case int64:
				require.EqualValues(t, w, v, "%s\n%s", key, where)
			case []any:
				require.Equal(t, w, strings.Trim(fmt.Sprint(v), "[]"), "%s\n%s", key, where)
			}
		}
		for b := range 2 {
			sum += s.own[b]
		}
	}
	require.InEpsilon(t, 1+sum, 1+r.energy("attributed"), 1e-9)
	require.InEpsilon(t, 1+withheld, 1+r.withheld(), 1e-9)
	require.Zero(t, r.energy("late"))
	time.Sleep(10 * time.Minute)
	require.Zero(t, r.gauge("known_spans"), "all are forgotten")
}
