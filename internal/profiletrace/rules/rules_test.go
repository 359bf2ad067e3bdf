// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/internal/profiletrace/timeline"
	"github.com/otelgpu/otelgpu/semconv"
)

func aContext() *facts.Context {
	name := func(id uint32) string { return fmt.Sprint("n", id) }
	return &facts.Context{Name: name, Kernel: name, Peak: facts.PeakOf("")}
}

// A report consists of plain values, so JSON preserves it.
func TestReportsAreJSON(t *testing.T) {
	d := facts.NewDevice(&timeline.Splitter{})
	d.Add(&timeline.Activity{Start: 0, End: 100, Operator: 1, Work: &timeline.Work{FLOPs: 1000, Bytes: 100, Precision: "fp16"}}, &timeline.Launch{},
		0)
	d.Add(&timeline.Activity{Start: 300, End: 400, Name: 1}, &timeline.Launch{}, 0)
	f := aContext()
	r := d.Report(f)
	r.Findings = Device(&d.Totals, f, &r)
	b, err := json.Marshal(r)
	require.NoError(t, err)
	assert.Contains(t, string(b), `"idle":[{"cause":"unknown","time_ns":200}]`)
	assert.Contains(t, string(b), `"kind":"unexplained_idle"`)
	assert.InDelta(t, 1e10, r.Operators[1].FLOPRate, 1, "1,000 FLOP in 100 ns")
}

// As nvidia-smi and PyTorch print them: 81559 MiB of an H100, 1.95 GiB; copies are decimal, as in
// GB/s.
func TestMemorySizesAreBinaryAndMovedBytesAreDecimal(t *testing.T) {
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
	j := &judge{f: aContext(), length: 1}
	j.memory(&facts.Memory{First: 1 << 30, Highest: 2 << 30})
	require.Len(t, j.list, 1)
	assert.Equal(t, "from 1 GiB to 2 GiB", j.list[0].Evidence)
}

