// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package stackprofile

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/spanfacts"
)

const epoch = uint64(1_764_000_000_000_000_000)

// drawn is one span of a random trace; times in µs after epoch.
type drawn struct {
	trace, id, parent int
	name              string
	device            int // 0: host span
	start, end        int
	energy            float64
	route             bool
}

func (d drawn) write(ss ptrace.SpanSlice) {
	s := ss.AppendEmpty()
	var trace pcommon.TraceID
	var id, parent pcommon.SpanID
	binary.BigEndian.PutUint64(trace[:], uint64(d.trace))
	binary.BigEndian.PutUint64(id[:], uint64(d.id))
	binary.BigEndian.PutUint64(parent[:], uint64(d.parent))
	s.SetTraceID(trace)
	s.SetSpanID(id)
	s.SetParentSpanID(parent)
	s.SetName(d.name)
	s.SetStartTimestamp(pcommon.Timestamp(epoch + uint64(d.start)*1000))
	s.SetEndTimestamp(pcommon.Timestamp(epoch + uint64(d.end)*1000))
	if d.route {
		s.SetKind(ptrace.SpanKindServer)
	}
	if d.device > 0 {
		a := s.Attributes()
		a.PutStr("gpu.operation.type", "section")
		a.PutStr("hw.id", string(rune('a'+d.device)))
		a.PutDouble("gpu.duration", float64(d.end-d.start)*1e-6)
		a.PutDouble("gpu.energy", d.energy+1) // with its descendants
		a.PutDouble("gpu.self_energy", d.energy)
	}
}

