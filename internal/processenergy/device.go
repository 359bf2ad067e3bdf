// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package processenergy

import (
	"cmp"
	"math"
	"slices"
)

// Key identifies a process: process numbers are reused, so its start time is part of it.
type Key struct {
	PID   int64
	Start int64 // any number that differs after a reuse of PID; 0 if unknown
}

// Sample is the use of a device by one process since the last answer of the driver.
type Sample struct {
	Process Key
	Time    int64 // of the newest measurement that it includes, in Unix nanoseconds
	// Share is the share of the device's time in which kernels of the process were resident, from 0
	// to 1. Low and High bound it.
	Share, Low, High float64
	// Spread is a further error of Share, which is independent from window to window: measurements
	// that cover a part of the time only miss other work. A process that was not busy in them may
	// have one, too.
	Spread float64
}

// rounding is the error of a utilization that drivers report in whole percent.
const rounding = 0.005

// OfPercent returns the sample of a utilization in whole percent; false for values that no process
// can have, which drivers report now and then.
func OfPercent(process Key, time int64, percent uint32) (Sample, bool) {
	s := float64(percent) / 100
	return Sample{process, time, s, max(s-rounding, 0), s + rounding, 0}, process.PID > 0 && percent > 0 && percent <= 100
}

// OfInstance appends the samples of the processes of a MIG instance to dst. activity is the share
// of time in which the instance was active, size its share of the device. Drivers do not report how
// processes share an instance: several processes are taken to share it equally, and the bounds of
// each are none and all of it.
func OfInstance(dst []Sample, processes []Key, time int64, activity, size float64) []Sample {
	all := activity * size
	if all <= 0 || math.IsNaN(all) {
		return dst
	}
	n := float64(len(processes))
	for _, p := range processes {
		s := Sample{p, time, all / n, max(all/n-rounding, 0), all/n + rounding, 0}
		if n > 1 {
			s.Low, s.High = 0, all
		}
		dst = append(dst, s)
	}
	return dst
}

// Answer is one answer of the driver.
type Answer struct {
	Time     int64    // when it was read, in Unix nanoseconds
	Samples  []Sample // newer than [Device.Since]; older ones are ignored. None: no process was busy
	Contexts bool     // whether any process has a context on the device
	// Utilization is the device's own mean utilization since the last answer, from 0 to 1; negative
	// if it is unknown. What the processes do not explain of it is unattributed.
	Utilization float64
	// Whole states that the samples cover the time since the last answer, up to Time. The driver's
	// measurements of processes may be older, so that an answer without any says nothing of its
	// end.
	Whole bool
}

// Usage is what a process or the device has used. All values only grow.
type Usage struct {
	Joules  float64
	Seconds float64 // time in which kernels of the process were resident
	// bound is the sum of the bounds of the windows, edges the sum of the squares of errors that
	// are independent of each other.
	bound, edges float64
}

// Since returns what was used after an earlier reading.
func (u Usage) Since(earlier Usage) Usage {
	return Usage{u.Joules - earlier.Joules, u.Seconds - earlier.Seconds, u.bound - earlier.bound, u.edges - earlier.edges}
}

// Error returns the error of Joules, in joules: the true value is within it 95 % of the time.
func (u Usage) Error() float64 { return u.bound + math.Sqrt(max(u.edges, 0)) }

func (u *Usage) add(o Usage) {
	u.Joules += o.Joules
	u.Seconds += o.Seconds
	u.bound += o.bound
	u.edges += o.edges
}

// Share is the share of a process in a window.
type Share struct {
	Process Key
	// Share is its part of all processes' energy and of what no process explains, and so of the
	// device's if the idle energy is divided alike.
	Share, Error float64
	Resident     float64 // as Sample.Share
}

