// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"cmp"
	"math"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/instrument"
	"github.com/otelgpu/otelgpu/processor/gpujoinprocessor/internal/attribution"
	"github.com/otelgpu/otelgpu/semconv"
)

// board is one physical GPU: its energy attribution and its events. All its MIG instances share it,
// because they share the counters.
type board struct {
	id        string // as devicesamples.NormalizeID makes it
	dev       *attribution.Device
	meter     meter
	instances []string // MIG instances on which spans were seen
	energy    energyCounters
	checks    checks
	warned    bool // that samples are too infrequent
}

func newBoard(view devicesamples.DeviceView, cfg *Config, l *loads, budget *attribution.Budget) *board {
	id := view.Device().ID
	return &board{
		id:  devicesamples.NormalizeID(id),
		dev: attribution.New(attribution.Limits{}, budget),
		meter: meter{
			shift: int64(cfg.Shift), loads: l, board: devicesamples.NormalizeID(id),
			settle: cfg.Settle, energy: newEnergy(view.Device(), cfg.Settle),
		},
		energy: newEnergyCounters(id),
	}
}

// addInstance makes the settled time wait for the samples of a MIG instance too.
func (b *board) addInstance(id string) {
	if id = devicesamples.NormalizeID(id); !slices.Contains(b.instances, id) {
		b.instances = append(b.instances, id)
	}
}

