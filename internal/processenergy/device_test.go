// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package processenergy

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// keep is the number of processes that a device keeps.
const keep = 64

// script is a device of 100 W idle with a context and 40 W without, whose counter and answers are
// given second by second.
type script struct {
	d      *Device
	t      int64
	joules float64
}

func newScript() *script {
	s := &script{d: NewDevice(700, keep), t: beginning}
	s.d.AddEnergy(s.t, 0)
	s.d.Add(Answer{Time: s.t})
	return s
}

// run continues for some seconds with a power and the utilization of each process.
func (s *script) run(seconds int, watts float64, contexts bool, utilization float64, percents map[int64]uint32) *script {
	for range seconds {
		s.t += 1e9
		s.joules += watts
		s.d.AddPower(watts, contexts)
		s.d.AddEnergy(s.t, s.joules)
		a := Answer{Time: s.t, Contexts: contexts, Utilization: utilization}
		for pid, v := range percents {
			// The driver's average includes the idle time since the newest window.
			v = uint32(float64(v)*1e9/float64(s.t-s.d.Since()) + 0.5)
			if sample, ok := OfPercent(Key{PID: pid}, s.t, v); ok {
				a.Samples = append(a.Samples, sample)
			}
		}
		s.d.Add(a)
	}
	return s
}

func (s *script) joulesOf(pid int64) float64 {
	var of float64
	s.d.Processes(func(k Key, u Usage) {
		if k.PID == pid {
			of = u.Joules
		}
	})
	return of
}

func TestEnergyIsDividedByEvidence(t *testing.T) {
	idle := func() *script { return newScript().run(10, 40, false, 0, nil).run(10, 100, true, 0, nil) }
	alone, both := map[int64]uint32{1: 100}, map[int64]uint32{1: 75, 2: 25}
	for name, c := range map[string]struct {
		script                   *script
		idle, context            float64 // J without and with a context
		one, two, rest, resident float64
	}{
		"idle apart without and with a context": {idle(), 400, 800, 0, 0, 0, 0}, // 2 s are not over yet
		"alone":                                 {idle().run(10, 400, true, 1, alone), 400, 2000, 3000, 0, 0, 10},
		"no process explains the work":          {idle().run(10, 400, true, 1, nil), 400, 1800, 0, 0, 2400, 0},
		"half of the work is unexplained":       {idle().run(10, 400, true, 1, map[int64]uint32{1: 50}), 400, 2000, 1500, 0, 1500, 5},
		"unknown utilization":                   {idle().run(10, 400, true, -1, map[int64]uint32{1: 50}), 400, 2000, 3000, 0, 0, 5},
		"two by their shares":                   {idle().run(6, 400, true, 1, both), 400, 1600, 1350, 450, 0, 4.5},
		"values that no process has": {
			idle().run(10, 400, true, 1, map[int64]uint32{1: 100, 2: 401, 0: 50, -1: 5}), 400, 2000, 3000, 0, 0, 10,
		},
		"a process that ended": {idle().run(5, 400, true, 1, alone).run(10, 40, false, 0, nil), 720, 1500, 1500, 0, 0, 5},
		"a glitch of the idle power": {
			idle().run(3, 60, true, 0, nil).run(80, 100, true, 0, nil), 400, 1000 + 180 + 29*60 + (80-2-29)*100, 0, 0, 29 * 40, 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			d, resident := c.script.d, 0.0
			d.Processes(func(k Key, u Usage) {
				if k.PID == 1 {
					resident = u.Seconds
				}
			})
			assert.InDelta(t, c.idle, d.Idle(false).Joules, 1e-6)
			assert.InDelta(t, c.context, d.Idle(true).Joules, 1e-6)
			assert.InDelta(t, c.one, c.script.joulesOf(1), 10)
			assert.InDelta(t, c.two, c.script.joulesOf(2), 4)
			assert.InDelta(t, c.rest, d.Unattributed().Joules, 10)
			assert.InDelta(t, c.resident, resident, 0.02)
			assert.InDelta(t, d.Total(), c.idle+c.context+c.one+c.two+c.rest, 1e-6)
		})
	}
}

func TestSamplesOfAnEarlierAnswerAreIgnored(t *testing.T) {
	s := newScript().run(10, 100, true, 0, nil).run(5, 400, true, 1, map[int64]uint32{1: 100})
	stale, _ := OfPercent(Key{PID: 2}, s.t, 100)
	fresh, _ := OfPercent(Key{PID: 1}, s.t+1e9, 100)
	s.d.Add(Answer{Time: s.t + 1e9, Samples: []Sample{stale, fresh}, Contexts: true, Utilization: 1})
	s.d.AddEnergy(s.t+1e9, s.joules+400)
	assert.Zero(t, s.joulesOf(2))
	assert.InDelta(t, 6*300, s.joulesOf(1), 1e-6)
}