// Device divides the energy of one device. It is not safe for concurrent use.
type Device struct {
	// Shared is called with the shares of each window in which any process was busy; nil: nobody
	// reads them. The list is valid until it returns.
	Shared func(from, to int64, shares []Share)

	limit float64 // W, 0 if unknown
	most  int     // processes

	busy    []utilization // since the start of the next window
	knots   []knot        // changes of the counter from the start of the oldest open window on
	since   int64         // end of the newest window; 0 before the first answer
	through int64         // end of the newest window whose energy is divided
	open    []window
	period  int64 // of the driver's samples, in nanoseconds
	newest  int64 // time of the newest sample
	usual   int64 // length of the newest window

	contexts bool         // of the last answer
	changed  int64        // time of the answer in which contexts changed
	idle     [2]idleState // without and with a context
	lent     float64      // J of idle power that earlier windows did not have
	highest  float64      // W, the highest power so far
	// Means of the utilization of the device and of its processes.
	meanBusy, meanResident float64

	model    model
	shares   map[Key]float64 // residencies of the last window
	earlier  map[Key]float64 // scratch
	parts    []part          // scratch
	divided  []Share         // scratch
	total    float64
	rest     Usage // without beyond
	beyond   Usage
	overflow int64
	used     map[Key]*Usage
}

// knot is the counter at the time of a change.
type knot struct {
	t      int64
	joules float64
}

// utilization is the device's, up to a time.
type utilization struct {
	t     int64
	share float64
}

// window is a time whose energy is not known yet.
type window struct {
	from, to    int64
	samples     []Sample
	contexts    bool
	mixed       bool // contexts changed in it
	gap         bool // nothing is known of most of it
	utilization float64
}

// NewDevice returns a device with a power limit in watts, 0 if it is unknown. It keeps up to
// processes processes; energy of further ones is unattributed.
func NewDevice(limit float64, processes int) *Device {
	return &Device{
		limit: limit, most: processes, period: longestPeriod, used: map[Key]*Usage{},
		shares: map[Key]float64{}, earlier: map[Key]float64{},
	}
}

// Periods of the drivers' utilization samples, in nanoseconds: NVIDIA documents 1/6 s to 1 s.
const (
	shortestPeriod = 1e8
	longestPeriod  = 1e9
)

// maxOpen bounds the windows that wait for the counter; then the oldest two become one, without
// processes.
const maxOpen = 256

// A window longer than longestGap and gapFactor times the one before has a gap: the driver was not
// read, and its samples cover the end of the window only.
const longestGap, gapFactor = 10e9, 3

// A counter cannot increase faster than at mostAbove times the power limit, or usualLimit in watts
// if it is unknown.
const mostAbove, usualLimit = 10, 1000

// AddEnergy adds a reading of the energy counter, in joules since any origin. Readings are in order
// of time. A counter that falls, or increases as no device can, starts over, and the energy of the
// windows so far is lost with it.
func (d *Device) AddEnergy(t int64, joules float64) {
	if n := len(d.knots); n > 0 {
		last := d.knots[n-1]
		most := mostAbove * cmp.Or(d.limit, usualLimit) * (1 + float64(t-last.t)*1e-9)
		switch {
		case joules < last.joules || joules > last.joules+most || t < last.t:
			d.knots, d.open = d.knots[:0], d.open[:0]
			d.through = d.since
		case joules == last.joules || t == last.t:
			return // the counter has not been refreshed
		}
	}
	d.knots = append(d.knots, knot{t, joules})
	d.settle()
}

// Since returns the time after which the next answer must count: the time to pass to the driver, in
// Unix nanoseconds. It is 0 before the first answer.
func (d *Device) Since() int64 { return d.since }

// Through returns the time up to which energy is divided, in Unix nanoseconds.
func (d *Device) Through() int64 { return d.through }

