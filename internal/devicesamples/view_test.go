// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package devicesamples

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"

	"github.com/otelgpu/otelgpu/internal/instrument"
)

const second = int64(time.Second)

// t0 is the start time of the tests; the clock of their stores is one day ahead.
var (
	t0    = time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC).UnixNano()
	owner = component.MustNewIDWithName("gpu", "test")
)

type rig struct {
	t     *testing.T
	store *Store
	now   time.Time
	w     DeviceWriter
}

func newRig(t *testing.T, cfg Config, d Device) *rig {
	r := &rig{t: t, now: time.Unix(0, t0).Add(24 * time.Hour)}
	r.store = NewStore(cfg, func() time.Time { return r.now })
	r.w = r.register(d)
	return r
}

func (r *rig) register(d Device) DeviceWriter {
	w, err := r.store.Register(owner, d)
	require.NoError(r.t, err)
	return w
}

func (r *rig) put(f Field, at time.Duration, v float64) {
	s := Sample{Time: t0 + int64(at)}
	s.Set(f, v)
	r.w.Write([]Sample{s})
}

func (r *rig) view(fn func(DeviceView)) {
	v := r.store.Acquire()
	defer v.Release()
	d, ok := v.Lookup("GPU-A")
	require.True(r.t, ok)
	fn(d)
}

func TestMeanOfAnInstantIsTheTrapezoid(t *testing.T) {
	r := newRig(t, NewDefaultConfig(), Device{ID: "GPU-a"})
	for i, v := range []float64{100, 300, 200} {
		r.put(Power, time.Duration(i)*time.Second, v)
	}
	r.view(func(d DeviceView) {
		mean, coverage := d.Mean(Power, t0, t0+2*second)
		assert.InDelta(t, (200+250)/2.0, mean, 1e-9)
		assert.Equal(t, 1.0, coverage)
		// Between samples: at 0.5 s it is 200 W, at 1.5 s 250 W; 0.5 s of mean 250 and 0.5 s of
		// mean 275.
		mean, _ = d.Mean(Power, t0+second/2, t0+3*second/2)
		assert.InDelta(t, 262.5, mean, 1e-9)
		// The half before the first sample is not covered.
		mean, coverage = d.Mean(Power, t0-second, t0+second)
		assert.InDelta(t, 200, mean, 1e-9)
		assert.InDelta(t, 0.5, coverage, 1e-12)
	})
}

func TestARatioHoldsSinceThePreviousSample(t *testing.T) {
	r := newRig(t, NewDefaultConfig(), Device{ID: "GPU-a"})
	for i, v := range []float64{1, 0.25, 0.75} {
		r.put(Utilization, time.Duration(i)*time.Second, v)
	}
	r.view(func(d DeviceView) {
		mean, _ := d.Mean(Utilization, t0+second/2, t0+3*second/2)
		assert.InDelta(t, 0.5, mean, 1e-12)
		mean, _ = d.Mean(Utilization, t0+second/10, t0+second/5)
		assert.InDelta(t, 0.25, mean, 1e-12, "an interval inside one sample")
	})
}

func TestACounterIsReadOnTheLineAndItsResetCountsNothing(t *testing.T) {
	r := newRig(t, NewDefaultConfig(), Device{ID: "GPU-a"})
	for i, v := range []float64{1000, 1100, 1300, 5, 25} {
		r.put(Energy, time.Duration(i)*time.Second, v)
	}
	r.view(func(d DeviceView) {
		joules, coverage := d.Integral(Energy, t0+second/2, t0+2*second)
		assert.InDelta(t, 250, joules, 1e-9)
		assert.Equal(t, 1.0, coverage)
		joules, coverage = d.Integral(Energy, t0, t0+4*second)
		assert.InDelta(t, 320, joules, 1e-9, "100 + 200 before the reset, 20 after it")
		assert.InDelta(t, 0.75, coverage, 1e-12, "the second with the reset is unknown")
		watts, _ := d.Mean(Energy, t0, t0+2*second)
		assert.InDelta(t, 150, watts, 1e-9)
		before, ok := d.Value(Energy, t0+2*second)
		require.True(t, ok)
		after, _ := d.Value(Energy, t0+3*second)
		assert.Equal(t, before, after)
		_, ok = d.Value(Energy, t0+5*second)
		assert.False(t, ok, "nothing is known after the last sample")
	})
}

// A counter that falls and returns above its earlier value was not reset: the return is no energy.
func TestAWrongReadingOfACounterIsNoEnergy(t *testing.T) {
	for _, wrong := range [][]float64{{0}, {0, 0, 0}, {50, 20}} {
		r := newRig(t, NewDefaultConfig(), Device{ID: "GPU-a"})
		at := time.Duration(0)
		put := func(v float64) {
			r.put(Energy, at, v)
			at += time.Second
		}
		put(1000)
		put(1300)
		for _, v := range wrong {
			put(v)
		}
		put(1600)
		put(1900)
		r.view(func(d DeviceView) {
			joules, coverage := d.Integral(Energy, t0, t0+int64(at-time.Second))
			assert.InDelta(t, 600, joules, 1e-9, "%v", wrong)
			assert.InDelta(t, 2/(at.Seconds()-1), coverage, 1e-9, "%v", wrong)
		})
	}
}