func TestACounterThatStartsOverLosesTheOpenWindowOnly(t *testing.T) {
	s := newScript().run(10, 100, true, 0, nil).run(5, 400, true, 1, map[int64]uint32{1: 100})
	before := s.d.Total()
	s.joules = -300 // so that the next reading is 100 J
	s.run(1, 400, true, 1, map[int64]uint32{1: 100})
	assert.Equal(t, before, s.d.Total())
	s.run(2, 400, true, 1, map[int64]uint32{1: 100})
	assert.InDelta(t, before+800, s.d.Total(), 1e-6)
}

// A single reading that is no energy: the counter has counted for long, and shows 0 or a multiple.
func TestAWrongReadingOfTheCounterIsNoEnergy(t *testing.T) {
	for _, wrong := range []float64{0, 1e9} {
		all := map[int64]uint32{1: 100}
		s := newScript()
		s.joules = 1e8
		s.run(10, 100, true, 0, nil).run(5, 400, true, 1, all)
		before, own := s.d.Total(), s.joulesOf(1)
		s.d.AddEnergy(s.t+5e8, wrong)
		s.run(5, 400, true, 1, all)
		assert.InDelta(t, before+4*400, s.d.Total(), 1e-6, "without the window of the reading of %g J", wrong)
		assert.InDelta(t, own+4*300, s.joulesOf(1), 1e-6)
	}
}

// While nothing was read, the first process may have gone on, or the second one may have begun.
func TestAnyProcessMayHaveTheEnergyOfAGap(t *testing.T) {
	first, second := map[int64]uint32{1: 100}, map[int64]uint32{2: 100}
	s := newScript().run(10, 100, true, 0, nil).run(5, 400, true, 1, first)
	usage := func() (all [2]Usage) {
		s.d.Processes(func(k Key, u Usage) { all[k.PID-1] = u })
		return all
	}
	before := usage()
	s.t += 60e9
	s.joules += 60 * 400
	s.d.AddEnergy(s.t, s.joules)
	sample, _ := OfPercent(Key{PID: 2}, s.t, 100)
	s.d.Add(Answer{Time: s.t, Samples: []Sample{sample}, Contexts: true, Utilization: 1})
	for i, u := range usage() {
		u = u.Since(before[i])
		assert.GreaterOrEqual(t, u.Error(), 60*300-u.Joules)
		assert.GreaterOrEqual(t, u.Error(), u.Joules)
	}
	before = usage()
	s.run(2, 400, true, 1, second)
	after := usage()
	assert.Less(t, after[1].Since(before[1]).Error(), 100., "afterwards it is known again")
	assert.Zero(t, after[0].Since(before[0]).Error())
}

func TestAClockThatIsSetBackStartsOver(t *testing.T) {
	s := newScript().run(10, 100, true, 0, nil).run(5, 400, true, 1, map[int64]uint32{1: 100})
	before := s.joulesOf(1)
	s.t -= 3600e9
	s.run(4, 400, true, 1, map[int64]uint32{1: 100})
	assert.InDelta(t, before+3*300, s.joulesOf(1), 1e-6)
}

func TestProcessesOfAnInstanceShareIt(t *testing.T) {
	one, two, three := Key{PID: 1}, Key{PID: 2}, Key{PID: 3}
	s := newScript().run(10, 100, true, 0, nil)
	for range 5 {
		samples := OfInstance(nil, []Key{one, two}, s.t+1e9, 0.8, 0.5)
		samples = OfInstance(samples, []Key{three}, s.t+1e9, 0.4, 0.25)
		s.t, s.joules = s.t+1e9, s.joules+350
		s.d.AddEnergy(s.t, s.joules)
		s.d.Add(Answer{Time: s.t, Samples: samples, Contexts: true, Utilization: -1})
	}
	for pid, want := range map[int64]float64{1: 500, 2: 500, 3: 250} {
		assert.InDelta(t, want, s.joulesOf(pid), 1e-6)
	}
	s.d.Processes(func(k Key, u Usage) {
		if k != three {
			assert.Greater(t, u.Error(), 490.0, "how two processes share an instance is unknown")
		}
	})
	assert.Empty(t, OfInstance(nil, []Key{one}, 0, 0, 1))
}

func TestEnergyOfProcessesWithoutRoomIsUnattributed(t *testing.T) {
	s := newScript().run(10, 100, true, 0, nil)
	many := map[int64]uint32{}
	for pid := range int64(keep) {
		many[pid+1] = 3
	}
	s.run(1, 400, true, -1, many)
	s.run(1, 400, true, -1, map[int64]uint32{keep + 1: 100})
	assert.InDelta(t, 300, s.d.Unattributed().Joules, 1e-6)
	beyond, samples := s.d.Beyond()
	assert.InDelta(t, 300, beyond.Joules, 1e-6)
	assert.Equal(t, int64(1), samples)
	s.d.Forget(Key{PID: 1})
	s.run(1, 400, true, -1, map[int64]uint32{keep + 1: 100})
	assert.InDelta(t, 300, s.joulesOf(keep+1), 1e-6)
}

