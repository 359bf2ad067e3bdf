// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package report_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan/internal/statistics"
	"github.com/otelgpu/otelgpu/gpuspan/report"
)

// on records a run from one millisecond to another on a stream.
func on(c *report.Collector, n statistics.Node, stream int, from, to int64) {
	c.Section(n, statistics.Sample{
		Timed: true, Stream: stream, Start: epoch.UnixNano() + from*1e6,
		Duration: time.Duration((to - from) * 1e6),
	})
}

// If sections start with the step's context, they are siblings of their phase below the step. Two
// phases of equal length still have half of the time each.
func TestSectionInsideAnotherOnItsStreamIsPartOfIt(t *testing.T) {
	c := report.NewCollector()
	forward, optimizer := c.Node(0, report.Info{Name: "forward"}), c.Node(0, report.Info{Name: "optimizer"})
	adamw, conv := c.Node(0, report.Info{Name: "adamw"}), c.Node(0, report.Info{Name: "conv"})
	gemm, copied := c.Node(0, report.Info{Name: "gemm"}), c.Node(0, report.Info{Name: "copy"})
	for i := range int64(10) { // in end order, as sections of a stream are read back
		at := 40 * i
		on(c, gemm, 1, at+2, at+4)
		on(c, conv, 1, at+1, at+9)
		on(c, forward, 1, at, at+10)
		on(c, copied, 2, at+3, at+8) // concurrently on another stream
		on(c, adamw, 1, at+10, at+19)
		on(c, optimizer, 1, at+10, at+20)
		on(c, copied, 1, at+20, at+25) // after it
	}
	s := c.Summary()
	require.Equal(t, 300*time.Millisecond, s.Total())
	for name, want := range map[string]struct {
		path       []string
		ofAll, ofP float64
	}{
		"forward":   {[]string{"forward"}, 100. / 300, 100. / 300},
		"optimizer": {[]string{"optimizer"}, 100. / 300, 100. / 300},
		"adamw":     {[]string{"optimizer", "adamw"}, 90. / 300, 90. / 100},
		"conv":      {[]string{"forward", "conv"}, 80. / 300, 80. / 100},
		"gemm":      {[]string{"forward", "conv", "gemm"}, 20. / 300, 20. / 80},
		"copy":      {[]string{"copy"}, 100. / 300, 100. / 300},
	} {
		o := find(t, s, name)
		require.Equal(t, want.path, o.Path)
		require.InDelta(t, want.ofAll, o.ShareOfTotal, 1e-12, name)
		require.InDelta(t, want.ofP, o.ShareOfParent, 1e-12, name)
	}

	// An operation that runs within several has a row in each, and its time counts once.
	on(c, adamw, 1, 1001, 1002)
	on(c, forward, 1, 1000, 1010)
	s = c.Summary()
	require.Equal(t, 310*time.Millisecond, s.Total())
	var paths [][]string
	for _, o := range s.Operations {
		if o.Name == "adamw" {
			paths = append(paths, o.Path)
			require.Less(t, o.ShareOfParent, 1.)
		}
	}
	require.ElementsMatch(t, [][]string{{"optimizer", "adamw"}, {"forward", "adamw"}}, paths)
	all, _ := s.ByName("adamw")
	require.Equal(t, 91*time.Millisecond, all.Duration.Total)
	c.Reset()
	on(c, adamw, 1, 0, 1)
	require.Equal(t, time.Millisecond, c.Summary().Total())
}

// An operation that runs within another and on its own, or within itself, has a row for each:
// shares add up to 1.
func TestRunsNestOneByOne(t *testing.T) {
	c := report.NewCollector()
	helper := c.Node(0, report.Info{Name: "helper", Category: "data"})
	forward := c.Node(0, report.Info{Name: "forward", Category: "compute"})
	again := c.Node(0, report.Info{Name: "again"})
	for i := range int64(5) {
		at := 100 * i
		on(c, helper, 1, at+1, at+2)
		on(c, forward, 1, at, at+2)
		on(c, helper, 1, at+2, at+4) // 2 ms
		on(c, again, 1, at+11, at+12)
		on(c, again, 1, at+10, at+13)
	}
	s := c.Summary()
	require.Equal(t, 35*time.Millisecond, s.Total())
	type row struct {
		count       int64
		total, mean time.Duration
		all, parent float64
	}
	got, outermost := map[string]row{}, 0.
	for _, o := range s.Operations {
		d := o.All.Duration
		got[strings.Join(o.Path, " ")] = row{o.All.Count, d.Total, d.Mean, o.ShareOfTotal, o.ShareOfParent}
		if o.Depth == 0 {
			outermost += o.ShareOfTotal
		}
	}
	const ms = time.Millisecond
	require.Equal(t, map[string]row{
		"forward":        {5, 10 * ms, 2 * ms, 10. / 35, 10. / 35},
		"forward helper": {5, 5 * ms, ms, 5. / 35, 5. / 10},
		"helper":         {5, 10 * ms, 2 * ms, 10. / 35, 10. / 35},
		"again":          {5, 15 * ms, 3 * ms, 15. / 35, 15. / 35},
		"again again":    {5, 5 * ms, ms, 5. / 35, 5. / 20},
	}, got)
	require.InDelta(t, 1, outermost, 1e-12)
	all, _ := s.ByName("helper")
	require.EqualValues(t, 10, all.Count)
	require.Equal(t, 500*time.Microsecond, all.Duration.StdDev)
	sum := 0.
	for _, x := range s.Categories() {
		sum += x.ShareOfTotal
	}
	require.InDelta(t, 20./35, sum, 1e-12, "each moment counts for the innermost category")
}

