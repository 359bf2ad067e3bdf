// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/profiletrace/timeline"
)

func aContext() *Context {
	name := func(id uint32) string { return fmt.Sprint("n", id) }
	return &Context{Name: name, Kernel: name, Peak: PeakOf("")}
}

// TestEveryNanosecondHasOnePart compares random activities on more streams than are distinguished
// with a count by nanosecond.
func TestEveryNanosecondHasOnePart(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, streams := range []int{1, 3, 2 * maxActive} {
		d := NewDevice(&timeline.Splitter{})
		class := make([]int, 20_000)
		var start, first, end int64
		for i := range 3000 {
			start += r.Int64N(4)
			length := r.Int64N(int64(4 * min(streams, 1000)))
			a := timeline.Activity{
				Start: start, End: min(start+length, int64(len(class))), Class: timeline.Class(r.IntN(3)),
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
			d.Add(&a, &timeline.Launch{}, start)
		}
		var want [4]int64
		for _, c := range class[first:end] {
			want[c]++
		}
		rep := d.Report(aContext())
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

func TestReportsAreTheSameEachTime(t *testing.T) {
	f := aContext()
	f.Peak = PeakOf("NVIDIA H100 80GB HBM3")
	f.Kernel = func(uint32) string { return "instances of one template" }
	var first Report
	for n := range 20 {
		d := NewDevice(&timeline.Splitter{})
		for i := range int64(50) {
			d.Add(&timeline.Activity{
				Start: 100 * i, End: 100*i + 1 + i*i%5, Name: uint32(i), Operator: uint32(i), Class: timeline.Computing,
				Work: &timeline.Work{FLOPs: 1e6 / float64(i+3), Bytes: 1e3 / float64(i+7), Precision: "fp16"},
			}, &timeline.Launch{}, 0)
		}
		r := d.Report(f)
		if n == 0 {
			first = r
		}
		require.Equal(t, first, r)
	}
	assert.Positive(t, first.Efficiency.PeakShare)
}

// Compares two devices of one model with one of another, with other kernel names, and one step with
// four.
func TestCompareAcrossDevices(t *testing.T) {
	before := Report{
		Model: "A", Window: 800, Steps: 4, Parts: Parts{Computing: 400}, Idle: []CauseTime{{Cause: timeline.CauseDispatch, Time: 400}},
		Operators: []Operator{{Name: "mm", Time: 400}}, ByKernel: []Kernel{{Name: "cutlass", Time: 400}},
	}
	after := Report{
		Model: "B", Window: 150, Steps: 1, Parts: Parts{Computing: 100}, Idle: []CauseTime{{Cause: timeline.CauseLoader, Time: 50}},
		Operators: []Operator{{Name: "mm", Time: 100}}, ByKernel: []Kernel{{Name: "Cijk", Time: 100}},
	}
	c := Compare([]Report{before, before}, []Report{after})
	assert.Equal(t, [2]int64{4, 1}, c.StepCounts)
	assert.Equal(t, []Change{{Name: "idle: launch-bound", Before: 100, After: 0}, {Name: "idle: loader", Before: 0, After: 50}, {Name: "computing", Before: 100, After: 100}}, c.Parts)
	assert.Equal(t, []Change{{Name: "mm", Before: 100, After: 100}}, times(c.Operators))
	assert.Equal(t, []Change{{Name: "Cijk", Before: 0, After: 100}, {Name: "cutlass", Before: 100, After: 0}}, times(c.Kernels))
	var b bytes.Buffer
	require.NoError(t, c.Write(&b, 0))
	assert.Contains(t, b.String(), "a step is 50ns (25 %) shorter")
	assert.Contains(t, b.String(), "on another device: A before, B after")
}

func TestCompareSortsBySizeAndTakesStepsIntoAccount(t *testing.T) {
	before := Report{
		Window: 1000, Steps: 10, Parts: Parts{Computing: 400},
		Idle: []CauseTime{{Cause: timeline.CauseLoader, Time: 600}}, Operators: []Operator{{Name: "mm", Time: 400}},
	}
	after := Report{
		Window: 600, Steps: 5, Parts: Parts{Computing: 500},
		Idle: []CauseTime{{Cause: timeline.CauseLoader, Time: 100}}, Operators: []Operator{
			{Name: "mm", Time: 450},
			{Name: "add", Time: 50},
		},
	}
	c := Compare([]Report{before}, []Report{after})
	assert.True(t, c.PerStep)
	assert.Equal(t, []Change{{Name: "computing", Before: 40, After: 100}, {Name: "idle: loader", Before: 60, After: 20}}, c.Parts)
	assert.Equal(t, []Change{{Name: "mm", Before: 40, After: 90}, {Name: "add", Before: 0, After: 10}}, times(c.Operators))
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

func TestAttentionEndsAtARouter(t *testing.T) {
	for end, times := range map[timeline.Role]int64{timeline.RoleOther: 1, timeline.RoleEnds: 0} {
		d := NewDevice(&timeline.Splitter{})
		for i, role := range []timeline.Role{timeline.RoleProduct, end, timeline.RoleSoftmax, timeline.RoleProduct} {
			at := int64(100 * i)
			d.Add(&timeline.Activity{Start: at, End: at + 100, Name: 1, Operator: 1, Role: role}, &timeline.Launch{}, 0)
		}
		assert.Equal(t, times, d.Attentions)
	}
}

func TestReportOmitsARateThatIsNotKnown(t *testing.T) {
	r := Report{Window: time.Second, Parts: Parts{Computing: time.Second}}
	for want, e := range map[string]Efficiency{
		"; operators with known work: 2 TFLOP/s over 50 % of the kernel time":         {FLOPs: 1e12},
		"; operators with known work: 4 GB/s over 50 % of the kernel time":            {Bytes: 2e9},
		"; operators with known work: 2 TFLOP/s, 4 GB/s over 50 % of the kernel time": {FLOPs: 1e12, Bytes: 2e9},
		"": {},
	} {
		e.Time, e.Coverage = 500*time.Millisecond, 0.5
		r.Efficiency = e
		_, rates, found := strings.Cut(r.String(), "; operators")
		assert.Equal(t, want != "", found)
		assert.Equal(t, strings.TrimPrefix(want, "; operators"), rates)
	}
}

// times returns the changes without the work.
func times(list []Change) (bare []Change) {
	for _, c := range list {
		bare = append(bare, Change{Name: c.Name, Before: c.Before, After: c.After})
	}
	return bare
}
