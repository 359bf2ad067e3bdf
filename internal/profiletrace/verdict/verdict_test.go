// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/finding"
)

func facts() *Facts {
	name := func(id uint32) string { return fmt.Sprint("n", id) }
	return &Facts{Name: name, Kernel: name, Peak: PeakOf("")}
}

// nest makes ranges that lie in each other, by start, the longer one first.
func nest(r *rand.Rand, from, to int64, depth int, add func(start, end int64)) {
	for at := from; at < to; {
		start := at + r.Int64N(20)
		end := min(to, start+1+r.Int64N(max(2, (to-from)/2)))
		if start >= end {
			return
		}
		add(start, end)
		if depth > 0 {
			nest(r, start, end, depth-1, add)
		}
		at = end
	}
}

// TestALogSaysTheInnermostRange holds it against the innermost of all ranges, moment by moment.
func TestALogSaysTheInnermostRange(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		var log Log
		innermost := make([]uint32, 1000)
		id := uint32(0)
		nest(r, 0, 1000, 3, func(start, end int64) {
			id++
			log.Add(start, end, RangeNamed, id, func() int64 { return 0 })
			for i := start; i < end; i++ {
				innermost[i] = id // ranges come outermost first
			}
		})
		from := r.Int64N(500)
		to := from + 1 + r.Int64N(499)
		at := from
		for _, p := range log.over(nil, from, to) {
			assert.Equal(t, at, p.start, "nothing is left out")
			for i := p.start; i < p.end; i++ {
				require.Equal(t, innermost[i], p.name, "at %d", i)
			}
			at = p.end
		}
		assert.Equal(t, to, at)
	}
}

// However much a host does while a device is idle, the log stays within its bound and covers all of it.
func TestALogIsBounded(t *testing.T) {
	var log Log
	const n = 50 * logPieces
	for i := range int64(n) {
		log.Add(10*i, 10*i+6, RangeOperator, uint32(1+i%3), func() int64 { return 0 })
	}
	assert.LessOrEqual(t, len(log.done), 3*logPieces)
	var covered int64
	for _, p := range log.over(nil, 0, 10*n) {
		covered += p.end - p.start
	}
	assert.Equal(t, int64(10*n), covered)
}

// TestEveryNanosecondHasOnePart holds random activities of many streams, more than are told apart, against a count of
// nanoseconds.
func TestEveryNanosecondHasOnePart(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, streams := range []int{1, 3, 2 * maxActive} {
		d := NewDevice(&Splitter{})
		class := make([]int, 20_000)
		var start, first, end int64
		for i := range 3000 {
			start += r.Int64N(4)
			length := r.Int64N(int64(4 * min(streams, 1000)))
			a := Activity{
				Start: start, End: min(start+length, int64(len(class))), Class: Class(r.IntN(3)),
				Name: uint32(r.IntN(5)), Operator: uint32(r.IntN(5)),
			}
			if i == 0 {
				first = start
			}
			end = max(end, a.End)
			for t := a.Start; t < a.End; t++ {
				if c := 3 - int(a.Class); c > class[t] {
					class[t] = c
				}
			}
			d.Add(&a, &Launch{}, start)
		}
		var want [4]int64
		for _, c := range class[first:end] {
			want[c]++
		}
		rep := d.Report(facts())
		p := rep.Parts
		assert.Equal(t, [4]int64{int64(p.Idle), int64(p.CopyExposed), int64(p.CommExposed), int64(p.Computing)}, want,
			"%d streams", streams)
		var alone time.Duration
		for _, o := range rep.Operators {
			alone += o.Alone
		}
		assert.Equal(t, p.Computing, alone)
	}
}

