// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package clockmap

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/spanfiles/property"
)

// At returns the host time of a GPU time in ns, and the half width of an interval around it that
// contains the true time; ok is false without an anchor. Times older than the window are
// extrapolated, with a wider bound.
func (m *Map) At(gpuNs float64) (hostNs, halfWidth int64, ok bool) {
	at, lo, hi, ok := m.interval(gpuNs)
	if !ok {
		return 0, 0, false
	}
	host := math.Round(at)
	return m.origin + int64(host), int64(min(math.Ceil(max(hi-host, host-lo)), math.MaxInt64/2)), true
}

func TestEmptyMapKnowsNothing(t *testing.T) {
	m := New(Defaults())
	_, _, ok := m.At(1)
	require.False(t, ok)
	_, ok = m.Drift()
	require.False(t, ok)
	require.Zero(t, m.Anomalies())
}

func TestOneAnchorGivesItsMiddleAndWidensWithTheLargestDrift(t *testing.T) {
	opts := Defaults()
	opts.Tick, opts.MaxDrift, opts.MaxRateChange = 0, 100, 1
	m := New(opts)
	m.Add(Anchor{GPU: 1e9, Before: 5_000_000_000, After: 5_000_006_000})
	at, half, ok := m.At(1e9)
	require.True(t, ok)
	require.EqualValues(t, 5_000_003_000, at)
	require.EqualValues(t, 3000, half)

	at, half, _ = m.At(2e9) // 1 s later: ±100 ppm and the roundings of float32 (0.12 ppm)
	require.EqualValues(t, 6_000_003_000, at)
	require.InDelta(t, 3000+100_000+119, half, 2)
	_, half, _ = m.At(0)
	require.InDelta(t, 3000+100_000+119, half, 2)
}

func TestTwoAnchorsIntersect(t *testing.T) {
	opts := Defaults()
	opts.Tick, opts.MaxRateChange, opts.MaxSlew = 0, 1e-9, 1e-9
	m := New(opts)
	m.Add(Anchor{GPU: 0, Before: 0, After: 10_000})
	m.Add(Anchor{GPU: 1, Before: -4_999, After: 5_001})
	at, half, ok := m.At(1)
	require.True(t, ok)
	require.InDelta(t, 2501, at, 1)
	require.InDelta(t, 2500, half, 2)
}

func TestBackwardAndBrokenAnchorsAreCountedAndRefused(t *testing.T) {
	m := New(Defaults())
	m.Add(Anchor{GPU: 1e9, Before: 1e9, After: 1e9 + 5000})
	m.Add(Anchor{GPU: 0.5e9, Before: 2e9, After: 2e9 + 5000})
	m.Add(Anchor{GPU: 2e9, Before: 2e9, After: 1e9})
	m.Add(Anchor{GPU: 2e9, Before: 0, After: 5000})
	m.Add(Anchor{GPU: math.NaN(), Before: 2e9, After: 3e9})
	m.Add(Anchor{GPU: math.Inf(1), Before: 2e9, After: 3e9})
	require.EqualValues(t, 5, m.Anomalies())
	require.Equal(t, 1, len(m.anchors))
	_, _, ok := m.At(math.NaN())
	require.False(t, ok)
}

func TestWindowIsLimitedByTimeAndByNumber(t *testing.T) {
	opts := Defaults()
	opts.Window, opts.MaxAnchors = 10*time.Second, 5
	m := New(opts)
	for i := range 100 {
		m.Add(Anchor{GPU: float64(i) * 1e9, Before: int64(i) * 1e9, After: int64(i)*1e9 + 5000})
		require.LessOrEqual(t, len(m.anchors), 5)
	}
	require.Equal(t, 5, len(m.anchors))
	m.Add(Anchor{GPU: 108e9, Before: 108e9, After: 108e9 + 5000})
	require.Equal(t, 3, len(m.anchors))
}

// With any anchors, the map neither panics nor hangs nor returns invalid times, and its result for
// the newest anchor's time overlaps that anchor's interval, widened by the tick.
func TestAnyAnchors(t *testing.T) {
	property.Check(t, func(t *property.T) {
		opts := Defaults()
		opts.MaxAnchors = property.IntRange(2, 20).Draw(t, "max")
		m := New(opts)
		gpu, host := 0.0, int64(0)
		for range property.IntRange(1, 60).Draw(t, "n") {
			gpu += property.Float64Range(-1e9, 1e11).Draw(t, "gpu")
			host += property.Int64Range(-1e6, 1e11).Draw(t, "host")
			a := Anchor{GPU: gpu, Before: host, After: host + property.Int64Range(-100, 1e8).Draw(t, "width")}
			refused := len(m.anchors) == 0
			m.Add(a)
			if refused && len(m.anchors) == 0 {
				continue
			}
			at, half, ok := m.At(property.Float64Range(-1e12, 1e13).Draw(t, "query"))
			if !ok || half < 0 {
				t.Fatalf("At = %d ± %d, %v", at, half, ok)
			}
			if newest := m.anchors[len(m.anchors)-1]; newest.gpu == a.GPU && newest.before == float64(a.Before-m.origin) &&
				newest.after == float64(a.After-m.origin) {
				at, half, _ := m.At(a.GPU)
				if at+half < a.Before-500 || at-half > a.After+500 {
					t.Fatalf("At(newest) = %d ± %d, but the anchor says %d to %d", at, half, a.Before, a.After)
				}
			}
		}
	})
}

func BenchmarkAdd(b *testing.B) {
	p := newPhysics(1, time.Hour, 25, 1)
	m := New(Defaults())
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		w := int64(p.latency(5300, 700))
		at := int64(i) * 1e9
		m.Add(Anchor{GPU: float64(i) * 1e9 * (1 - 25e-6), Before: at - w/2, After: at + w/2})
	}
}

func BenchmarkAt(b *testing.B) {
	p := newPhysics(1, time.Hour, 25, 1)
	m := New(Defaults())
	for i := range 64 {
		w := int64(p.latency(5300, 700))
		at := int64(i) * 1e9
		m.Add(Anchor{GPU: float64(i) * 1e9 * (1 - 25e-6), Before: at - w/2, After: at + w/2})
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		if _, _, ok := m.At(63e9 + float64(i%1000)*1e5); !ok {
			b.Fatal("no answer")
		}
	}
}

// Most sections use one bound for the whole interval between the newest two anchors. It is at most
// some nanoseconds wider than the bound that all anchors give for each point; the simulations
// verify that it holds.
func TestLimitsBetweenTheNewestAnchorsUseAllAnchors(t *testing.T) {
	for seed := range seeds(20) {
		p := newPhysics(seed, 2*time.Minute, 80, 200)
		p.delayed = 0.1 * float64(seed%10)
		a := newAnchorer(t, p)
		compared := 0
		for range 50 {
			drive(t, p, a, time.Second, true)
			newest := a.m.back(0).gpu
			for i := range 100 {
				from := newest - float64(i)*0.6e6
				to := min(from+float64(i%7)*3e6, newest)
				var s section
				if !a.m.within(&s, from, to) {
					continue
				}
				compared++
				for _, end := range []struct {
					gpu float64
					limits
				}{{from, s.start}, {to, s.end}} {
					lo, hi := a.m.limits(end.gpu)
					require.Greater(t, end.lo, lo-25)
					require.Less(t, end.hi, hi+25)
				}
				slow, fast := a.m.stretch(from, to)
				require.LessOrEqual(t, s.slow, slow+1e-12)
				require.GreaterOrEqual(t, s.fast, fast-1e-12)
			}
		}
		require.Greater(t, compared, 3000)
	}
}