// draw returns trees of spans of two devices and the host; children are mostly within their
// parents, and mostly arrive before them.
func draw(rng *rand.Rand, traces int) (all []drawn) {
	id := 0
	for t := range traces {
		first := len(all)
		at := rng.IntN(200_000)
		id++
		all = append(all, drawn{
			trace: t + 1, id: id, name: "POST /v1", start: at, end: at + 100 + rng.IntN(5000), route: true,
		})
		for range rng.IntN(12) {
			up := all[first+rng.IntN(len(all)-first)]
			id++
			start := up.start + rng.IntN(up.end-up.start)
			all = append(all, drawn{
				trace: t + 1, id: id, parent: up.id, name: string(rune('f' + rng.IntN(6))), device: rng.IntN(3),
				start: start, end: start + 1 + rng.IntN(1500), energy: float64(rng.IntN(1000)) / 64,
			})
		}
	}
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// oracle sums self times by marking every microsecond, and energies, by stack as text.
func oracle(all []drawn) (time map[string]float64, energy map[string]float64) {
	time, energy = map[string]float64{}, map[string]float64{}
	byID := map[int]drawn{}
	for _, d := range all {
		byID[d.id] = d
	}
	marks := map[int][]bool{}
	for _, d := range all {
		marks[d.id] = make([]bool, d.end-d.start)
	}
	for _, d := range all {
		up, ok := byID[d.parent]
		for ok && (d.device == 0 || up.device != d.device) {
			up, ok = byID[up.parent]
		}
		if !ok {
			continue
		}
		for at := max(d.start, up.start); at < min(d.end, up.end); at++ {
			marks[up.id][at-up.start] = true
		}
	}
	for _, d := range all {
		if d.device == 0 {
			continue
		}
		stack := ""
		for x, ok := d, true; ok; x, ok = byID[x.parent] {
			stack = ";" + x.name + stack
		}
		for _, m := range marks[d.id] {
			if !m {
				time["s"+stack] += 1000
			}
		}
		energy["s"+stack] += d.energy * 1e6
	}
	return time, energy
}

func text2(s *Stack) (out string) {
	for _, f := range s.Frames(nil) {
		if out != "" {
			out += ";"
		}
		out += f.Name
	}
	return out
}

func byStack(list []*Profile) (time, energy map[string]float64) {
	time, energy = map[string]float64{}, map[string]float64{}
	for _, p := range list {
		for _, s := range p.Samples() {
			if s.Values[Time] > 0 {
				time[text2(s.Stack)] += s.Values[Time]
			}
			if s.Values[Energy] > 0 {
				energy[text2(s.Stack)] += s.Values[Energy]
			}
		}
	}
	return time, energy
}

func clean(m map[string]float64) map[string]float64 {
	for k, v := range m {
		if v == 0 {
			delete(m, k)
		}
	}
	return m
}

// In any order and batches within the settle time, every stack has the time and energy from a count
// of single microseconds, and repeated spans count once.
func TestEveryStackHasTheTimeAndEnergyOfItsSpans(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 1))
		all := draw(rng, 1+rng.IntN(20))
		b := New(Options{Window: 50 * time.Millisecond})
		now := int64(epoch) + int64(time.Second)
		send := append([]drawn{}, all...)
		for _, i := range rng.Perm(len(all))[:len(all)/4] {
			send = append(send, all[i])
		}
		for len(send) > 0 {
			n := 1 + rng.IntN(len(send))
			td := ptrace.NewTraces()
			rs := td.ResourceSpans().AppendEmpty()
			rs.Resource().Attributes().PutStr("service.name", "s")
			for _, d := range send[:n] {
				d.write(rs.ScopeSpans().AppendEmpty().Spans())
			}
			b.Add(td, now)
			send = send[n:]
			now += int64(100 * time.Millisecond)
			if rng.IntN(2) == 0 {
				b.Resolve(now, false)
			}
		}
		b.Resolve(now, true)
		list := b.Take(math.MaxInt64)
		wantTime, wantEnergy := oracle(all)
		time, energy := byStack(list)
		require.Equal(t, clean(wantTime), time, "seed %d", seed)
		require.InDeltaMapValues(t, clean(wantEnergy), energy, 1e-3, "seed %d", seed)
		for _, p := range list {
			require.Zero(t, p.Start%uint64(50*1e6))
			require.Equal(t, p.Start+50*1e6, p.End)
		}
		sum := Totals(list)
		total := 0.0
		for _, v := range wantTime {
			total += v
		}
		pp := Pprof(list, Time)
		require.NoError(t, pp.CheckValid())
		var inPprof [3]int64
		for _, s := range pp.Sample {
			for i, v := range s.Value {
				inPprof[i] += v
			}
		}
		require.Equal(t, int64(total), inPprof[0])
		require.InDelta(t, sum[Energy], float64(inPprof[1]), 0.51)
		require.InDelta(t, sum[IdleTime], float64(inPprof[2]), 0.51)
		require.Zero(t, b.Pending())
	}
}

// With a tiny settle time and little space, stacks lack later spans, but no time counts twice, and
// the energy is complete.
func TestLateSpansDoNotCountTimeTwice(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 2))
		all := draw(rng, 1+rng.IntN(20))
		b := New(Options{Settle: 1, MaxWait: 2, MaxSpans: 4 + rng.IntN(40), Window: time.Second})
		now := int64(epoch) + int64(time.Second)
		for _, d := range all {
			td := ptrace.NewTraces()
			rs := td.ResourceSpans().AppendEmpty()
			rs.Resource().Attributes().PutStr("service.name", "s")
			d.write(rs.ScopeSpans().AppendEmpty().Spans())
			b.Add(td, now)
			now += 1000
			b.Resolve(now, false)
		}
		b.Resolve(now, true)
		_, wantEnergy := oracle(all)
		energy, longest := 0.0, 0.0
		for _, v := range wantEnergy {
			energy += v
		}
		for _, d := range all {
			if d.device > 0 {
				longest += float64(d.end-d.start) * 1000
			}
		}
		sum := Totals(b.Between(0, math.MaxUint64))
		require.InDelta(t, energy, sum[Energy], 1e-3)
		require.LessOrEqual(t, sum[Time], longest)
		require.LessOrEqual(t, b.Stacks(), 10_000)
	}
}