// A report is made of plain values: what JSON says of it is what it says.
func TestReportsAreJSON(t *testing.T) {
	d := NewDevice(&Splitter{})
	d.Add(&Activity{Start: 0, End: 100, Operator: 1, Work: &Work{FLOPs: 1000, Bytes: 100, Precision: "fp16"}}, &Launch{},
		0)
	d.Add(&Activity{Start: 300, End: 400, Name: 1}, &Launch{}, 0)
	r := d.Report(facts())
	b, err := json.Marshal(r)
	require.NoError(t, err)
	assert.Contains(t, string(b), `"idle":[{"cause":"unknown","time_ns":200}]`)
	assert.Contains(t, string(b), `"kind":"unexplained_idle"`)
	assert.InDelta(t, 1e10, r.Operators[1].FLOPRate, 1, "1,000 FLOP in 100 ns")
}

func TestReportsAreTheSameEachTime(t *testing.T) {
	f := facts()
	f.Peak = PeakOf("NVIDIA H100 80GB HBM3")
	f.Kernel = func(uint32) string { return "instances of one template" }
	var first Report
	for n := range 20 {
		d := NewDevice(&Splitter{})
		for i := range int64(50) {
			d.Add(&Activity{
				Start: 100 * i, End: 100*i + 1 + i*i%5, Name: uint32(i), Operator: uint32(i), Class: Computing,
				Work: &Work{FLOPs: 1e6 / float64(i+3), Bytes: 1e3 / float64(i+7), Precision: "fp16"},
			}, &Launch{}, 0)
		}
		r := d.Report(f)
		if n == 0 {
			first = r
		}
		require.Equal(t, first, r)
	}
	assert.Positive(t, first.Efficiency.PeakShare)
}

// Two devices of one model against one of another, kernels of other names, one step against four.
func TestCompareAcrossDevices(t *testing.T) {
	before := Report{
		Model: "A", Window: 800, Steps: 4, Parts: Parts{Computing: 400}, Idle: []CauseTime{{Cause: CauseDispatch, Time: 400}},
		Operators: []Operator{{Name: "mm", Time: 400}}, ByKernel: []Kernel{{Name: "cutlass", Time: 400}},
	}
	after := Report{
		Model: "B", Window: 150, Steps: 1, Parts: Parts{Computing: 100}, Idle: []CauseTime{{Cause: CauseLoader, Time: 50}},
		Operators: []Operator{{Name: "mm", Time: 100}}, ByKernel: []Kernel{{Name: "Cijk", Time: 100}},
	}
	c := Compare([]Report{before, before}, []Report{after})
	assert.Equal(t, [2]int64{4, 1}, c.StepCounts)
	assert.Equal(t, []Change{{"idle: launch-bound", 100, 0}, {"idle: loader", 0, 50}, {"computing", 100, 100}}, c.Parts)
	assert.Equal(t, []Change{{"mm", 100, 100}}, c.Operators)
	assert.Equal(t, []Change{{"Cijk", 0, 100}, {"cutlass", 100, 0}}, c.Kernels)
	var b bytes.Buffer
	require.NoError(t, c.Write(&b, 0))
	assert.Contains(t, b.String(), "a step is 50ns (25 %) shorter")
	assert.Contains(t, b.String(), "on another device: A before, B after")
}

func TestCompareSortsBySizeAndTakesStepsIntoAccount(t *testing.T) {
	before := Report{
		Window: 1000, Steps: 10, Parts: Parts{Computing: 400},
		Idle: []CauseTime{{Cause: CauseLoader, Time: 600}}, Operators: []Operator{{Name: "mm", Time: 400}},
	}
	after := Report{
		Window: 600, Steps: 5, Parts: Parts{Computing: 500},
		Idle: []CauseTime{{Cause: CauseLoader, Time: 100}}, Operators: []Operator{
			{Name: "mm", Time: 450},
			{Name: "add", Time: 50},
		},
	}
	c := Compare([]Report{before}, []Report{after})
	assert.True(t, c.PerStep)
	assert.Equal(t, []Change{{"computing", 40, 100}, {"idle: loader", 60, 20}}, c.Parts)
	assert.Equal(t, []Change{{"mm", 40, 90}, {"add", 0, 10}}, c.Operators)
	var sum time.Duration
	for _, p := range c.Parts {
		sum += p.Delta()
	}
	assert.Equal(t, c.After-c.Before, sum)
	var b bytes.Buffer
	require.NoError(t, c.Write(&b, 1))
	assert.Contains(t, b.String(), "and 1 more (--rows)")
	assert.True(t, strings.HasPrefix(b.String(), "a step is 20ns (20 %) longer"))
}

