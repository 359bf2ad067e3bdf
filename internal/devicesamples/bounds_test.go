// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package devicesamples

import (
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// Values of a broken exporter must not stay in the running integrals, where they would corrupt all
// later results.
func TestAbsurdValuesLeaveNoTrace(t *testing.T) {
	for f := range Field(NumFields) {
		for _, absurd := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat64, 1.7e308, 1e18, -1e18, -300} {
			r := newRig(t, NewDefaultConfig(), Device{ID: "GPU-a"})
			for i := range 20 {
				v := 0.05 * float64(i)
				if f.Kind() == KindMask {
					v = 4
				}
				if i == 0 || i == 7 || i == 8 {
					v = absurd
				}
				r.put(f, time.Duration(i)*time.Second/10, v)
			}
			r.view(func(d DeviceView) {
				oldest, _ := d.Range(f)
				mean, coverage := d.Mean(f, t0+second, t0+19*second/10)
				want := map[Kind]float64{KindInstant: 0.05 * 14.5, KindInterval: 0.05 * 15, KindCounter: 0.5, KindMask: 1}[f.Kind()]
				assert.InDelta(t, want, mean, 1e-9, "%s after %g", f, absurd)
				assert.Equal(t, 1., coverage)
				mean, _ = d.Mean(f, oldest, t0+19*second/10)
				assert.True(t, mean >= 0 && mean < 5, "%s over %g is %g", f, absurd, mean)
				most, _ := d.Max(f, t0, t0+19*second/10)
				assert.LessOrEqual(t, most, 5., "%s over %g", f, absurd)
			})
		}
	}
}

// Means over short spans stay exact after months of uptime.
func TestMeansStayExactWithUptime(t *testing.T) {
	r := newRig(t, Config{MaxAge: time.Minute, MaxBytes: 1 << 20, MaxDevices: 1},
		Device{ID: "GPU-a", Interval: 100 * time.Millisecond})
	s := r.store.devices["a"]
	r.put(Power, 0, 700)
	r.put(Energy, 0, 1e10)
	const day = 24 * 3600
	for _, f := range []Field{Power, Energy} { // as after 200 days of uptime
		p := s.series[f].last()
		p.integral, p.covered = 700*200*day, 200*day*second
		if f == Energy {
			p.v = 700 * 200 * day
		}
	}
	const every = 100 * time.Millisecond
	for i := 1; i <= 1200; i++ { // more than the capacity of the rings
		r.put(Power, time.Duration(i)*every, 700+float64(i%2)) // the line between 700 and 701
		r.put(Energy, time.Duration(i)*every, 1e10+70*float64(i))
	}
	r.view(func(d DeviceView) {
		at := t0 + 1000*int64(every)
		for _, tt := range []struct{ start, end int64 }{
			{at + 10_000_000, at + 10_002_000},         // 2 µs in one cell
			{at - 1000, at + 1000},                     // 2 µs over two cells
			{at - int64(every)/2, at + 3*int64(every)}, // more
		} {
			joules, _ := d.Integral(Energy, tt.start, tt.end)
			assert.InEpsilon(t, 700*float64(tt.end-tt.start)*1e-9, joules, 1e-9, "%v", tt)
			watts, _ := d.Mean(Power, tt.start, tt.end)
			var want float64 // of the triangles; a sum over nanoseconds would be equal
			const n = 100_000
			for i := range n {
				x := math.Mod((float64(tt.start-t0)+(float64(i)+0.5)*float64(tt.end-tt.start)/n)/float64(every), 2)
				want += (700 + min(x, 2-x)) / n
			}
			assert.InEpsilon(t, want, watts, 1e-9, "%v", tt)
		}
	})
}

func (d *device) bytes() int64 {
	var n int64
	for _, s := range d.series {
		if s != nil {
			n += int64(len(s.pts)) * s.pointSize()
		}
	}
	return n
}

// A device that is added when all memory is in use gets its part of it.
func TestALateDeviceGetsItsRing(t *testing.T) {
	cfg := Config{MaxAge: 24 * time.Hour, MaxBytes: 1 << 20, MaxDevices: 100}
	r := newRig(t, cfg, Device{ID: "GPU-a"})
	for i := range 40_000 { // one ring of 32768 points is the whole megabyte
		r.put(Power, time.Duration(i)*time.Millisecond, 1)
	}
	require.Equal(t, cfg.MaxBytes, r.store.bytes)
	ids := []string{"GPU-a"}
	for n := range 30 {
		id := "GPU-late" + strconv.Itoa(n)
		ids = append(ids, id)
		r.w = r.register(Device{ID: id})
		for i := range 40_000 {
			r.put(Power, time.Duration(40_000*(n+1)+i)*time.Millisecond, 1)
		}
	}
	require.LessOrEqual(t, r.store.bytes, cfg.MaxBytes)
	var sum int64
	for _, id := range ids {
		d := r.store.devices[NormalizeID(id)]
		sum += d.bytes()
		assert.GreaterOrEqual(t, d.series[Power].len(), 512, "%s: at least half of an equal part", id)
		first := d.series[Power].first().t
		for i := d.series[Power].head + 1; i < d.series[Power].tail; i++ {
			require.Equal(t, first+int64(i-d.series[Power].head)*int64(time.Millisecond), d.series[Power].at(i).t,
				"the newest points are kept")
		}
	}
	assert.Equal(t, sum, r.store.bytes)
}