// watermark returns the time up to which samples of the physical GPU and of its live instances have
// arrived, on the clock of spans.
func (b *board) watermark(v devicesamples.View) int64 {
	w := b.meter.dev.Newest()
	oldest := w
	if ready, ok := b.meter.energy.Ready(); ok {
		oldest = min(oldest, ready)
	}
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

// meter reads a physical GPU's energy on the clock of spans.
type meter struct {
	dev    devicesamples.DeviceView
	energy *instrument.Energy
	settle time.Duration
	shift  int64
	loads  *loads
	board  string

	sharing sharing

	read          int64 // when the counter was read last
	change, power int64 // times of the newest change of the counter, and value of power, that energy has
	changes       []instrument.Change
	values        []devicesamples.TimedValue
}

// Levels implements attribution.Meter.
func (m *meter) Levels(process uint64, from, to int64, dst []attribution.Level) []attribution.Level {
	return m.loads.levels(process, m.board, from, to, m.shift, dst)
}

// newEnergy returns the energy curve of a device.
func newEnergy(d *devicesamples.Device, settle time.Duration) *instrument.Energy {
	c := instrument.Config{Settle: settle, Interval: d.Interval, Assumed: d.Refresh, Window: d.PowerWindow}
	switch d.Source {
	case semconv.GPUMeasurementSourceDcgm, semconv.GPUMeasurementSourceNvml, semconv.GPUMeasurementSourceGpm,
		semconv.GPUMeasurementSourceReplay:
		c.Assumed, c.Window = cmp.Or(c.Assumed, instrument.DefaultRefresh), cmp.Or(c.Window, instrument.InstantWindow)
	}
	return instrument.NewEnergy(c)
}

// bind makes the meter read a device until the view is released. settled is on the clock of spans,
// and known if anything is settled. Energy and power of a MIG instance whose physical GPU is
// unknown are not read: every instance repeats the values of the whole GPU.
func (m *meter) bind(dev devicesamples.DeviceView, settled int64, known bool) {
	if m.dev = dev; dev.Device().Parent != "" {
		return
	}
	read := dev.LastRead(devicesamples.Energy)
	_, power := dev.Range(devicesamples.Power)
	if read == m.read && power == m.power {
		return
	}
	if read < m.read || power < m.power { // the clock of samples was set back
		m.energy, m.read, m.change, m.power = newEnergy(dev.Device(), m.settle), 0, 0, 0
	}
	if known {
		m.energy.Settle(settled + m.shift)
	}
	m.values = dev.Values(devicesamples.Power, m.power, m.values[:0])
	m.changes = dev.Changes(devicesamples.Energy, m.change, m.changes[:0])
	// In the order of time, so that the curve does not depend on how many readings arrived
	// together, and of one time the change of the counter first, which shows that power is current.
	i := 0
	for _, c := range m.changes {
		for ; i < len(m.values) && m.values[i].Time < c.Time; i++ {
			m.addPower(m.values[i], min(m.values[i].Time, read))
		}
		m.energy.AddChange(c)
		m.energy.Advance(c.Time)
		m.change = c.Time
	}
	for ; i < len(m.values); i++ {
		m.addPower(m.values[i], min(m.values[i].Time, read))
	}
	m.read, m.power = read, power
	m.energy.Advance(read)
}

func (m *meter) addPower(v devicesamples.TimedValue, read int64) {
	m.energy.AddPower(v.Time, v.Value)
	m.energy.Advance(read)
}

// bind makes the board read its device until the view is released.
func (b *board) bind(dev devicesamples.DeviceView) {
	settled, ok := b.dev.Settled()
	b.meter.bind(dev, settled, ok)
}

// Knots implements attribution.Meter.
func (m *meter) Knots(from, to int64, dst []attribution.Knot) []attribution.Knot {
	first := len(dst)
	dst = m.energy.Knots(from+m.shift, to+m.shift, dst)
	for i := range dst[first:] {
		dst[first+i].Time -= m.shift
	}
	return dst
}

// Outcomes of a board's energy; the value of `state` in the processor's own metrics.
const (
	attributed = iota
	unattributed
	lateTaken
	unseen
	uncovered
	rest
	others
	energyStates
)

// energyCounters report a board's energy as counters.
type energyCounters struct {
	states [energyStates]metric.MeasurementOption
	device metric.MeasurementOption

	reported [energyStates]float64
	orphans  int64   // reported
	lost     float64 // reported as uncovered
	withheld float64 // own parts of spans without energy, since the last report
}

func newEnergyCounters(id string) (l energyCounters) {
	l.device = metric.WithAttributeSet(attribute.NewSet(attribute.String(string(semconv.HWIDKey), id)))
	names := [energyStates]string{"attributed", "unattributed", "late", "unseen", "uncovered", "rest", "others"}
	for i, name := range names {
		l.states[i] = metric.WithAttributeSet(attribute.NewSet(attribute.String(string(semconv.HWIDKey), id),
			attribute.String("state", name)))
	}
	return l
}

// take returns the increases since the last call.
func (l *energyCounters) take(b *board) (more [energyStates]float64, orphans int64) {
	t := b.dev.Totals()
	now := [energyStates]float64{
		attributed: t.Attributed, unattributed: t.Unattributed, lateTaken: t.Late, unseen: t.Unseen, rest: t.Rest,
		others: t.Others,
	}
	for i := range now { // inside of a window of shares a total can fall, which later increases repay
		more[i] = max(0, now[i]-l.reported[i])
		l.reported[i] += more[i]
	}
	orphans = t.Orphans - l.orphans
	l.orphans = t.Orphans

	// A debt of energy that was attributed by power before the counter counted it is paid first. A
	// loss below a millionth of the whole is rounding.
	if lost := b.meter.energy.Balance() - l.lost; lost > 1e-6*b.meter.energy.Counted() {
		more[uncovered] = lost
		l.lost += lost
	}

	return more, orphans
}

// leastError is the share of a span's energy from which its error is stated.
const leastError = 0.05

// wholeShare is the share of a device's energy from which a span counts as alone on it.
const wholeShare = 0.97

// insideShare is the part of the error inside of a span that its changes of share move, as
// simulated spans of three processes show.
const insideShare = 0.5

// boundOf returns by how many joules the energy that a span has of a board in [start, end] can
// differ from the truth. Infinity: no bound holds.
//
// A span that shares the device has the share f of the error at its ends. Where its share changes
// inside, it has a part of the error there, too. It changes the more, the less it is of the whole,
// and by about itself.
func (b *board) boundOf(start, end int64, energy float64) float64 {
	e := b.meter.energy
	whole := e.Energy(start, end)
	bound := e.Bound(start, end, whole)
	if energy >= wholeShare*whole || math.IsInf(bound, 1) {
		return bound
	}
	f := max(0, energy) / whole
	return f * math.Hypot(bound, insideShare*math.Sqrt(1-f)*e.Inside(start, end))
}
