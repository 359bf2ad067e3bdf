// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package report_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan/internal/statistics"
	"github.com/otelgpu/otelgpu/gpuspan/report"
	"github.com/otelgpu/otelgpu/semconv"
)

const ms = time.Millisecond

// Tests each finding just above and just below its default threshold.
func TestFindingsAppearAtTheirThresholds(t *testing.T) {
	peaks := report.WithDevices(report.Device{Peaks: report.Peaks{Memory: 1e12, PCIe: 50e9}})
	sections := func(info report.Info, n int, s statistics.Sample) func(c *report.Collector) {
		return func(c *report.Collector) {
			node := c.Node(0, info)
			for range n {
				s.Timed, s.Start, s.Occurrence = true, epoch.UnixNano(), 2
				c.Section(node, s)
			}
		}
	}
	mixed := func(share float64, is, not statistics.Sample) func(c *report.Collector) {
		return func(c *report.Collector) {
			sections(report.Info{Name: "x"}, int(100*share), is)(c)
			sections(report.Info{Name: "x"}, 100-int(100*share), not)(c)
		}
	}
	first := func(first, rest time.Duration) func(c *report.Collector) {
		return func(c *report.Collector) {
			n := c.Node(0, report.Info{Name: "x"})
			c.Section(n, statistics.Sample{Timed: true, Start: 1, Duration: first, Occurrence: 1})
			c.Section(n, statistics.Sample{Timed: true, Start: 1, Duration: rest, Occurrence: 2})
		}
	}
	sized := func(first, rest statistics.Sample) func(c *report.Collector) {
		return func(c *report.Collector) {
			n := c.Node(0, report.Info{Name: "x"})
			for i, s := range []statistics.Sample{first, rest} {
				s.Timed, s.Start, s.Occurrence = true, 1, int64(i+1)
				c.Section(n, s)
			}
		}
	}
	step := func(s statistics.StepSample) func(c *report.Collector) {
		s.Duration = 100 * ms
		return func(c *report.Collector) { c.Step("train", s) }
	}
	copied := func(part time.Duration, memory string) func(c *report.Collector) {
		return func(c *report.Collector) {
			sections(report.Info{Name: "h2d", Type: "copy", HostMemory: memory}, 1, statistics.Sample{Duration: part})(c)
			sections(report.Info{Name: "rest"}, 1, statistics.Sample{Duration: 1000*ms - part})(c)
		}
	}
	cases := []struct {
		kind        report.Kind
		found, near func(c *report.Collector)
		value       float64
	}{
		{report.PageableCopies, copied(10*ms, "pageable"), copied(9*ms, "pageable"), .01},
		{report.PageableCopies, copied(500*ms, "pageable"), copied(500*ms, "pinned"), .5},
		{
			report.Loader, step(statistics.StepSample{
				Waiting: 5 * ms,
				Phases:  []statistics.PhaseSample{{Name: "data", Duration: 5 * ms}},
			}),
			step(statistics.StepSample{Waiting: 4 * ms, Phases: []statistics.PhaseSample{
				{Name: "data", Duration: 90 * ms},
				{Name: "forward", Duration: 50 * ms},
			}}), .05,
		},
		{
			report.ExposedCommunication, step(statistics.StepSample{Exposed: 5 * ms}), step(statistics.StepSample{Exposed: 4 * ms}),
			.05,
		},
		{
			report.LaunchBound,
			mixed(.3, statistics.Sample{Duration: 20 * ms, HasDelay: true, EndDelay: ms - 1},
				statistics.Sample{Duration: 20 * ms, HasDelay: true, EndDelay: ms}),
			mixed(.29, statistics.Sample{Duration: 20 * ms, HasDelay: true, EndDelay: 0}, statistics.Sample{Duration: 20 * ms}), .3,
		},
		{
			report.BelowFloor,
			mixed(.5, statistics.Sample{Duration: 20*time.Microsecond - 1, Floor: 2 * time.Microsecond},
				statistics.Sample{Duration: 20 * time.Microsecond, Floor: 2 * time.Microsecond}),
			mixed(.49, statistics.Sample{Duration: 1, Floor: 2 * time.Microsecond}, statistics.Sample{Duration: 1}), .5,
		},
		{report.WarmUp, first(50*ms, 10*ms), first(49*ms, 10*ms), 5},
		{report.WarmUp, first(12*ms, 2*ms), first(11*ms, 2*ms), 6},
		{ // 268 MB and then 16.8 MB at about 1 GB/s: 16 times as much work
			report.WarmUp,
			sized(statistics.Sample{Duration: 1125 * ms, PCIe: statistics.Transfer{ToDevice: 268 << 20}},
				statistics.Sample{Duration: 14 * ms, PCIe: statistics.Transfer{ToDevice: 16.75 * (1 << 20)}}),
			sized(statistics.Sample{Duration: 264700 * time.Microsecond, PCIe: statistics.Transfer{ToDevice: 268 << 20}},
				statistics.Sample{Duration: 14 * ms, PCIe: statistics.Transfer{ToDevice: 16.75 * (1 << 20)}}), 1125. / 14 / 16,
		},
		{ // of several kinds of work, the one that grew most
			report.WarmUp,
			sized(statistics.Sample{Duration: 200 * ms, Items: 4, FLOPs: 3e9}, statistics.Sample{Duration: 10 * ms, Items: 1, FLOPs: 1e9}),
			sized(statistics.Sample{Duration: 199 * ms, Items: 4, FLOPs: 3e9}, statistics.Sample{Duration: 10 * ms, Items: 1, FLOPs: 1e9}),
			5,
		},
		{ // less work does not take less time than expected: it may be overhead
			report.WarmUp, sized(statistics.Sample{Duration: 50 * ms, Items: 1}, statistics.Sample{Duration: 10 * ms, Items: 2}),
			sized(statistics.Sample{Duration: 49 * ms, Items: 1}, statistics.Sample{Duration: 10 * ms, Items: 2}), 5,
		},
		{ // work that only one declares does not compare
			report.WarmUp, sized(statistics.Sample{Duration: 50 * ms, Items: 1}, statistics.Sample{Duration: 10 * ms, Items: 1}),
			sized(statistics.Sample{Duration: 500 * ms, Items: 1}, statistics.Sample{Duration: 10 * ms}), 5,
		},
		{
			report.MemorySpike, sections(report.Info{Name: "x"}, 1, statistics.Sample{MemoryUsed: 100, MemoryDelta: 25}),
			sections(report.Info{Name: "x"}, 1, statistics.Sample{MemoryUsed: 100, MemoryDelta: 24}), .25,
		},
		{
			report.LowEfficiency, sections(report.Info{Name: "x"}, 5, statistics.Sample{
				Duration: time.Second,
				Memory:   statistics.IO{Read: 99e9},
			}),
			sections(report.Info{Name: "x"}, 5, statistics.Sample{Duration: time.Second, Memory: statistics.IO{Read: 100e9}}), 1 - .099/.7,
		},
		{
			report.LowEfficiency, sections(report.Info{Name: "x"}, 5, statistics.Sample{
				Duration: time.Second,
				Memory:   statistics.IO{Read: 1e9},
			}),
			sections(report.Info{Name: "x"}, 5, statistics.Sample{Duration: time.Second}), 1 - .001/.7,
		},
		{ // a single kernel is an operator of a profile
			report.LowEfficiency, sections(report.Info{Name: "x", Type: "kernel"}, 5, statistics.Sample{
				Duration: time.Second,
				Memory:   statistics.IO{Read: 499e9},
			}),
			sections(report.Info{Name: "x", Type: "kernel"}, 5, statistics.Sample{Duration: time.Second, Memory: statistics.IO{Read: 500e9}}),
			1 - .499/.7,
		},
	}
	for _, kind := range semconv.FindingKinds() {
		tested := false
		for i := range cases {
			tested = tested || string(cases[i].kind) == kind.Kind
		}
		require.Equal(t, slices.Contains(kind.ReportedBy, "process"), tested, "add a row for %s", kind.Kind)
	}
	for _, c := range cases {
		found, near := report.NewCollector(peaks), report.NewCollector(peaks)
		c.found(found)
		c.near(near)
		got := found.Summary().Findings(report.Thresholds{})
		require.Len(t, got, 1, string(c.kind))
		require.Equal(t, c.kind, got[0].Kind)
		require.InDelta(t, c.value, got[0].Value, 1e-9)
		require.GreaterOrEqual(t, got[0].Value, got[0].Threshold)
		require.NotEmpty(t, got[0].Evidence)
		require.Contains(t, got[0].String(), "threshold")
		require.Empty(t, near.Summary().Findings(report.Thresholds{}), string(c.kind))
	}
}