// With little memory for many series, each has few points, and none has zero.
func TestNoSeriesIsLeftOutForWantOfMemory(t *testing.T) {
	const devices = 100
	cfg := Config{MaxAge: time.Hour, MaxBytes: devices * 48 * pointSize, MaxDevices: devices}
	r := newRig(t, cfg, Device{ID: "GPU-0"})
	for n := range devices {
		r.w = r.register(Device{ID: "GPU-" + strconv.Itoa(n)})
		for i := range 50 {
			r.put(Power, time.Duration(i)*time.Second, 1)
		}
	}
	for id, d := range r.store.devices {
		assert.GreaterOrEqual(t, d.series[Power].len(), 24, "%s: at least half of an equal part", id)
	}
	assert.LessOrEqual(t, r.store.bytes, cfg.MaxBytes)
}

// Memory that was allocated for a burst of samples is released.
func TestRingsShrink(t *testing.T) {
	r := newRig(t, Config{MaxAge: time.Minute, MaxBytes: 64 << 20, MaxDevices: 1}, Device{ID: "GPU-a"})
	for i := range 20_000 {
		r.put(Power, time.Duration(i)*time.Millisecond, 1)
	}
	most := r.store.bytes
	for i := range 300 {
		r.now = r.now.Add(time.Second)
		r.put(Power, time.Duration(20+i)*time.Second, 1)
	}
	assert.Less(t, r.store.bytes, most/16)
	assert.Equal(t, r.store.bytes, r.store.devices["a"].bytes())
}

func TestDropsCountValues(t *testing.T) {
	r := newRig(t, NewDefaultConfig(), Device{ID: "GPU-a"})
	s := Sample{Time: r.now.Add(2 * time.Minute).UnixNano()}
	s.Set(Power, 1)
	s.Set(Energy, 1)
	s.Set(Temperature, 1)
	r.w.Write([]Sample{s})
	assert.EqualValues(t, 3, r.store.Stats.Future.Load())
	r.w.Close()
	r.w.Write([]Sample{s})
	assert.EqualValues(t, 3, r.store.Stats.NotRegistered.Load())
}

// The possible increase of a counter is proportional to the gap, but at least the increase of one
// second, because counters are step functions.
func TestAJumpIsJudgedByTheLengthOfTheGap(t *testing.T) {
	for _, tt := range []struct {
		gap  time.Duration
		jump float64
		want float64
	}{
		{10 * time.Second, 9e6, 9e6},       // 0.9 MW over 10 s
		{10 * time.Second, 11e6, 0},        // 1.1 MW
		{100 * time.Millisecond, 9e5, 9e5}, // in a single step
		{100 * time.Millisecond, 11e5, 0},
	} {
		r := newRig(t, NewDefaultConfig(), Device{ID: "GPU-a", Interval: 10 * time.Second})
		r.put(Energy, 0, 1000)
		r.put(Energy, tt.gap, 1000+tt.jump)
		r.view(func(d DeviceView) {
			joules, _ := d.Integral(Energy, t0, t0+int64(tt.gap))
			assert.InDelta(t, tt.want, joules, 1e-6, "%v", tt)
		})
	}
}

// A ratio outside its range, and more memory in use than there is, are omitted, counted and logged
// once with both values. A little more than the whole is rounding.
func TestValuesOutsideTheirRangeContradictTheDevice(t *testing.T) {
	for reason, write := range map[string]func(r *rig, i int, share float64){
		"memory_range": func(r *rig, i int, share float64) {
			r.put(MemoryUsed, time.Duration(i)*time.Second, share*80*(1<<30))
		},
		"utilization_range": func(r *rig, _ int, share float64) {
			if !Utilization.Valid(share) {
				ContradictRatio(r.store, &Device{ID: "GPU-a", Source: "dcgm"}, Utilization, share)
			}
			ContradictRatio(r.store, &Device{ID: "GPU-a", Source: "dcgm"}, Power, share) // has no range
		},
	} {
		core, logs := observer.New(zap.WarnLevel)
		r := newRig(t, NewDefaultConfig(), Device{ID: "GPU-a", Source: "dcgm", Limits: Limits{Memory: 80 << 30}})
		r.store.SetLogger(zap.New(core))
		for i, share := range []float64{0, 0.5, 1, 1.015} {
			write(r, i, share)
		}
		require.Empty(t, r.store.ContradictionEntries(), reason)
		stored := r.store.Stats.Written.Load()
		for i, share := range []float64{1.06, 9.7, 97} {
			write(r, 100+i, share)
		}
		require.Equal(t, stored, r.store.Stats.Written.Load(), reason)
		entries := r.store.ContradictionEntries()
		require.Len(t, entries, 1)
		assert.Equal(t, reason, entries[0].Reason)
		assert.EqualValues(t, 3, entries[0].Count)
		require.Equal(t, 1, logs.Len(), reason)
		for key, part := range map[string]string{"found": "%", "other": "100 %"} {
			if reason == "memory_range" {
				part = "GiB"
			}
			assert.Contains(t, logs.All()[0].ContextMap()[key], part)
		}
	}
}