// A product that takes 2.6 µs cannot become much shorter; one of 100 µs can.
func TestNoGainBelowTheShortestKernel(t *testing.T) {
	for length, long := range map[time.Duration]bool{2600: false, 100_000: true} {
		j := &judge{f: aContext(), length: int64(1000 * length)}
		j.efficiency(&facts.Report{Operators: []facts.Operator{{
			Name: "aten::mm", Kernels: 1000, Time: 1000 * length, Alone: 1000 * length,
			Rate: facts.Rate{PeakShare: 0.01, Bound: "compute"},
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

// A file is analyzed separately, even if its job's folder was given: no remedy requests files that
// may exist.
func TestRemediesForRanksNeedNoOtherFiles(t *testing.T) {
	j := &judge{f: aContext(), length: 100}
	j.collectives(&facts.Report{Collectives: []facts.Collective{{Name: "all_reduce", Waiting: 50, Moving: 50, Mixed: true}}})
	require.Len(t, j.list, 2)
	const compare = "compare the ranks (their profiles, converted together, say which one is late)"
	assert.Equal(t, remedyOf(semconv.GPUFindingKindLateRank), j.list[0].Remedy)
	assert.Contains(t, j.list[1].Remedy, compare+", which tells waiting; overlap with computation")
}

// With one rank, waiting for the other stage of a pipeline looks like a slow transfer: no remedy
// blames the link.
func TestTransfersBetweenTwoRanksAreNotBlamedOnTheLink(t *testing.T) {
	f := aContext()
	f.Peak = facts.PeakOf("NVIDIA H100 80GB HBM3")
	for name, blamed := range map[string]bool{"all_reduce of 100 MB": true, "recv of 100 MB": false} {
		j := &judge{f: f, length: 100}
		j.collectives(&facts.Report{Collectives: []facts.Collective{{Name: name, Moving: 50, Bytes: 1e8, Best: 1e6}}})
		require.Len(t, j.list, 1)
		if blamed {
			assert.Contains(t, j.list[0].Remedy, "look at the link")
			continue
		}
		assert.NotContains(t, j.list[0].Remedy, "look at the link")
		assert.Contains(t, j.list[0].Remedy, compareRanks)
		assert.Contains(t, j.list[0].Chain[0], "transfers between two ranks move bytes or wait for a late rank")
	}
}

// Full waves at 80 % of the peak are more than good kernels reach: such an operator does not lose
// its last wave.
func TestLastWavesCostOnlyWhatKernelsCouldReach(t *testing.T) {
	for share, lost := range map[float64]time.Duration{0: 0, 0.52: 25, 0.6: 0} {
		j := &judge{f: aContext(), length: 100}
		o := facts.Operator{Name: "mm", Alone: 100, Tailed: 100, Tail: 25, Rate: facts.Rate{PeakShare: share}}
		j.tailWave(&facts.Report{Operators: []facts.Operator{o}}, nil, 1)
		if lost == 0 {
			assert.Empty(t, j.list, share)
			continue
		}
		require.Len(t, j.list, 1)
		assert.Equal(t, lost, j.list[0].Gain)
		assert.Equal(t, "25 % of the device is empty for 100ns, if all blocks take equally long", j.list[0].Chain[1])
	}
}

// Full waves at half of the peak or more are not slow: what such an operator loses, it loses in its
// last wave.
func TestKernelsThatAreSlowForTheirLastWaveOnly(t *testing.T) {
	for _, x := range []struct {
		share, tail float64
		kind        string
	}{
		{0.26, 0.47, semconv.GPUFindingKindLowEfficiency},
		{0.27, 0.47, semconv.GPUFindingKindTailWave},
		{0.36, 0.47, semconv.GPUFindingKindTailWave},
		{0.38, 0.47, semconv.GPUFindingKindLowEfficiency}, // full waves would exceed what kernels reach
		{0.36, 0, semconv.GPUFindingKindLowEfficiency},
	} {
		list := findingsOf(func(s situation) {
			n := time.Duration(windowLength)
			o := facts.Operator{
				Name: "mm", Kernels: 10, Time: n, Alone: n, Rate: facts.Rate{PeakShare: x.share, Bound: "compute"},
			}
			if x.tail > 0 {
				o.Tailed, o.Tail = n, x.tail*float64(n)
			}
			s.report.Operators = []facts.Operator{o}
		})
		assert.Equal(t, x.kind, list[0].Kind, "%+v", x)
	}
}

// A long first step, many long steps, few steps and steps of several loops are usual.
func TestUnevenStepsAreExceptions(t *testing.T) {
	for name, c := range map[string]struct {
		long     []int
		steps    int
		loop     string
		reported bool
	}{
		"one of ten":    {[]int{4}, 10, "ProfilerStep#", true},
		"two of ten":    {[]int{4, 8}, 10, "ProfilerStep#", true},
		"the first":     {[]int{0}, 10, "ProfilerStep#", false},
		"four of ten":   {[]int{2, 4, 6, 8}, 10, "ProfilerStep#", false},
		"one of five":   {[]int{3}, 5, "ProfilerStep#", false},
		"several loops": {[]int{4}, 10, "", false},
	} {
		list := findingsOf(func(s situation) {
			for i := range c.steps {
				step := facts.Step{Name: fmt.Sprint(c.loop, i), Time: 10 * time.Millisecond}
				if slices.Contains(c.long, i) {
					step.Time *= 4
				}
				s.report.ByStep = append(s.report.ByStep, step)
			}
		})
		i := slices.IndexFunc(list, func(f finding.Finding) bool { return f.Kind == semconv.GPUFindingKindUnevenSteps })
		require.Equal(t, c.reported, i >= 0, "%s: %s", name, list)
		if !c.reported {
			continue
		}
		assert.Zero(t, list[i].Gain)
		assert.Contains(t, list[i].Chain[0], fmt.Sprintf("%d of 9 steps", len(c.long)))
		assert.Contains(t, list[i].Evidence, "ProfilerStep#4")
	}
}

// The first batch before the first step of a profile is no loss of the other steps, which hide
// theirs.
func TestTheFirstBatchIsNotALossOfEachStep(t *testing.T) {
	for steps, lost := range map[int64]bool{0: true, 1: true, 2: false, 10: false} {
		list := findingsOf(func(s situation) {
			s.context.Steps = steps
			n := int64(windowLength / 5)
			s.Head.Idle(timeline.Share{Claim: timeline.Claim{To: n, Class: timeline.Idle, Cause: timeline.CauseLoader, Name: 1}})
		})
		assert.Equal(t, lost, list[0].Kind == semconv.GPUFindingKindLoader, "%d steps: %s", steps, list)
	}
}
