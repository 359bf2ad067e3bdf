// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package report_test

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/otelgpu/otelgpu/gpuspan/internal/statistics"
	"github.com/otelgpu/otelgpu/gpuspan/report"
	"github.com/otelgpu/otelgpu/internal/spanfiles/property"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func timed(d time.Duration) statistics.Sample {
	return statistics.Sample{Timed: true, Start: epoch.UnixNano(), Duration: d}
}

func find(t testing.TB, s report.Summary, name string) report.Operation {
	i := slices.IndexFunc(s.Operations, func(o report.Operation) bool { return o.Name == name })
	require.GreaterOrEqual(t, i, 0, "no operation %q", name)
	return s.Operations[i]
}

// Compares with exact sums, for durations whose squares would lose the variance to rounding.
func TestStatisticsOfDurations(t *testing.T) {
	property.Check(t, func(t *property.T) {
		base := property.SampledFrom([]int64{0, 1e9, 3600e9}).Draw(t, "base")
		ds := property.SliceOfN(property.Int64Range(base, base+1e6), 1, 400).Draw(t, "durations")
		c := report.NewCollector()
		n := c.Node(0, report.Info{Name: "x"})
		var total int64
		for _, d := range ds {
			c.Section(n, timed(time.Duration(d)))
			total += d
		}
		got := c.Summary().Operations[0].All.Duration
		mean, deviation := exactMoments(ds)
		require.EqualValues(t, len(ds), got.Count)
		require.EqualValues(t, total, got.Total)
		require.EqualValues(t, slices.Min(ds), got.Min)
		require.EqualValues(t, slices.Max(ds), got.Max)
		require.InDelta(t, mean, float64(got.Mean), 1)
		require.InDelta(t, deviation, float64(got.StdDev), 1)
		slices.Sort(ds)
		require.EqualValues(t, ds[(len(ds)+1)/2-1], got.P50, "exact for 512 durations")
		require.EqualValues(t, ds[(99*len(ds)+99)/100-1], got.P99)
	})
}

// exactMoments returns the mean and the population standard deviation: n Σx² - (Σx)² is exact in
// big integers.
func exactMoments(x []int64) (mean, deviation float64) {
	n, sum, squares := big.NewInt(int64(len(x))), new(big.Int), new(big.Int)
	for _, v := range x {
		b := big.NewInt(v)
		sum.Add(sum, b)
		squares.Add(squares, b.Mul(b, b))
	}
	mean, _ = new(big.Rat).SetFrac(sum, n).Float64()
	spread := squares.Mul(squares, n)
	variance, _ := new(big.Rat).SetFrac(spread.Sub(spread, sum.Mul(sum, sum)), n.Mul(n, n)).Float64()
	return mean, math.Sqrt(variance)
}

func TestQuantilesOfLongRuns(t *testing.T) {
	const n = 200_000
	for name, c := range map[string]struct {
		opts  []report.Option
		ranks float64 // tolerance as a fraction of the rank
		value float64 // tolerance as a fraction of the value
	}{
		"sample": {nil, .02, 0},
		"sketch": {[]report.Option{report.WithSketch(newAllValues)}, 1e-5, 0},
	} {
		collector := report.NewCollector(c.opts...)
		node := collector.Node(0, report.Info{Name: "x"})
		r := rand.New(rand.NewPCG(7, 7))
		x := make([]float64, n)
		for i := range x {
			d := time.Duration(math.Exp(r.NormFloat64()*2+12)) + 1
			x[i] = float64(d)
			collector.Section(node, timed(d))
		}
		slices.Sort(x)
		got := collector.Summary().Operations[0].All.Duration
		for q, v := range map[float64]time.Duration{.5: got.P50, .99: got.P99} {
			low := x[int(max(q-c.ranks, 0)*n)] * (1 - c.value)
			high := x[min(int((q+c.ranks)*n), n-1)] * (1 + c.value)
			require.GreaterOrEqual(t, float64(v), low, "%s %v", name, q)
			require.LessOrEqual(t, float64(v), high, "%s %v", name, q)
		}
	}
}

