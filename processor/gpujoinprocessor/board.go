// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"math"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/otelgpu/otelgpu/extension/gpusamplesextension"
	"github.com/otelgpu/otelgpu/processor/gpujoinprocessor/internal/attribution"
	"github.com/otelgpu/otelgpu/semconv"
)

// board is one physical GPU: its energy attribution and its events. All its MIG instances share it, because they share
// the counters.
type board struct {
	id        string // as gpusamplesextension.NormalizeID makes it
	dev       *attribution.Device
	meter     meter
	instances []string // MIG instances on which spans were seen
	energy    energyCounters
	warned    bool // that samples are too infrequent
}

func newBoard(view gpusamplesextension.DeviceView, shift time.Duration, l *loads, budget *attribution.Budget) *board {
	id := view.Device().ID
	return &board{
		id:     gpusamplesextension.NormalizeID(id),
		dev:    attribution.New(attribution.Limits{}, budget),
		meter:  meter{shift: int64(shift), loads: l, board: gpusamplesextension.NormalizeID(id)},
		energy: newEnergyCounters(id),
	}
}

// addInstance makes the settled time wait for the samples of a MIG instance too.
func (b *board) addInstance(id string) {
	if id = gpusamplesextension.NormalizeID(id); !slices.Contains(b.instances, id) {
		b.instances = append(b.instances, id)
	}
}

// watermark returns the time up to which samples of the physical GPU and of its live instances have arrived, on the
// clock of spans.
func (b *board) watermark(v gpusamplesextension.View) int64 {
	w := b.meter.dev.Newest()
	oldest := w
	b.instances = slices.DeleteFunc(b.instances, func(id string) bool {
		inst, ok := v.Lookup(id)
		if ok {
			// An instance without samples for 3 intervals delays nothing.
			if n := inst.Newest(); n < oldest && n >= w-3*int64(inst.Interval()) {
				oldest = n
			}
		}
		return !ok
	})
	return oldest - b.meter.shift
}

// meter reads a physical GPU's energy on the clock of spans. Without an energy counter the power is integrated.
type meter struct {
	dev   gpusamplesextension.DeviceView
	field gpusamplesextension.Field
	known bool
	shift int64
	times []int64
	loads *loads
	board string
	cell  cell // where the last span ended
}

// Levels implements attribution.Load.
func (m *meter) Levels(process uint64, from, to int64, dst []attribution.Level) []attribution.Level {
	return m.loads.levels(process, m.board, from, to, m.shift, dst)
}

// bind makes the meter read a device until the view is released. Energy and power of a MIG instance whose physical GPU
// is unknown are those of the whole GPU, which every instance repeats: they are not read.
func (m *meter) bind(dev gpusamplesextension.DeviceView) {
	m.dev, m.cell = dev, cell{}
	m.field = gpusamplesextension.Energy
	m.known = dev.Has(m.field)
	if !m.known {
		m.field = gpusamplesextension.Power
		m.known = dev.Has(m.field)
	}
	m.known = m.known && dev.Device().Parent == ""
}

// Knots implements attribution.Meter.
func (m *meter) Knots(from, to int64, dst []attribution.Knot) []attribution.Knot {
	k := attribution.Knot{Time: from}
	dst = append(dst, k)
	if !m.known {
		k.Time = to
		return append(dst, k)
	}
	m.times = m.dev.Times(m.field, from+m.shift, to+m.shift, m.times[:0])
	m.times = append(m.times, to+m.shift)
	for _, t := range m.times {
		if t -= m.shift; t <= k.Time || t > to {
			continue
		}
		value, coverage := m.dev.Integral(m.field, k.Time+m.shift, t+m.shift)
		next := k
		next.Value += value
		next.Bend = m.bend(k.Time, t, value)
		k = next
		k.Covered += int64(math.Round(coverage * float64(t-k.Time)))
		k.Time = t
		dst = append(dst, k)
	}
	return dst
}

// bend returns how much the energy of an interval is above a straight line: power that is not constant between two
// samples changes linearly, so its integral is a parabola. Without it the energy of a short span would depend on where
// the settled time has divided the interval.
func (m *meter) bend(from, to int64, value float64) float64 {
	if m.field != gpusamplesextension.Power || to-from < 2 {
		return 0
	}
	middle := from + (to-from)/2
	half, coverage := m.dev.Integral(m.field, from+m.shift, middle+m.shift)
	if coverage == 0 {
		return 0
	}
	s := float64(middle-from) / float64(to-from)
	return (half - value*s) / (s * (1 - s))
}

// Covered implements attribution.Meter.
func (m *meter) Covered(from, to int64) int64 {
	if !m.known {
		return 0
	}
	_, coverage := m.dev.Mean(m.field, from+m.shift, to+m.shift)
	return int64(math.Round(coverage * float64(to-from)))
}

// Outcomes of a board's energy; the value of `state` in the processor's own metrics.
const (
	attributed = iota
	unattributed
	lateTaken
	unseen
	uncovered
	energyStates
)

// energyCounters report a board's energy as counters.
type energyCounters struct {
	states [energyStates]metric.MeasurementOption

	reported attribution.Totals
	begun    bool
	last     float64 // the device's counter at the last report
	counted  float64 // its increase since the first
	dealt    float64 // what the sweep had attributed at the first
	lost     float64 // reported as uncovered
}

func newEnergyCounters(id string) (l energyCounters) {
	for i, name := range [energyStates]string{"attributed", "unattributed", "late", "unseen", "uncovered"} {
		l.states[i] = metric.WithAttributeSet(attribute.NewSet(attribute.String(string(semconv.HWIDKey), id),
			attribute.String("state", name)))
	}
	return l
}

// take returns the increases since the last call.
func (l *energyCounters) take(b *board) (more [energyStates]float64, orphans int64) {
	t := b.dev.Totals()
	more[attributed] = max(0, t.Attributed-l.reported.Attributed)
	more[unattributed] = max(0, t.Unattributed-l.reported.Unattributed)
	more[lateTaken] = max(0, t.Late-l.reported.Late)
	more[unseen] = max(0, t.Unseen-l.reported.Unseen)
	orphans = t.Orphans - l.reported.Orphans
	l.reported = t

	settled, ok := b.dev.Settled()
	if !ok || !b.meter.known || b.meter.field != gpusamplesextension.Energy {
		return more, orphans
	}
	oldest, newest := b.meter.dev.Range(gpusamplesextension.Energy)
	value, _ := b.meter.dev.Value(gpusamplesextension.Energy, min(max(settled+b.meter.shift, oldest), newest))
	dealt := t.Attributed + t.Unattributed + t.Unseen
	if !l.begun {
		l.begun, l.dealt = true, dealt
	} else {
		l.counted += max(0, value-l.last)
	}
	l.last = value
	// A loss below a millionth of the whole is rounding.
	if lost := l.counted - (dealt - l.dealt) - l.lost; lost > 1e-6*l.counted {
		more[uncovered] = lost
		l.lost += lost
	}
	return more, orphans
}