// A child on another stream that outlives its parent is part of the total, and not a share of its
// parent.
func TestChildOnAnotherStream(t *testing.T) {
	c := report.NewCollector()
	parent := c.Node(0, report.Info{Name: "parent"})
	on(c, c.Node(parent, report.Info{Name: "child"}), 2, 0, 6)
	on(c, parent, 1, 0, 1)
	s := c.Summary()
	require.Equal(t, 7*time.Millisecond, s.Total())
	require.InDelta(t, 6./7, find(t, s, "child").ShareOfTotal, 1e-12)
	require.Zero(t, find(t, s, "child").ShareOfParent)
}

// The total is the union of each stream's intervals for any nesting; the test computes it
// independently.
func TestTotalIsTheTimeOfEachStreamOnce(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		c := report.NewCollector()
		var nodes []statistics.Node
		for _, name := range []string{"a", "b", "c", "d"} {
			nodes = append(nodes, c.Node(0, report.Info{Name: name}))
		}
		var want int64
		for stream := 1; stream <= 3; stream++ {
			at := int64(0)
			var nest func(from, to int64, depth int)
			nest = func(from, to int64, depth int) {
				if depth < 4 && to-from > 3 {
					cut := from + 1 + rng.Int64N(to-from-2)
					nest(from, cut, depth+1)
					nest(cut, to, depth+1)
				}
				on(c, nodes[rng.IntN(len(nodes))], stream, from, to)
			}
			for range 5 {
				at += rng.Int64N(3)
				length := 1 + rng.Int64N(20)
				nest(at, at+length, 0)
				want += length
				at += length
			}
		}
		s := c.Summary()
		require.Equal(t, time.Duration(want)*time.Millisecond, s.Total())
	}
}

func TestHostWorkIsNotGPUTime(t *testing.T) {
	c := report.NewCollector()
	compile, run := c.Node(0, report.Info{Name: "compile", Type: "host"}), c.Node(0, report.Info{Name: "run"})
	c.Section(compile, statistics.Sample{
		Timed: true, OnHost: true, Stream: 1, Start: epoch.UnixNano(),
		Duration: 3 * time.Second, Items: 6,
	})
	c.Section(run, statistics.Sample{Timed: true, Stream: 1, Start: epoch.UnixNano(), Duration: time.Second})
	s := c.Summary()
	require.Equal(t, time.Second, s.Total())
	require.Equal(t, time.Second, s.Covered)
	require.Zero(t, s.OnHost)
	require.InDelta(t, 1, find(t, s, "run").ShareOfTotal, 1e-12)
	o := find(t, s, "compile")
	require.Zero(t, o.ShareOfTotal)
	require.Equal(t, 3*time.Second, o.All.Duration.Total)
	require.InDelta(t, 2, o.All.Rates().Items, 1e-12)
}

// The time from launch to return is not the time of the work: 64 MB launched in 100 µs were not
// copied at 640 GB/s.
func TestLaunchesThatTheHostTimedHaveNoRates(t *testing.T) {
	c := report.NewCollector(report.WithDevices(report.Device{Peaks: report.Peaks{Memory: 1e12, PCIe: 32e9}}))
	sample := statistics.Sample{
		Timed: true, OnHost: true, Duration: 100 * time.Microsecond, PCIe: statistics.Transfer{ToDevice: 64e6},
		Memory: statistics.IO{Read: 64e6},
	}
	n := c.Node(0, report.Info{Name: "copy"})
	c.Section(n, sample)
	o := c.Summary().Operations[0]
	require.Equal(t, report.Rates{}, o.All.Rates())
	require.Zero(t, o.PeakShare)
	require.Equal(t, 100*time.Microsecond, o.All.Duration.Total)

	sample.OnHost = false
	sample.Duration = 4 * time.Millisecond
	c.Section(n, sample)
	require.InDelta(t, 16e9, c.Summary().Operations[0].All.Rates().PCIe, 1, "of the run that a device timed")

	b := c.Node(0, report.Info{Name: "blocking copy", Synchronous: true})
	sample.OnHost = true
	c.Section(b, sample)
	require.InDelta(t, 16e9, find(t, c.Summary(), "blocking copy").All.Rates().PCIe, 1)
}

func TestDeclaredCacheHitsReduceMemoryTraffic(t *testing.T) {
	c := report.NewCollector(report.WithDevices(report.Device{Peaks: report.Peaks{Memory: 1e12}}))
	n := c.Node(0, report.Info{Name: "gemm"})
	c.Section(n, statistics.Sample{
		Timed: true, Duration: time.Second, Memory: statistics.IO{Read: 8e11}, AccessPattern: "strided",
		L2HitRatio: .75, HasL2HitRatio: true,
	})
	o := c.Summary().Operations[0]
	require.InDelta(t, .2, o.PeakShare, 1e-12)
	require.Equal(t, "strided", o.AccessPattern)
	require.InDelta(t, .75, o.L2HitRatio, 1e-12)
}