func TestTimeBetweenSamplesFarApartIsNotCovered(t *testing.T) {
	r := newRig(t, NewDefaultConfig(), Device{ID: "GPU-a", Interval: time.Second})
	for _, at := range []time.Duration{0, 1, 2, 5, 9, 10} {
		r.put(Power, at*time.Second, 100)
	}
	r.view(func(d DeviceView) {
		coverage, samples := d.Coverage(t0, t0+10*second)
		assert.InDelta(t, 0.6, coverage, 1e-12, "3 s are 3 intervals, 4 s are not")
		assert.Equal(t, 6, samples)
		_, coverage = d.Mean(Power, t0+6*second, t0+8*second)
		assert.Zero(t, coverage)
		_, ok := d.Max(Power, t0+6*second, t0+8*second)
		assert.False(t, ok)
	})
}

func TestIntervalLongerThanRequestedIsMeasured(t *testing.T) {
	r := newRig(t, NewDefaultConfig(), Device{ID: "GPU-a", Interval: 100 * time.Millisecond})
	for i := range 20 {
		r.put(Power, time.Duration(i)*time.Second, 100)
	}
	r.view(func(d DeviceView) {
		assert.Equal(t, time.Second, d.Interval())
		coverage, _ := d.Coverage(t0+10*second, t0+19*second)
		assert.Equal(t, 1.0, coverage)
	})
	// Every third sample is early: the interval is the most frequent one.
	for i := range 60 {
		r.put(Power, 20*time.Second+time.Duration(i)*time.Second-time.Duration(i%3/2)*900*time.Millisecond, 100)
	}
	r.view(func(d DeviceView) { assert.Equal(t, time.Second, d.Interval()) })
}

func TestThrottleMask(t *testing.T) {
	r := newRig(t, NewDefaultConfig(), Device{ID: "GPU-a"})
	for i, v := range []ThrottleReason{0, ThrottleSWPowerCap, ThrottleSWPowerCap | ThrottleHWThermal, 0, 0} {
		r.put(Throttle, time.Duration(i)*time.Second, float64(v))
	}
	r.view(func(d DeviceView) {
		seconds, _ := d.Integral(Throttle, t0, t0+4*second)
		assert.InDelta(t, 2, seconds, 1e-12)
		assert.Equal(t, uint64(0x44), d.Mask(Throttle, t0, t0+4*second))
		assert.Equal(t, uint64(0x4), d.Mask(Throttle, t0, t0+second))
		assert.Zero(t, d.Mask(Throttle, t0+2*second, t0+4*second))
	})
	var names []string
	ThrottleReason(0x44).Each(func(b ThrottleReason) { names = append(names, b.String()) })
	assert.Equal(t, []string{"sw_power_cap", "hw_thermal_slowdown"}, names)
}

// TestLookupsAgreeWithALinearScan compares binary search and prefix sums with sums over short
// slices of the defining functions, on random series with gaps, in a ring that has wrapped around.
func TestLookupsAgreeWithALinearScan(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	for _, f := range []Field{Power, Utilization, Energy, Throttle} {
		cfg := NewDefaultConfig()
		cfg.MaxAge = 30 * time.Second
		r := newRig(t, cfg, Device{ID: "GPU-a", Interval: 100 * time.Millisecond})
		type pt struct {
			t int64
			v float64
		}
		var pts []pt
		at, total := t0, 0.0
		for range 2000 {
			at += int64(50*time.Millisecond) + rng.Int64N(int64(100*time.Millisecond))
			if rng.IntN(50) == 0 {
				at += second
			}
			v := rng.Float64() * 500
			switch f {
			case Energy:
				total += v
				v = total
			case Throttle:
				v = float64(rng.IntN(3) * 4)
			case Utilization:
				v /= 500
			}
			pts = append(pts, pt{at, v})
			s := Sample{Time: at}
			s.Set(f, v)
			r.w.Write([]Sample{s})
		}
		r.view(func(d DeviceView) {
			oldest, newest := d.Range(f)
			for range 300 {
				start := oldest + rng.Int64N(newest-oldest)
				end := start + 1 + rng.Int64N(min(newest-start, 5*second)+1)
				want, covered := 0.0, 0.0
				const limit = 3 * int64(100*time.Millisecond)
				for i := 1; i < len(pts); i++ {
					a, b := pts[i-1], pts[i]
					lo, hi := max(a.t, start), min(b.t, end)
					if hi <= lo || b.t-a.t > limit {
						continue
					}
					const steps = 200 // midpoints: exact for straight lines
					for k := range steps {
						x := float64(lo-a.t) + (float64(k)+0.5)/steps*float64(hi-lo)
						dt := float64(hi-lo) / steps * 1e-9
						switch f.Kind() {
						case KindInstant:
							want += (a.v + (b.v-a.v)*x/float64(b.t-a.t)) * dt
						case KindInterval:
							want += b.v * dt
						case KindMask:
							if b.v != 0 {
								want += dt
							}
						case KindCounter:
							want += (b.v - a.v) / (float64(b.t-a.t) * 1e-9) * dt
						}
					}
					covered += float64(hi - lo)
				}
				got, coverage := d.Integral(f, start, end)
				require.InDelta(t, want, got, 1e-6*math.Max(1, want), "%s", f)
				require.InDelta(t, covered/float64(end-start), coverage, 1e-9)
			}
		})
	}
}

