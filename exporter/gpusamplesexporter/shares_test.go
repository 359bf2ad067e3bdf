// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpusamplesexporter

import (
	"flag"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
)

var seeds = flag.Int("seeds", 16, "number of simulated GPUs for each interval of scrapes")

// sharedGPU simulates a GPU with two to four pods, in ticks of 10 ms, as dcgm-exporter shows it
// with KUBERNETES_VIRTUAL_GPUS=true.
type sharedGPU struct {
	resident, active [][]float64 // sums by pod and tick, of ticks and of joules
	total            []float64   // J
	period, buffer   int         // of the driver's utilization, in ticks
	answers          int         // what a value covers: all samples in the buffer, the busy ones, the newest busy one
}

const (
	tick      = 10 * time.Millisecond
	perSecond = 100
)

func newSharedGPU(r *rand.Rand, length int) *sharedGPU {
	g := &sharedGPU{
		period: 17 + r.IntN(84), buffer: (5 + r.IntN(16)) * perSecond, answers: r.IntN(3), total: make([]float64, length+1),
	}
	idle := 50 + 60*r.Float64()
	n := 2 + r.IntN(3)
	runs, watts := make([][]bool, n), make([]float64, n)
	burst := func() float64 { return 5 * math.Pow(400, r.Float64()) } // 0.05 to 20 s
	for i := range n {
		g.resident, g.active = append(g.resident, make([]float64, length+1)), append(g.active, make([]float64, length+1))
		watts[i] = 300 * (1 + 1.5*r.Float64()) / 2
		runs[i] = make([]bool, length)
		on, off := burst(), burst()
		for t := 0; t < length; t += 1 + int(off*r.ExpFloat64()) {
			for end := min(t+1+int(on*r.ExpFloat64()), length); t < end; t++ {
				runs[i][t] = true
			}
		}
	}
	for t := range length {
		running, power := 0.0, idle
		for i := range n {
			if runs[i][t] {
				running++
			}
		}
		for i := range n {
			share := 0.0
			if runs[i][t] {
				share = 1 / running
			}
			power += watts[i] * share
			g.resident[i][t+1] = g.resident[i][t] + share
			g.active[i][t+1] = g.active[i][t] + watts[i]*share*tick.Seconds()
		}
		g.total[t+1] = g.total[t] + power*tick.Seconds()
	}
	return g
}

// utilization returns what the exporter shows of a pod in percent.
func (g *sharedGPU) utilization(pod, t int) float64 {
	var sum, n float64
	last := t / g.period * g.period
	for to := last; to-g.period >= max(last-g.buffer, 0); to -= g.period {
		busy := (g.resident[pod][to] - g.resident[pod][to-g.period]) / float64(g.period)
		if busy > 0 || g.answers == 0 {
			sum, n = sum+busy, n+1
		}
		if busy > 0 && g.answers == 2 {
			break
		}
	}
	return math.Round(100 * sum / max(n, 1))
}

// points returns a scrape.
func (g *sharedGPU) points(t int, at time.Time) (list []point) {
	add := func(name string, v float64, more ...string) {
		list = append(list, point{name: "DCGM_FI_" + name, at: at, value: v, sum: strings.HasSuffix(name, "CONSUMPTION"), attrs: labels(more...)})
	}
	var busy float64
	last := t / g.period * g.period
	for i := range g.active {
		pod := []string{"pod", strconv.Itoa(i), "namespace", "ml"}
		add("DEV_GPU_UTIL", g.utilization(i, t), pod...)
		add("PROF_GR_ENGINE_ACTIVE", 0.99, pod...) // a copy of the device's
		busy += g.resident[i][last] - g.resident[i][max(last-g.period, 0)]
	}
	add("DEV_GPU_UTIL", math.Round(100*busy/float64(g.period)))
	add("DEV_TOTAL_ENERGY_CONSUMPTION", 1000*g.total[t])
	add("DEV_POWER_USAGE", g.total[t]-g.total[max(t-perSecond, 0)])
	return list
}

