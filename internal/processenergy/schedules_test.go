// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package processenergy

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
)

// A simulated device and its driver, with a tick of 10 ms. Processes run in bursts; with time
// slicing running processes share the time, with MPS they overlap. The driver averages residencies
// over its own period, in whole percent, and refreshes its counter in steps.
const (
	tick       = 10_000_000 // ns
	ticks      = 12_000
	second     = 100 // ticks
	beginning  = int64(1_790_003_000_000_000_000)
	powerLimit = 700.0
)

type schedule struct {
	mps       bool
	idle      float64
	resident  [][]float64 // sums by process and tick
	active    [][]float64 // J, the same
	total     []float64   // J
	power     []float64   // W
	period    int         // of the driver's samples, in ticks
	refresh   int         // of the counter
	averaging int         // of power readings
	answers   int         // which samples an average includes: all, only busy ones, or the newest
	sizes     []float64   // of the instances, which have the processes in turn; none: no MIG
}

func newSchedule(r *rand.Rand, sizes ...float64) *schedule {
	s := &schedule{
		mps: r.IntN(5) == 0, idle: 50 + 60*r.Float64(), period: 17 + r.IntN(84), refresh: 2 + r.IntN(9),
		averaging: []int{1, 100}[r.IntN(2)], answers: r.IntN(3), sizes: sizes,
	}
	s.mps = s.mps && sizes == nil
	n := 2 + r.IntN(3)
	watts, runs := make([]float64, n), make([][]bool, n)
	base, factor := 200+200*r.Float64(), 1+1.5*r.Float64()
	for i := range n {
		watts[i] = base * (1 + (factor-1)*r.Float64()) / factor * 1.5
		runs[i] = make([]bool, ticks)
		on, off := burst(r), burst(r)
		from, to := 0, ticks
		if r.IntN(4) == 0 { // starts late, or ends early
			from = r.IntN(ticks / 2)
			to = from + r.IntN(ticks-from)
		}
		for t := from; t < to; {
			for end := min(t+1+int(on*r.ExpFloat64()), to); t < end; t++ {
				runs[i][t] = true
			}
			t += 1 + int(off*r.ExpFloat64())
		}
	}
	// Kernels that run at the same time slow each other down, each as much as it needs what the
	// others use.
	slowed := make([]float64, n)
	for i := range slowed {
		slowed[i] = 0.7 + 0.3*r.Float64()
	}
	s.resident, s.active = make([][]float64, n), make([][]float64, n)
	for i := range n {
		s.resident[i], s.active[i] = make([]float64, ticks+1), make([]float64, ticks+1)
	}
	s.total, s.power = make([]float64, ticks+1), make([]float64, ticks+1)
	for t := range ticks {
		running, sum := make([]int, max(len(sizes), 1)), 0.0
		for i := range n {
			if runs[i][t] {
				running[i%len(running)]++
			}
		}
		scale := func(i int) float64 {
			switch {
			case s.mps:
				return 1
			case sizes != nil:
				return sizes[i%len(sizes)] / float64(running[i%len(sizes)])
			}
			return 1 / float64(running[0])
		}
		for i := range n {
			if runs[i][t] {
				sum += watts[i] * scale(i)
			}
		}
		clip := min(1, (powerLimit-s.idle)/max(sum, 1))
		p := s.idle
		for i := range n {
			var share, w float64
			if runs[i][t] {
				share, w = scale(i), watts[i]*scale(i)*clip
				if s.mps && running[0] > 1 {
					w *= slowed[i]
				}
			}
			s.resident[i][t+1] = s.resident[i][t] + share
			s.active[i][t+1] = s.active[i][t] + w*tick*1e-9
			p += w
		}
		s.power[t+1] = p
		s.total[t+1] = s.total[t] + p*tick*1e-9
	}
	return s
}

// burst returns a mean length in ticks, from 0.05 to 20 s.
func burst(r *rand.Rand) float64 { return 5 * math.Pow(400, r.Float64()) }

// counter is the energy counter in joules.
func (s *schedule) counter(t int) float64 {
	return math.Floor(s.total[t/s.refresh*s.refresh]*1000) / 1000
}

// reading is the power reading, an average.
func (s *schedule) reading(t int) float64 {
	from := max(t-s.averaging, 0)
	return (s.total[t] - s.total[from]) / (float64(max(t-from, 1)) * tick * 1e-9)
}