func TestFewRunsDoNotAffectShares(t *testing.T) {
	c := report.NewCollector()
	n := c.Node(0, report.Info{Name: "x"})
	for range 4 {
		c.Section(n, statistics.Sample{Timed: true, Start: 1, Duration: 1, Floor: 1, HasDelay: true, Occurrence: 2})
	}
	require.Empty(t, c.Summary().Findings(report.Thresholds{}))
	require.NotEmpty(t, c.Summary().Findings(report.Thresholds{MinRuns: 4}))
	c.Section(n, statistics.Sample{Timed: true, Start: 1, Duration: 1, Floor: 1, HasDelay: true, Occurrence: 2})
	require.NotEmpty(t, c.Summary().Findings(report.Thresholds{}), "five runs")
}

func TestNegativeThresholdsSwitchFindingsOff(t *testing.T) {
	c := served()
	trained(c)
	all := c.Summary().Findings(report.Thresholds{})
	require.NotEmpty(t, all)
	off := report.Thresholds{
		PageableShare: -1, LoaderShare: -1, LaunchShare: -1, FloorShare: -1, FirstRatio: -1, SpikeShare: -1, PeakShare: -1,
		ExposedShare: -1,
	}
	require.Empty(t, c.Summary().Findings(off))
	for i := 1; i < len(all); i++ {
		require.GreaterOrEqual(t, all[i-1].Cost, all[i].Cost, "the most costly first")
	}
}