// divided is what the exporter has divided so far.
type divided struct {
	through time.Duration
	total   float64
	used    map[string]devicesamples.DividedUse
}

func (r *rig) divided(begin time.Time) (x divided) {
	list := r.store.Divisions()
	require.Len(r.t, list, 1)
	d := list[0]
	x = divided{time.Unix(0, d.Time).Sub(begin), d.Idle[0] + d.Idle[1] + d.Unattributed, map[string]devicesamples.DividedUse{}}
	for _, u := range d.Users {
		x.total += u.Joules
		x.used[u.Pod] = u
	}
	return x
}

// TestPodsHaveTheirEnergyWithinTheStatedError scrapes simulated GPUs and compares the energy of
// each pod in windows of ten scrapes with the simulation, and the sum of all parts with the
// counter.
func TestPodsHaveTheirEnergyWithinTheStatedError(t *testing.T) {
	for _, seconds := range []int{1, 10, 30} {
		step := seconds * perSecond
		var inside, all int
		var errors, bounds []float64
		for seed := range *seeds {
			g := newSharedGPU(rand.New(rand.NewPCG(uint64(seed), uint64(seconds))), 60*step)
			r := newRig(t)
			begin := time.Now().Add(-60 * time.Duration(step) * tick)
			at := func(sums []float64, when time.Duration) float64 { // as known from scrapes
				i := int(when/tick) / step * step
				if i+step >= len(sums) {
					return sums[i]
				}
				return sums[i] + (sums[i+step]-sums[i])*float64(when-time.Duration(i)*tick)/float64(time.Duration(step)*tick)
			}
			var before divided
			for scrape := range 61 {
				r.write(g.points(scrape*step, begin.Add(time.Duration(scrape*step)*tick))...)
				if seconds == 30 { // collected once, and scraped again
					r.write(g.points(scrape*step, begin.Add(time.Duration(scrape*step)*tick+15*time.Second))...)
				}
				if scrape == 0 || scrape%10 != 0 {
					continue
				}
				x := r.divided(begin)
				require.InEpsilon(t, at(g.total, x.through), x.total, 1e-9)
				for i := range g.active {
					name := strconv.Itoa(i)
					want := g.active[i][x.through/tick] - g.active[i][before.through/tick]
					got, bound := x.used[name].Joules-before.used[name].Joules, x.used[name].Error-before.used[name].Error
					if want == 0 && got == 0 {
						continue
					}
					if all++; math.Abs(got-want) <= bound {
						inside++
					}
					device := x.total - before.total
					errors, bounds = append(errors, math.Abs(got-want)/device), append(bounds, bound/device)
				}
				before = x
			}
		}
		slices.Sort(errors)
		slices.Sort(bounds)
		q := func(list []float64, p float64) float64 { return 100 * list[int(p*float64(len(list)-1))] }
		t.Logf("a scrape every %d s: %.1f %% of %d inside; error: median %.1f %%, 95th percentile %.1f %% of the GPU; bound: median %.1f %%",
			seconds, 100*float64(inside)/float64(all), all, q(errors, 0.5), q(errors, 0.95), q(bounds, 0.5))
		assert.GreaterOrEqual(t, float64(inside), 0.96*float64(all), "a scrape every %d s", seconds)
		assert.LessOrEqual(t, q(errors, 0.5), 8.)
		assert.LessOrEqual(t, q(bounds, 0.5), 3*q(errors, 0.95))
	}
}