// A child that arrives after its parent was counted adds its time outside the parent; a parent that
// arrives after its child was counted has its time minus the child's.
func TestParentsAndChildrenMayArriveInAnyWindow(t *testing.T) {
	parent := drawn{trace: 1, id: 1, name: "outer", device: 1, start: 1000, end: 2000}
	child := drawn{trace: 1, id: 2, parent: 1, name: "inner", device: 1, start: 1500, end: 2100}
	for name, order := range map[string][]drawn{"child first": {child, parent}, "parent first": {parent, child}} {
		b := New(Options{Settle: 1, MaxWait: 2, Window: time.Second})
		for i, d := range order {
			td := ptrace.NewTraces()
			d.write(td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans())
			now := int64(epoch) + int64(time.Second) + int64(i)*100
			b.Add(td, now)
			b.Resolve(now+50, false)
			require.Zero(t, b.Pending())
		}
		require.Equal(t, 1_100_000.0, Totals(b.Between(0, math.MaxUint64))[Time], name)
	}
}

func TestIdleTimeBelongsToTheActivityThatWasLate(t *testing.T) {
	td := ptrace.NewTraces()
	ss := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans()
	for i, at := range []int{1000, 1500, 4000, 3_000_000} {
		drawn{trace: 1, id: i + 1, name: string(rune('a' + i)), device: 1, start: at, end: at + 700}.write(ss)
	}
	ss.At(2).Attributes().PutDouble("gpu.start.delay", 1e-3)
	b := New(Options{})
	b.Add(td, int64(epoch)+1e10)
	b.Resolve(int64(epoch)+1e10, true)
	p := b.Take(math.MaxInt64)
	require.Len(t, p, 1)
	idle := map[string]float64{}
	for _, s := range p[0].Samples() {
		if v := s.Values[IdleTime]; v > 0 {
			idle[text2(s.Stack)+" "+s.Labels.State] = v
		}
	}
	require.Equal(t, map[string]float64{
		"unknown_service;c;idle (launched late) starved": 1_800_000,
	}, idle, "the last gap is longer than max_gap")
}

func TestStacksBeyondTheLimitKeepTheirValues(t *testing.T) {
	td := ptrace.NewTraces()
	ss := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans()
	for i := range 100 {
		drawn{trace: i + 1, id: i + 1, name: string(rune(0x4e00 + i)), device: 1, start: 10 * i, end: 10*i + 10}.write(ss)
	}
	b := New(Options{MaxStacks: 10})
	b.Add(td, int64(epoch)+1e10)
	b.Resolve(int64(epoch)+1e10, true)
	require.LessOrEqual(t, b.Stacks(), 11)
	require.Equal(t, 1e6, Totals(b.Between(0, math.MaxUint64))[Time])
	require.Equal(t, int64(90), b.Stats().Overflow)
	require.Contains(t, func() (all []string) {
		for _, s := range b.Between(0, math.MaxUint64)[0].Samples() {
			all = append(all, text2(s.Stack))
		}
		return all
	}(), "unknown_service;(other stacks)")
}

func TestNamesOfKernelsAreShort(t *testing.T) {
	for in, want := range map[string]string{
		"void at::native::elementwise_kernel<4, at::native::AddFunctor<float>>(int, float*)": "elementwise_kernel",
		"ampere_sgemm_128x64_nn":                   "ampere_sgemm_128x64_nn",
		"_ZN2at6native13reduce_kernelILi512EEEvT_": "reduce_kernel",
		"broken<": "broken<",
	} {
		f := newFrame(Kernel, in, "")
		require.Equal(t, want, f.Name)
	}
}

func (d drawn) upKey() (k spanfacts.Key) {
	binary.BigEndian.PutUint64(k.Trace[:], uint64(d.trace))
	binary.BigEndian.PutUint64(k.Span[:], uint64(d.parent))
	return k
}