func TestWindowsThatWaitForTheCounterAreBounded(t *testing.T) {
	s := newScript().run(10, 100, true, 0, nil)
	for range 3 * maxOpen {
		s.t += 1e9
		sample, _ := OfPercent(Key{PID: 1}, s.t, 100)
		s.d.Add(Answer{Time: s.t, Samples: []Sample{sample}, Contexts: true, Utilization: 1})
	}
	assert.Len(t, s.d.open, maxOpen)
	s.joules += 400 * 3 * maxOpen
	s.d.AddEnergy(s.t, s.joules)
	assert.Empty(t, s.d.open)
	assert.InDelta(t, s.joules, s.d.Total(), 1e-6)
	assert.LessOrEqual(t, len(s.d.knots), 3)
}

func BenchmarkAnswer(b *testing.B) {
	s, percents := newScript(), map[int64]uint32{}
	for pid := range int64(25) {
		percents[pid+1] = 4
	}
	b.ReportAllocs()
	for b.Loop() {
		s.run(1, 400, true, 1, percents)
	}
}

// TestAnInstanceIsResidentForItsOwnTime runs an instance for a second after five idle ones. The
// answers cover the time between them, so that the idle time before is not its own.
func TestAnInstanceIsResidentForItsOwnTime(t *testing.T) {
	d := NewDevice(700, keep)
	joules := 0.0
	for second := range int64(9) {
		now, watts := second*1e9+1e15, 100.0
		a := Answer{Time: now, Contexts: true, Utilization: -1, Whole: true}
		if second == 6 {
			watts = 400
			a.Samples = OfInstance(nil, []Key{{PID: 1}}, now, 1, 0.5)
		}
		joules += watts
		d.AddEnergy(now, joules)
		d.Add(a)
	}
	used := map[Key]Usage{}
	d.Processes(func(k Key, u Usage) { used[k] = u })
	assert.InDelta(t, 0.5, used[Key{PID: 1}].Seconds, 1e-9)
	assert.InDelta(t, 300, used[Key{PID: 1}].Joules, 1e-9)
	assert.InDelta(t, 800, d.Idle(true).Joules, 1e-9)
	assert.Equal(t, int64(8e9+1e15), d.Through())
}

// Two processes run between the measurements of a scrape: what no measurement shows is theirs, with
// an error of all of it, and not idle power.
func TestWorkThatMeasurementsMissedIsOfTheProcessesThatVary(t *testing.T) {
	a, b := Key{PID: 1}, Key{PID: 2}
	for name, c := range map[string]struct {
		samples     []Sample
		utilization float64
		want, err   [2]float64 // J of 3,000, least ones
		rest        float64
	}{
		"neither was seen":            {[]Sample{{Process: a, Spread: 0.3}, {Process: b, Spread: 0.1}}, 0, [2]float64{2250, 750}, [2]float64{2250, 2250}, 0},
		"one was seen":                {[]Sample{{Process: a, Share: 0.5, Low: 0.5, High: 0.5, Spread: 0.1}, {Process: b, Spread: 0.1}}, -1, [2]float64{3000, 0}, [2]float64{0, 600}, 0},
		"neither varies":              {nil, 0, [2]float64{}, [2]float64{}, 3000},
		"the device shows other work": {[]Sample{{Process: a, Spread: 0.3}, {Process: b, Spread: 0.1}}, 0.3, [2]float64{}, [2]float64{}, 3000},
	} {
		s := newScript()
		s.run(5, 100, true, 0, nil)
		before := s.d.Unattributed().Joules
		s.t += 30e9
		s.joules += 30 * 200
		s.d.AddEnergy(s.t, s.joules)
		for i := range c.samples {
			c.samples[i].Time = s.t
		}
		s.d.Add(Answer{Time: s.t, Samples: c.samples, Contexts: true, Utilization: c.utilization, Whole: true})
		assert.Equal(t, s.t, s.d.Since(), name)
		for i, k := range []Key{a, b} {
			assert.InDelta(t, c.want[i], s.joulesOf(k.PID), 1, "%s %d", name, i)
			if c.err[i] > 0 {
				assert.GreaterOrEqual(t, s.d.used[k].Error(), 0.99*c.err[i], "%s %d", name, i)
			}
		}
		assert.InDelta(t, c.rest, s.d.Unattributed().Joules-before, 1, name)
		idle, _ := s.d.idlePower(true, 200)
		assert.InDelta(t, 100, idle, 1, name)
	}
}