func TestRatesDivideTheWorkOfTimedRunsOnly(t *testing.T) {
	c := report.NewCollector()
	n := c.Node(0, report.Info{Name: "gemm"})
	work := statistics.Sample{
		Memory: statistics.IO{Read: 3e9, Written: 1e9}, PCIe: statistics.Transfer{Unsplit: 5e8}, FLOPs: 2e12, Precision: "bf16", Items: 10,
	}
	s := work
	s.Timed, s.Start, s.Duration = true, 1, 2*time.Second
	c.Section(n, s)
	c.Section(n, s)
	c.Untimed(n, 98, statistics.Sample{Memory: statistics.IO{Read: 98 * 3e9}, FLOPs: 98 * 2e12, Precision: "bf16", Items: 980})
	c.Untimed(n, -1, work)
	f := c.Summary().Operations[0].All
	require.EqualValues(t, 100, f.Count)
	require.EqualValues(t, 2, f.Duration.Count)
	require.EqualValues(t, 300e9, f.Memory.Read)
	require.Equal(t, map[string]float64{"bf16": 200e12}, f.FLOPs)
	require.Equal(t, report.Rates{
		MemoryRead: 1.5e9, MemoryWritten: .5e9, Memory: 2e9, PCIe: 2.5e8, FLOPs: 1e12, Items: 5,
	}, f.Rates())
	require.Zero(t, report.Figures{}.Rates())
	c.Untimed(n, 0, statistics.Sample{FLOPs: 5, Precision: "fp8"}) // another precision of counted runs
	f = c.Summary().Operations[0].All
	require.EqualValues(t, 100, f.Count)
	require.EqualValues(t, 5, f.FLOPs["fp8"])
}

func TestFirstRunIsTheFirstOfTheProcess(t *testing.T) {
	c := report.NewCollector()
	a := c.Node(0, report.Info{Name: "a"})
	b := c.Node(a, report.Info{Name: "x"})
	d := c.Node(0, report.Info{Name: "x"}) // the same operation elsewhere
	c.Section(a, timed(100))
	c.Section(b, timed(100))
	c.Section(d, timed(10))
	s := c.Summary()
	for _, o := range s.Operations {
		if o.Name == "x" {
			require.EqualValues(t, map[int]int64{0: 0, 1: 1}[o.Depth], o.First.Count, "depth %d", o.Depth)
		}
	}
	f, ok := s.ByName("x")
	require.True(t, ok)
	require.EqualValues(t, 110, f.Duration.Total)
	_, ok = s.ByName("y")
	require.False(t, ok)
	// The producer's own count takes precedence.
	n := c.Node(0, report.Info{Name: "counted"})
	for i := range int64(3) {
		x := timed(1)
		x.Occurrence = i + 5
		c.Section(n, x)
	}
	require.Zero(t, find(t, c.Summary(), "counted").First.Count)
	c.Reset()
	c.Section(d, timed(10))
	require.Zero(t, find(t, c.Summary(), "x").First.Count, "after a reset the first run of the process is past")
}

// SetDropped is called with totals of the process.
func TestDroppedSectionsAreCountedSinceTheReset(t *testing.T) {
	c := report.NewCollector()
	c.SetDropped("pool_full", 3)
	c.SetDropped("timeout", 1)
	c.Reset()
	require.Empty(t, c.Summary().Dropped)
	c.SetDropped("pool_full", 3)
	c.SetDropped("shutdown", 2)
	require.Equal(t, map[string]int64{"shutdown": 2}, c.Summary().Dropped)
	c.Reset()
	c.SetDropped("pool_full", 4)
	require.Equal(t, map[string]int64{"pool_full": 1}, c.Summary().Dropped)
}

func TestSharesAndCoverage(t *testing.T) {
	now := epoch
	c := report.NewCollector(report.WithClock(func() time.Time { return now }),
		report.WithDevices(report.Device{Ordinal: 1, Peaks: report.Peaks{
			Memory: 1e12,
			FLOPs:  map[string]float64{"fp32": 1e12},
		}}))
	run := func(n statistics.Node, from, ms int64, s statistics.Sample) {
		s.Timed, s.Start, s.Duration = true, epoch.UnixNano()+from*1e6, time.Duration(ms*1e6)
		c.Section(n, s)
	}
	outer := c.Node(0, report.Info{Name: "outer"})
	inner := c.Node(outer, report.Info{Name: "inner"})
	other := c.Node(0, report.Info{Name: "other"})
	run(outer, 0, 40, statistics.Sample{Device: 1, Memory: statistics.IO{Read: 2e10}, FLOPs: 1e10, Precision: "fp32"})
	run(inner, 10, 10, statistics.Sample{})
	run(other, 30, 20, statistics.Sample{}) // concurrent with outer for 10 ms
	now = epoch.Add(100 * time.Millisecond)
	s := c.Summary()
	require.Equal(t, 50*time.Millisecond, s.Covered)
	coverage, ok := s.WallCoverage()
	require.True(t, ok)
	require.InDelta(t, .5, coverage, 1e-12)
	require.Equal(t, 60*time.Millisecond, s.Total())
	o, i := find(t, s, "outer"), find(t, s, "inner")
	require.InDelta(t, 40./60, o.ShareOfTotal, 1e-12)
	require.InDelta(t, .25, i.ShareOfParent, 1e-12)
	require.Equal(t, []string{"outer", "inner"}, i.Path)
	require.InDelta(t, .5, o.PeakShare, 1e-12)
	require.Equal(t, "memory", o.PeakOf)
	require.Zero(t, i.PeakShare, "nothing is declared")
	_, ok = report.Summary{}.WallCoverage()
	require.False(t, ok)
}