// Add adds an answer of the driver. The first one starts the division.
func (d *Device) Add(a Answer) {
	if a.Contexts != d.contexts {
		d.contexts, d.changed = a.Contexts, a.Time
	}
	if d.since > a.Time+longestPeriod { // the clock was set back
		d.since, d.newest, d.changed, d.busy, d.open = 0, 0, min(d.changed, a.Time), d.busy[:0], d.open[:0]
	}
	if d.since == 0 {
		d.since, d.through = a.Time, a.Time
		for _, s := range a.Samples {
			if s.Time <= a.Time {
				d.newest = max(d.newest, s.Time)
			}
		}
		if d.newest > 0 {
			d.since, d.through = d.newest, d.newest
		}
		return
	}
	w := window{from: d.since}
	d.busy = append(d.busy, utilization{a.Time, a.Utilization})
	for _, s := range a.Samples {
		if s.Time > d.since && s.Time <= a.Time+longestPeriod && max(s.Share, s.Spread) > 0 && s.Share <= 1 {
			w.samples = append(w.samples, s)
			w.to = max(w.to, s.Time)
		}
	}
	if w.to == 0 {
		// No process was busy, or the driver has no new measurement yet.
		if w.to = a.Time; !a.Whole {
			w.to -= 2 * d.period
		}
		if w.to <= d.since {
			return
		}
	} else {
		if gap := w.to - d.newest; gap >= shortestPeriod {
			d.period = min(d.period, gap)
		}
		d.newest = w.to
	}
	for i := range w.samples {
		// It is unknown whether an average includes the time after its newest measurement.
		if s := &w.samples[i]; s.Time < w.to {
			high := s.Share
			s.Low *= float64(s.Time-w.from) / float64(w.to-w.from)
			s.Share = (s.Low + high) / 2
		}
	}
	w.contexts = d.contexts == (w.to >= d.changed)
	w.mixed = w.from < d.changed && w.to >= d.changed
	w.gap = d.usual > 0 && w.to-w.from > max(longestGap, gapFactor*d.usual)
	d.usual = w.to - w.from
	w.utilization = d.utilization(w.to)
	d.since = w.to
	if d.open = append(d.open, w); len(d.open) > maxOpen {
		d.open[1].from, d.open[1].samples = d.open[0].from, nil
		d.open = slices.Delete(d.open, 0, 1)
	}
	d.settle()
}

// utilization returns the mean utilization since the end of the last window and forgets it; -1 if
// it is unknown at any time.
func (d *Device) utilization(to int64) (mean float64) {
	from, mean, n := d.since, 0.0, 0
	for _, u := range d.busy {
		if u.t > to+d.period/2 && n > 0 {
			break
		}
		n++
		if u.share < 0 || mean < 0 {
			mean = -1
			continue
		}
		mean += u.share * float64(u.t-from)
		from = u.t
	}
	if mean > 0 {
		mean /= float64(from - d.since)
	}
	d.busy = slices.Delete(d.busy, 0, n)
	return mean
}

// settle divides the windows that the counter covers.
func (d *Device) settle() {
	for len(d.open) > 0 && len(d.knots) > 0 && d.knots[len(d.knots)-1].t >= d.open[0].to {
		w := d.open[0]
		d.open = slices.Delete(d.open, 0, 1)
		w.from = max(w.from, d.knots[0].t)
		if w.to > w.from {
			d.divide(&w, d.at(w.to)-d.at(w.from))
			for len(d.knots) > 1 && d.knots[1].t <= w.to {
				d.knots = slices.Delete(d.knots, 0, 1)
			}
		}
		d.through = w.to
	}
	if n := len(d.knots); n > 2 && len(d.open) == 0 {
		// Windows that will follow start at since.
		i, _ := slices.BinarySearchFunc(d.knots, d.since, func(k knot, t int64) int {
			if k.t <= t {
				return -1
			}
			return 1
		})
		d.knots = slices.Delete(d.knots, 0, max(i-1, 0))
	}
}

// at returns the counter at a time inside of the knots.
func (d *Device) at(t int64) float64 {
	i, found := slices.BinarySearchFunc(d.knots, t, func(k knot, t int64) int {
		switch {
		case k.t < t:
			return -1
		case k.t > t:
			return 1
		}
		return 0
	})
	if found || i == 0 {
		return d.knots[i].joules
	}
	a, b := d.knots[i-1], d.knots[i]
	return a.joules + (b.joules-a.joules)*float64(t-a.t)/float64(b.t-a.t)
}

// Total returns the energy that is divided so far, in joules: the sum of all parts.
func (d *Device) Total() float64 { return d.total }

// Idle returns the idle energy without or with a context on the device.
func (d *Device) Idle(context bool) Usage { return d.idle[index(context)].used }

// Unattributed returns the active energy of no process.
func (d *Device) Unattributed() Usage {
	u := d.rest
	u.add(d.beyond)
	return u
}

// Beyond returns the part of Unattributed for whose processes there was no room, and the number of
// their samples.
func (d *Device) Beyond() (Usage, int64) { return d.beyond, d.overflow }

// Processes calls f for each process and what it has used.
func (d *Device) Processes(f func(Key, Usage)) {
	for k, u := range d.used {
		f(k, *u)
	}
}

// Forget drops a process that has ended, after its last value was read.
func (d *Device) Forget(k Key) {
	delete(d.used, k)
	d.model.forget(k)
}

func index(context bool) int {
	if context {
		return 1
	}
	return 0
}
