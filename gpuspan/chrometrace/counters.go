// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chrometrace

import "math"

// Bounds of what is remembered; further devices and counters are drawn from the time of their points on.
const (
	maxDevices  = 1024
	maxCounters = 256 // of a device
)

// device is where the counters of a device stand: a process of its own, which viewers show once, whichever processes
// work on the device.
type device struct {
	process *process
	last    map[string]int64 // time of a counter's latest point
}

// WriteCounters adds counter points, each counter's in the order of time. Viewers draw a value from its point on; a
// point is of the interval that ends at its time, so it is drawn from where that begins.
func (w *Writer) WriteCounters(points []Counter) error {
	if w.closed {
		return ErrClosed
	}
	before := w.stats
	for i := range points {
		if d := w.device(&points[i]); d != nil && points[i].valid() {
			w.counter(&points[i], d)
		}
	}
	return w.flush(before)
}

func (c *Counter) valid() bool { return c.Time > 0 && !math.IsNaN(c.Value) && !math.IsInf(c.Value, 0) }

func (w *Writer) device(c *Counter) *device {
	d, ok := w.devices[c.Device]
	if !ok && len(w.devices) < maxDevices && c.valid() {
		p := w.newProcess(0)
		p.label, p.sort = "device "+c.Label, 1<<20+int64(len(w.devices))
		if c.Device != c.Label {
			p.label += " " + c.Device
		}
		d = &device{process: p, last: map[string]int64{}}
		w.devices[c.Device] = d
	}
	return d
}

func (w *Writer) counter(c *Counter, d *device) {
	from := c.Time
	switch last, known := d.last[c.Name]; {
	case c.Start > 0 && c.Start < c.Time:
		from = c.Start
	case known && last < c.Time:
		from = last
	}
	w.begin(from)
	if from = max(from, w.base); !w.holds(c.Time) || from > c.Time {
		return
	}
	if _, known := d.last[c.Name]; known || len(d.last) < maxCounters {
		d.last[c.Name] = c.Time
	}
	w.point(d, "", c.Name, c.Unit, from, c.Value)
	w.stats.Counters++
}

// point draws the value of a counter from a moment on.
func (w *Writer) point(d *device, category, name, unit string, at int64, value float64) {
	w.open("C")
	w.optional("cat", category)
	w.str("name", name)
	w.num("pid", d.process.pid)
	w.micros("ts", at-w.base)
	w.buf = append(appendString(append(w.buf, `,"args":{`...), unit), ':')
	w.buf = append(appendFloat(w.buf, value), "}}"...)
}