// Two of ten copies are timed, as under sampling: the text describes those two.
func TestPageableCopiesAreDescribedByTheTimedOnes(t *testing.T) {
	c := report.NewCollector()
	n := c.Node(0, report.Info{Name: "h2d", Type: "copy", HostMemory: "pageable"})
	for range 2 {
		c.Section(n, statistics.Sample{Timed: true, Start: 1, Duration: time.Millisecond, PCIe: statistics.Transfer{FromDevice: 20e6}})
	}
	c.Untimed(n, 8, statistics.Sample{PCIe: statistics.Transfer{FromDevice: 160e6}})
	f := c.Summary().Findings(report.Thresholds{})
	require.NotEmpty(t, f)
	require.Equal(t, report.PageableCopies, f[0].Kind)
	require.Contains(t, f[0].Evidence, "2 timed copies of 40.00 MB at 20.00 GB/s from or to pageable memory took 2.000ms")
}

// Host work is not part of the total for shares.
func TestCategoriesOfWorkOnTheHostHaveNoShareOfTheGPUsTime(t *testing.T) {
	c := report.NewCollector()
	compile := c.Node(0, report.Info{Name: "compile", Category: "compile", Type: "host"})
	run := c.Node(0, report.Info{Name: "run", Category: "model"})
	c.Section(compile, statistics.Sample{Timed: true, OnHost: true, Stream: 1, Start: 1, Duration: 10 * time.Second})
	c.Section(run, statistics.Sample{Timed: true, Stream: 1, Start: 20e9, Duration: time.Second})
	shares := map[string]float64{}
	for _, category := range c.Summary().Categories() {
		shares[category.Name] = category.ShareOfTotal
	}
	require.Equal(t, map[string]float64{"compile": 0, "model": 1}, shares)
	require.Equal(t, 10*time.Second, c.Summary().Categories()[0].Figures.Duration.Total)
}