func TestStatedPeaksComeFirst(t *testing.T) {
	c := report.NewCollector(report.WithDevices(report.Device{
		Ordinal: 1,
		Peaks:   report.Peaks{Memory: 1e12, Source: "config"},
	}))
	c.SetDevice(report.Device{Ordinal: 0, Model: "a", Peaks: report.Peaks{Memory: 3e12, Source: "table"}})
	c.SetDevice(report.Device{Ordinal: 1, Model: "b", Peaks: report.Peaks{Memory: 3e12, Source: "table"}})
	require.Equal(t, []report.Device{
		{Ordinal: 1, Model: "b", Peaks: report.Peaks{Memory: 1e12, Source: "config"}},
		{Ordinal: 0, Model: "a", Peaks: report.Peaks{Memory: 3e12, Source: "table"}},
	}, c.Summary().Devices)
}

func TestModelFLOPsAreComparedWithTheDeviceOfTheSteps(t *testing.T) {
	peak := func(v float64) report.Peaks { return report.Peaks{FLOPs: map[string]float64{"bf16": v}} }
	c := report.NewCollector(report.WithDevices(report.Device{Ordinal: 0, Peaks: peak(1e12)},
		report.Device{Ordinal: 3, Peaks: peak(4e12)}))
	c.Step("train", statistics.StepSample{Duration: time.Second, ModelFLOPs: 1e12, Precision: "bf16", Device: 3})
	require.InDelta(t, .25, c.Summary().Loops[0].MFU, 1e-12)
}

func TestSortedKeepsChildrenWithTheirParents(t *testing.T) {
	property.Check(t, func(t *property.T) {
		c := report.NewCollector()
		nodes := []statistics.Node{0}
		for i := range property.IntRange(1, 30).Draw(t, "n") {
			parent := property.SampledFrom(nodes).Draw(t, "parent")
			n := c.Node(parent, report.Info{Name: fmt.Sprint("op", i%7, i)})
			nodes = append(nodes, n)
			c.Section(n, statistics.Sample{
				Timed: true, Start: 1, Duration: time.Duration(property.Int64Range(1, 9).Draw(t, "d")),
				FLOPs: float64(property.IntRange(0, 9).Draw(t, "f")), PCIe: statistics.Transfer{ToDevice: property.Int64Range(0, 9).Draw(t, "b")},
			})
		}
		key := map[report.Order]func(o report.Operation) float64{
			report.ByTime:  func(o report.Operation) float64 { return -float64(o.All.Duration.Total) },
			report.ByFLOPs: func(o report.Operation) float64 { return -o.All.TotalFLOPs() },
			report.ByBytes: func(o report.Operation) float64 { return -float64(o.All.PCIe.Total()) },
		}
		for _, by := range []report.Order{report.ByTime, report.ByFLOPs, report.ByBytes, report.ByName} {
			s := c.Summary().Sorted(by)
			last := map[int]report.Operation{}
			for i, o := range s.Operations {
				require.Less(t, o.Parent, i)
				if o.Parent >= 0 {
					require.Equal(t, o.Path[:len(o.Path)-1], s.Operations[o.Parent].Path)
					require.Equal(t, s.Operations[o.Parent].Depth+1, o.Depth)
				}
				if before, ok := last[o.Parent]; ok {
					if f := key[by]; f != nil {
						require.LessOrEqual(t, f(before), f(o))
					} else {
						require.Less(t, before.Name, o.Name)
					}
				}
				last[o.Parent] = o
			}
			require.Len(t, s.Operations, len(nodes)-1)
		}
	})
	for i, name := range []string{"time", "flops", "bytes", "name"} {
		o, err := report.ParseOrder(name)
		require.NoError(t, err)
		require.Equal(t, report.Order(i), o)
	}
	_, err := report.ParseOrder("size")
	require.EqualError(t, err, "unknown order \"size\" (use time, flops, bytes or name)")
}

func TestMergedStatisticsEqualAllRuns(t *testing.T) {
	property.Check(t, func(t *property.T) {
		c, together := report.NewCollector(), report.NewCollector()
		all := together.Node(0, report.Info{Name: "x"})
		for i := range property.IntRange(1, 4).Draw(t, "locations") {
			n := c.Node(c.Node(0, report.Info{Name: fmt.Sprint("parent", i)}), report.Info{Name: "x"})
			for _, d := range property.SliceOfN(property.Int64Range(0, 1e9), 1, 20).Draw(t, "durations") {
				s := timed(time.Duration(d))
				s.FLOPs, s.Precision = 1, fmt.Sprint("p", i%2)
				c.Section(n, s)
				together.Section(all, s)
			}
		}
		got, _ := c.Summary().ByName("x")
		want, _ := together.Summary().ByName("x")
		require.InDelta(t, float64(want.Duration.StdDev), float64(got.Duration.StdDev), 2)
		require.InDelta(t, float64(want.Duration.Mean), float64(got.Duration.Mean), 1)
		require.Equal(t, want.Duration.Total, got.Duration.Total)
		require.Equal(t, want.FLOPs, got.FLOPs)
		require.Equal(t, want.Rates(), got.Rates())
	})
}