// TestPodsOfEachKindOfDevice scrapes a GPU that is idle for 20 s and then draws 260 W for 60 s.
func TestPodsOfEachKindOfDevice(t *testing.T) {
	pod := func(name string, more ...string) map[string]any {
		return labels(append(more, "pod", name, "namespace", "ml")...)
	}
	a, b := pod("a", "GPU_I_ID", "1", "GPU_I_PROFILE", "3g.40gb"), pod("b", "GPU_I_ID", "2", "GPU_I_PROFILE", "4g.40gb")
	for name, c := range map[string]struct {
		scrape func(busy float64, second int) []point
		want   map[string]float64 // J
		err    float64            // least one
		rest   float64
	}{
		"whole GPU": {func(busy float64, _ int) []point {
			return []point{{name: "DCGM_FI_DEV_GPU_UTIL", value: 80 * busy, attrs: pod("a")}}
		}, map[string]float64{"a": 12000}, 0, 0},
		"instances": {func(busy float64, _ int) []point {
			return []point{
				{name: "DCGM_FI_PROF_GR_ENGINE_ACTIVE", value: 0.8 * busy, attrs: a},
				{name: "DCGM_FI_PROF_GR_ENGINE_ACTIVE", value: 0.2 * busy, attrs: b},
			}
		}, map[string]float64{"a": 12000 * 3 * 0.8 / (3*0.8 + 4*0.2), "b": 12000 * 4 * 0.2 / (3*0.8 + 4*0.2)}, 0, 0},
		"copies for each pod": {func(busy float64, _ int) []point {
			return []point{
				{name: "DCGM_FI_DEV_GPU_UTIL", value: 80 * busy, attrs: pod("a")},
				{name: "DCGM_FI_DEV_GPU_UTIL", value: 80 * busy, attrs: pod("b")},
			}
		}, map[string]float64{"a": 6000, "b": 6000}, 6000, 0},
		"a pod that ends": {func(busy float64, second int) []point {
			list := []point{{name: "DCGM_FI_DEV_GPU_UTIL", value: 80 * busy, attrs: labels()}}
			if second < 40 {
				list = append(list, point{name: "DCGM_FI_DEV_GPU_UTIL", value: 80 * busy, attrs: pod("a")})
			}
			return list
		}, map[string]float64{}, 0, 8000},
		"the first of AMD's partitions": {func(busy float64, _ int) []point {
			return []point{{name: "DCGM_FI_DEV_GPU_UTIL", value: 80 * busy, attrs: pod("a", "gpu_compute_partition_type", "cpx")}}
		}, map[string]float64{}, 0, 12000},
		"no pod": {func(busy float64, _ int) []point {
			return []point{{name: "DCGM_FI_DEV_GPU_UTIL", value: 80 * busy, attrs: labels()}}
		}, map[string]float64{}, 0, 12000},
	} {
		r := newRig(t)
		begin := time.Now().Add(-80 * time.Second)
		joules := 0.0
		var ended map[string]devicesamples.DividedUse
		for second := range 81 {
			busy, watts := 0., 60.
			if second > 20 {
				busy, watts = 1, 260
			}
			joules += watts
			points := append(c.scrape(busy, second),
				point{name: "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", value: 1000 * joules, sum: true, attrs: labels()},
				point{name: "DCGM_FI_DEV_POWER_USAGE", value: watts, attrs: labels()})
			for i := range points {
				points[i].at = begin.Add(time.Duration(second) * time.Second)
			}
			r.write(points...)
			if second == 50 {
				ended = r.divided(begin).used
			}
		}
		x := r.divided(begin)
		for p := range c.want {
			delete(ended, p)
		}
		for _, u := range ended {
			x.total += u.Joules
		}
		assert.InDelta(t, joules-60-260*(80-x.through.Seconds()), x.total, 1e-6, name)
		assert.Len(t, x.used, len(c.want), name)
		for p, want := range c.want {
			assert.InDelta(t, want, x.used[p].Joules, 0.03*want, "%s %s", name, p)
			assert.GreaterOrEqual(t, x.used[p].Error, c.err, "%s %s", name, p)
		}
		if c.rest > 0 {
			c.rest -= 200 * (80 - x.through.Seconds())
		}
		assert.InDelta(t, c.rest, r.store.Divisions()[0].Unattributed, 0.03*12000, name)
	}
}