func TestMaxIsTakenBetweenSamplesToo(t *testing.T) {
	r := newRig(t, NewDefaultConfig(), Device{ID: "GPU-a"})
	for i, v := range []float64{50, 90, 60} {
		r.put(Temperature, time.Duration(i)*time.Second, v)
	}
	r.view(func(d DeviceView) {
		v, ok := d.Max(Temperature, t0, t0+2*second)
		assert.True(t, ok)
		assert.Equal(t, 90.0, v)
		v, _ = d.Max(Temperature, t0+second/4, t0+second/2)
		assert.InDelta(t, 70, v, 1e-9)
	})
}

func TestWatermarkIsTheOldestLiveField(t *testing.T) {
	r := newRig(t, NewDefaultConfig(), Device{ID: "GPU-a", Interval: time.Second})
	for i := range 5 {
		at := time.Duration(i) * time.Second
		r.put(Power, at, 1)
		if i < 3 {
			r.put(Energy, at+100*time.Millisecond, float64(i))
		}
	}
	r.view(func(d DeviceView) { assert.Equal(t, t0+2*second+second/10, d.Newest(), "energy may still come") })
	r.put(Power, 6*time.Second, 1)
	r.view(func(d DeviceView) {
		assert.Equal(t, t0+6*second, d.Newest(), "energy has no sample for more than 3 intervals")
	})
	r.put(Energy, 5*time.Second, 9)
	r.view(func(d DeviceView) { assert.Equal(t, t0+6*second, d.Newest(), "it never decreases") })
}

func TestUpdatePeriodOfAStair(t *testing.T) {
	r := newRig(t, NewDefaultConfig(), Device{ID: "GPU-a", Interval: 10 * time.Millisecond})
	for i := range 10_000 { // long enough that the oldest changes are evicted
		at := time.Duration(i) * 10 * time.Millisecond
		r.put(Energy, at, math.Floor(at.Seconds()/0.05)*20) // refreshed every 50 ms
	}
	r.view(func(d DeviceView) {
		assert.InDelta(t, 50, d.UpdatePeriod(Energy).Seconds()*1e3, 1)
		assert.Zero(t, d.UpdatePeriod(Power))
	})
}

func TestARepeatedValueOfACounterIsNoMeasurement(t *testing.T) {
	r := newRig(t, NewDefaultConfig(), Device{ID: "GPU-a"})
	write := func(i int, joules, bytes float64) {
		s := Sample{Time: t0 + int64(i)*second/10}
		s.Set(Energy, joules)
		s.Set(PCIeTransmit, bytes)
		r.w.Write([]Sample{s})
	}
	// Both are refreshed each second and read ten times as often. After ten seconds there is no
	// traffic any more.
	for i := range 200 {
		s := i / 10
		write(i, 300*float64(s), 1e9*float64(min(s, 10)))
	}
	r.view(func(d DeviceView) {
		for _, f := range []Field{Energy, PCIeTransmit} {
			mean, coverage := d.Mean(f, t0+7*second+second/2, t0+7*second+3*second/4)
			assert.InDelta(t, 1., coverage, 1e-9)
			assert.InDelta(t, map[Field]float64{Energy: 300, PCIeTransmit: 1e9}[f], mean, 1e-6, "no standstill between changes")
		}
		mean, coverage := d.Mean(PCIeTransmit, t0+13*second, t0+14*second)
		assert.InDelta(t, 1., coverage, 1e-9)
		assert.Zero(t, mean, "traffic stops")
		changes := d.Changes(Energy, t0+5*second, nil)
		assert.Equal(t, instrument.Change{
			Time: t0 + 6*second, Since: t0 + 59*second/10, Value: 1800, Covered: true,
		}, changes[0])
		assert.Equal(t, t0+199*second/10, d.LastRead(Energy))
		assert.Equal(t, t0+199*second/10, d.Newest(), "a counter that stands still delays nothing")
	})
}