// percents answers like the driver: at keep one sample for each process, newer than seen.
func (s *schedule) percents(t int, seen int64) (list []Sample) {
	first := max(int((seen-beginning)/tick)/s.period*s.period, 0)
	last := t / s.period * s.period
	for i := range s.resident {
		var sum float64
		var count, at int
		for from := first; from < last; from += s.period {
			busy := (s.resident[i][from+s.period] - s.resident[i][from]) / float64(s.period)
			if busy > 0 {
				at = from + s.period
			}
			switch {
			case s.answers == 2 && busy > 0:
				sum, count = busy, 1
			case s.answers == 0, s.answers == 1 && busy > 0:
				sum, count = sum+busy, count+1
			}
		}
		if at > 0 {
			if v, ok := OfPercent(Key{PID: int64(i + 1)}, beginning+int64(at)*tick, uint32(math.Round(100*sum/float64(count)))); ok {
				list = append(list, v)
			}
		}
	}
	return list
}

// activities returns the utilization of each MIG instance in the last second, as its processes,
// which all have contexts.
func (s *schedule) activities(t int) (list []Sample) {
	for i, size := range s.sizes {
		var busy float64
		var on []Key
		for p := i; p < len(s.resident); p += len(s.sizes) {
			busy += s.resident[p][t] - s.resident[p][t-second]
			on = append(on, Key{PID: int64(p + 1)})
		}
		list = OfInstance(list, on, beginning+int64(t)*tick, math.Round(100*busy/size/second)/100, size)
	}
	return list
}

// reading is what was used until a time.
type reading struct {
	through int64
	used    map[Key]Usage
	total   float64
}

// measure measures the simulated device like a real one, and reads it every 10 s.
func (s *schedule) measure() (*Device, []reading) { return s.measureExcept(0, 0) }

// measureExcept measures nothing from one tick to another. The driver remembers 10 s.
func (s *schedule) measureExcept(from, to int) (*Device, []reading) {
	d := NewDevice(powerLimit, keep)
	var readings []reading
	for at := 0; at <= ticks; at += 10 {
		now := beginning + int64(at)*tick
		if at >= from && at < to {
			continue
		}
		d.AddEnergy(now, s.counter(at))
		if at > 0 {
			d.AddPower(s.reading(at), true)
		}
		switch {
		case s.sizes != nil && at > 0 && at%second == 0:
			d.Add(Answer{Time: now, Samples: s.activities(at), Contexts: true, Utilization: -1, Whole: true})
		case s.sizes == nil && at%25 < 10:
			d.Add(Answer{Time: now, Samples: s.percents(at, max(d.Since(), beginning, now-10e9)), Contexts: true, Utilization: -1})
		}
		if at > 0 && at%(10*second) == 0 {
			u := reading{d.Through(), map[Key]Usage{}, d.Total()}
			d.Processes(func(k Key, v Usage) { u.used[k] = v })
			readings = append(readings, u)
		}
	}
	return d, readings
}

// TestInstancesHaveTheEnergyOfTheirProcesses compares two MIG instances in windows of 10 s with the
// simulation. How several processes share an instance is unknown, and so is the power of the one
// that runs.
func TestInstancesHaveTheEnergyOfTheirProcesses(t *testing.T) {
	var inside, all [2]int // by processes of the instance, one or more
	var errors [2][]float64
	for seed := range 100 {
		s := newSchedule(rand.New(rand.NewPCG(uint64(seed), 46)), 4./7, 3./7)
		d, readings := s.measure()
		sum := d.Idle(false).Joules + d.Idle(true).Joules + d.Unattributed().Joules
		d.Processes(func(_ Key, u Usage) { sum += u.Joules })
		assert.InEpsilon(t, d.Total(), sum, 1e-9, "seed %d", seed)
		for i := 1; i < len(readings); i++ {
			a, b := readings[i-1], readings[i]
			from, to := int((a.through-beginning)/tick), int((b.through-beginning)/tick)
			var got, want [2]float64
			for p := range s.active {
				k := Key{PID: int64(p + 1)}
				u := b.used[k].Since(a.used[k])
				truth := s.active[p][to] - s.active[p][from]
				got[p%2], want[p%2] = got[p%2]+u.Joules, want[p%2]+truth
				kind := min((len(s.active)-1-p%2)/2, 1)
				if all[kind]++; math.Abs(u.Joules-truth) <= u.Error() {
					inside[kind]++
				}
			}
			for n := range got {
				kind := min((len(s.active)-1-n)/2, 1)
				errors[kind] = append(errors[kind], math.Abs(got[n]-want[n])/(b.total-a.total))
			}
		}
	}
	for kind, list := range errors {
		share := float64(inside[kind]) / float64(all[kind])
		t.Logf("several processes: %t, %.2f %% of %d inside; error of instances: median %.2f %%, 95th percentile %.2f %% of the device",
			kind == 1, 100*share, all[kind], 100*percentile(list, 0.5), 100*percentile(list, 0.95))
		assert.GreaterOrEqual(t, share, 0.95)
		assert.LessOrEqual(t, percentile(list, 0.5), 0.02)
		assert.LessOrEqual(t, percentile(list, 0.95), []float64{0.1, 0.15}[kind])
	}
}