func TestCategoriesDoNotCountTimeTwice(t *testing.T) {
	c := report.NewCollector()
	a := c.Node(0, report.Info{Name: "layer", Category: "attention"})
	b := c.Node(a, report.Info{Name: "scores", Category: "attention"})
	d := c.Node(a, report.Info{Name: "projection", Category: "gemm"})
	c.Section(a, timed(100))
	c.Section(b, timed(40))
	c.Section(d, timed(30))
	got := map[string]time.Duration{}
	for _, x := range c.Summary().Categories() {
		got[x.Name] = x.Figures.Duration.Total
	}
	require.Equal(t, map[string]time.Duration{"attention": 100, "gemm": 30}, got)
}

func TestMemoryIsBounded(t *testing.T) {
	c := report.NewCollector()
	for i := range 20_000 {
		n := c.Node(0, report.Info{Name: fmt.Sprint("generated name ", i)})
		s := timed(1)
		s.Kernel = fmt.Sprint("kernel ", i)
		c.Section(n, s)
		c.Step(fmt.Sprint("loop ", i), statistics.StepSample{Duration: 1})
		c.Step("loop 0", statistics.StepSample{Duration: 1, Phases: []statistics.PhaseSample{{Name: fmt.Sprint("phase ", i)}}})
		c.Section(c.Node(0, report.Info{Name: "one"}), s)
	}
	s := c.Summary()
	require.LessOrEqual(t, len(s.Operations), 4098)
	require.Len(t, s.Loops, 64)
	other := find(t, s, "(other)")
	one := find(t, s, "one")
	require.Len(t, one.Kernels, 32)
	require.Len(t, s.Loops[0].Phases, 64)
	total := time.Duration(0)
	for _, o := range s.Operations {
		total += o.All.Duration.Total
	}
	require.EqualValues(t, 40_000, total, "no time is lost")
	require.Positive(t, other.All.Count)
	require.GreaterOrEqual(t, s.Overflow, other.All.Count)
	// Nodes that do not exist, and the root, are ignored.
	c.Section(0, timed(1))
	c.Section(-5, timed(1))
	c.Section(1<<30, timed(1))
}

func TestUseFromManyGoroutines(t *testing.T) {
	c := report.NewCollector(report.WithSketch(newAllValues))
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 500 {
				n := c.Node(0, report.Info{Name: fmt.Sprint(i % 10)})
				c.Section(n, timed(time.Duration(i)))
				c.Step("train", statistics.StepSample{Duration: 1})
				c.SetDropped("pool", int64(i))
				c.SetDevice(report.Device{Ordinal: g})
				if i%100 == 0 {
					_ = c.Summary().Operations
				}
			}
		})
	}
	wg.Wait()
	s := c.Summary()
	require.EqualValues(t, 2000, s.Loops[0].Steps)
	require.Len(t, s.Devices, 4)
	c.Reset()
	require.Empty(t, c.Summary().Operations)
	require.Empty(t, c.Summary().Loops)
}

func TestSummarySharesNothingWithTheCollector(t *testing.T) {
	c := served()
	s := c.Summary()
	before := find(t, s, "prefill").All.FLOPs["bf16"]
	s.Operations[0].All.FLOPs["bf16"] = 1
	s.Operations[0].Kernels[0].Name = "changed"
	s.Operations[0].Path[0] = "changed"
	again := find(t, c.Summary(), "prefill")
	require.Equal(t, before, again.All.FLOPs["bf16"])
	require.Equal(t, "gemm_bf16", again.Kernels[0].Name)
	require.Equal(t, []string{"prefill"}, again.Path)
}

func BenchmarkSection(b *testing.B) {
	for name, opts := range map[string][]report.Option{"sample": nil, "sketch": {report.WithSketch(newAllValues)}} {
		b.Run(name, func(b *testing.B) {
			c := report.NewCollector(opts...)
			n := c.Node(0, report.Info{Name: "x"})
			s := statistics.Sample{
				Timed: true, Duration: time.Millisecond, FLOPs: 1, Precision: "bf16", Memory: statistics.IO{Read: 1},
				Occurrence: 2,
			}
			b.ReportAllocs()
			for b.Loop() {
				s.Start += int64(2 * time.Millisecond)
				s.Duration ^= 0x3ff
				c.Section(n, s)
			}
		})
	}
}