// What nvidia-smi and PyTorch print of the same numbers: 81559 MiB of an H100, 1.95 GiB; copies are decimal, as GB/s.
func TestHeldMemoryIsBinaryAndMovedBytesAreDecimal(t *testing.T) {
	for _, c := range []struct {
		bytes       int64
		held, moved string
	}{
		{0, "0 B", "0 B"},
		{1000, "1000 B", "1 kB"},
		{1024, "1 KiB", "1.02 kB"},
		{999 << 10, "999 KiB", "1.02 MB"},
		{1000 << 10, "0.977 MiB", "1.02 MB"},
		{2088508416, "1.95 GiB", "2.09 GB"},
		{81559 << 20, "79.6 GiB", "85.5 GB"},
		{1<<63 - 1, "8 EiB", "9.22 EB"},
	} {
		assert.Equal(t, c.held, finding.Held(c.bytes))
		assert.Equal(t, c.moved, finding.Size(c.bytes))
	}
	j := &judge{f: facts(), length: 1}
	j.memory(&Memory{First: 1 << 30, Highest: 2 << 30})
	require.Len(t, j.list, 1)
	assert.Equal(t, "from 1 GiB to 2 GiB", j.list[0].Evidence)
}

// A product that takes 2.6 µs cannot become much shorter; one of 100 µs can.
func TestNoGainBelowTheShortestKernel(t *testing.T) {
	for length, long := range map[time.Duration]bool{2600: false, 100_000: true} {
		j := &judge{f: facts(), length: int64(1000 * length)}
		j.efficiency(&Report{Operators: []Operator{{
			Name: "aten::mm", Kernels: 1000, Time: 1000 * length, Alone: 1000 * length,
			Rate: Rate{PeakShare: 0.01, Bound: "compute"},
		}}}, 1)
		require.Len(t, j.list, 1)
		if !long {
			assert.InDelta(t, 600e3, j.list[0].Gain, 10, "each from 2.6 to 2 µs")
			assert.NotContains(t, j.list[0].Remedy, "split-K")
			continue
		}
		assert.Greater(t, j.list[0].Share, 0.9)
	}
}

func TestAttentionEndsAtARouter(t *testing.T) {
	for end, times := range map[Role]int64{RoleOther: 1, RoleEnds: 0} {
		d := NewDevice(&Splitter{})
		for i, role := range []Role{RoleProduct, end, RoleSoftmax, RoleProduct} {
			at := int64(100 * i)
			d.Add(&Activity{Start: at, End: at + 100, Name: 1, Operator: 1, Role: role}, &Launch{}, 0)
		}
		assert.Equal(t, times, d.attentions)
	}
}

// A file is judged by itself, also where the folder of its job was given: no remedy asks for what may be there.
func TestRemediesForRanksHoldBesideTheOtherRanks(t *testing.T) {
	j := &judge{f: facts(), length: 100}
	j.collectives(&Report{Collectives: []Collective{{Name: "all_reduce", Waiting: 50, Moving: 50, mixed: true}}})
	require.Len(t, j.list, 2)
	const compare = "compare the ranks (their profiles, converted together, say which one is late)"
	assert.Equal(t, compare+": the late rank is the cause", j.list[0].Remedy)
	assert.Contains(t, j.list[1].Remedy, compare+", which tells waiting; overlap with computation")
}