// TestPartsOfAThousandSchedulesSumToTheDeviceAndAreInsideTheirBounds compares windows of 10 s with
// the simulation's own energies.
func TestPartsOfAThousandSchedulesSumToTheDeviceAndAreInsideTheirBounds(t *testing.T) {
	n := 1000
	if testing.Short() {
		n = 100
	}
	var inside, all, mpsInside int
	var bounds, errors, mpsBounds []float64
	for seed := range n {
		r := rand.New(rand.NewPCG(uint64(seed), 45))
		s := newSchedule(r)
		d, readings := s.measure()
		sum := d.Idle(false).Joules + d.Idle(true).Joules + d.Unattributed().Joules
		d.Processes(func(_ Key, u Usage) { sum += u.Joules })
		assert.InEpsilon(t, d.Total(), sum, 1e-9, "seed %d", seed)
		// The counter shows its value of the last refresh, so that the sum is compared with it.
		end := int((d.Through() - beginning) / tick)
		assert.InDelta(t, s.total[end], d.Total()+s.total[0], powerLimit*0.25, "seed %d", seed)
		for i := 1; i < len(readings); i++ {
			a, b := readings[i-1], readings[i]
			from, to := int((a.through-beginning)/tick), int((b.through-beginning)/tick)
			for p := range s.active {
				k := Key{PID: int64(p + 1)}
				u := b.used[k].Since(a.used[k])
				want := s.active[p][to] - s.active[p][from]
				if want == 0 && u.Joules == 0 {
					continue
				}
				all++
				bound := u.Error() / (b.total - a.total)
				if math.Abs(u.Joules-want) <= u.Error() {
					inside++
					if s.mps {
						mpsInside++
					}
				}
				errors = append(errors, math.Abs(u.Joules-want)/(b.total-a.total))
				if s.mps {
					mpsBounds = append(mpsBounds, bound)
				} else {
					bounds = append(bounds, bound)
				}
			}
		}
	}
	t.Logf("%.2f %% of %d inside; error: median %.2f %%, 95th percentile %.2f %% of the device", 100*float64(inside)/float64(all), all,
		100*percentile(errors, 0.5), 100*percentile(errors, 0.95))
	for name, list := range map[string][]float64{"time slicing": bounds, "MPS": mpsBounds} {
		t.Logf("bound, %s: median %.2f %%, 75th %.2f %%, 90th %.2f %%", name, 100*percentile(list, 0.5), 100*percentile(list, 0.75), 100*percentile(list, 0.9))
	}
	t.Logf("MPS: %.2f %% of %d inside", 100*float64(mpsInside)/float64(len(mpsBounds)), len(mpsBounds))
	assert.GreaterOrEqual(t, float64(inside)/float64(all), 0.95)
	assert.GreaterOrEqual(t, float64(mpsInside)/float64(len(mpsBounds)), 0.95)
	assert.LessOrEqual(t, percentile(bounds, 0.5), 0.1)
	if !testing.Short() {
		assert.LessOrEqual(t, percentile(mpsBounds, 0.5), 0.1)
	}
}

// TestProcessesAreInsideTheirBoundsAcrossAGap measures nothing for 11 to 40 s and compares the energy
// of each process from before that to afterwards.
func TestProcessesAreInsideTheirBoundsAcrossAGap(t *testing.T) {
	inside, all := 0, 0
	for seed := range 60 {
		r := rand.New(rand.NewPCG(uint64(seed), 45))
		s := newSchedule(r)
		from := 30*second + r.IntN(3)*10
		d, readings := s.measureExcept(from, from+(11+r.IntN(30))*second)
		sum := d.Idle(false).Joules + d.Idle(true).Joules + d.Unattributed().Joules
		d.Processes(func(_ Key, u Usage) { sum += u.Joules })
		assert.InEpsilon(t, d.Total(), sum, 1e-9, "seed %d", seed)
		i := slices.IndexFunc(readings, func(x reading) bool { return x.through > beginning+int64(from)*tick })
		a, b := readings[i-1], readings[i]
		for p := range s.active {
			k := Key{PID: int64(p + 1)}
			u := b.used[k].Since(a.used[k])
			all++
			truth := s.active[p][(b.through-beginning)/tick] - s.active[p][(a.through-beginning)/tick]
			if math.Abs(u.Joules-truth) <= u.Error() {
				inside++
			}
		}
	}
	t.Logf("%d of %d inside", inside, all)
	assert.GreaterOrEqual(t, float64(inside)/float64(all), 0.95)
}

func percentile(list []float64, p float64) float64 {
	slices.Sort(list)
	return list[int(p*float64(len(list)-1))]
}
