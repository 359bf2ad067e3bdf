// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chrometrace

import (
	"math"
	"slices"
)

const (
	maxPoints  = 1 << 14 // points of one device that are kept for processes that come later
	maxDevices = 1024
)

// device is what is known of a device: the processes under whose spans its counters stand, and its recent points, for
// samples come before the spans that they belong to.
type device struct {
	processes []*process
	recent    []Counter
}

// WriteCounters adds counter points. Points of a device without spans wait for a process that has some, the newest
// 16,384 of them.
func (w *Writer) WriteCounters(points []Counter) error {
	if w.closed {
		return ErrClosed
	}
	before := w.stats
	for i := range points {
		if d := w.device(points[i].Device); d != nil && points[i].valid() {
			for _, p := range d.processes {
				w.counter(&points[i], p)
			}
		}
	}
	if err := w.flush(before); err != nil {
		return err
	}
	for i := range points {
		d := w.device(points[i].Device)
		if d == nil || !points[i].valid() {
			continue
		}
		if len(d.recent) == maxPoints {
			d.recent = append(d.recent[:0], d.recent[maxPoints/2:]...)
		}
		d.recent = append(d.recent, points[i])
	}
	return nil
}

func (c *Counter) valid() bool { return c.Time > 0 && !math.IsNaN(c.Value) && !math.IsInf(c.Value, 0) }

func (w *Writer) device(id string) *device {
	d, ok := w.devices[id]
	if !ok && len(w.devices) < maxDevices {
		d = &device{}
		w.devices[id] = d
		w.deviceList = append(w.deviceList, d)
	}
	return d
}

// join puts the counters of a device under the spans of a process.
func (w *Writer) join(id string, p *process) {
	d := w.device(id)
	if d == nil || slices.Contains(d.processes, p) {
		return
	}
	d.processes = append(d.processes, p)
	w.joined = append(w.joined, d)
	for i := range d.recent {
		w.counter(&d.recent[i], p)
	}
}

// part takes back what the batch that could not be written has joined.
func (w *Writer) part() {
	for _, d := range w.joined {
		d.processes = d.processes[:len(d.processes)-1]
	}
}

// orphans gives devices without spans a process of their own.
func (w *Writer) orphans() {
	n := int64(0)
	for _, d := range w.deviceList {
		if len(d.processes) > 0 || len(d.recent) == 0 {
			continue
		}
		c := d.recent[0]
		p := w.newProcess(0)
		p.label, p.sort = "device "+c.Label, 1<<20+n
		if c.Device != c.Label {
			p.label += " " + c.Device
		}
		n++
		d.processes = append(d.processes, p)
		for i := range d.recent {
			w.counter(&d.recent[i], p)
		}
	}
}

// unorphan takes back the processes that orphans made: those from the number known on.
func (w *Writer) unorphan(known int) {
	for _, p := range w.order[known:] {
		delete(w.pids, p.pid)
		w.freePID = min(w.freePID, p.pid)
		for _, d := range w.deviceList {
			d.processes = slices.DeleteFunc(d.processes, func(of *process) bool { return of == p })
		}
	}
	w.order = w.order[:known]
}

// points reports whether counters wait for the end.
func (w *Writer) points() bool {
	for _, d := range w.deviceList {
		if len(d.recent) > 0 {
			return true
		}
	}
	return false
}

func (w *Writer) counter(c *Counter, p *process) {
	w.begin(c.Time)
	if !w.holds(c.Time) {
		return
	}
	w.open("C")
	w.str("name", c.Label+" "+c.Name)
	w.num("pid", p.pid)
	w.micros("ts", c.Time-w.base)
	w.buf = append(appendString(append(w.buf, `,"args":{`...), c.Unit), ':')
	w.buf = append(appendFloat(w.buf, c.Value), "}}"...)
	w.stats.Counters++
}
