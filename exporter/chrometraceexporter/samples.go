// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chrometraceexporter

import (
	"cmp"
	"slices"
	"sync"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/gpuquantity"
	"github.com/otelgpu/otelgpu/internal/spanfiles/chrometrace"
)

// sampled are the quantities of the catalogue that are drawn.
var sampled = slices.DeleteFunc(gpuquantity.All(), func(q gpuquantity.Quantity) bool { return !q.Info().Chart })

// rings draws counters from the rings of samples: each sample over the time since the previous one.
type rings struct {
	samples devicesamples.Reader
	wanted  map[string]bool // names of gauges

	mu     sync.Mutex
	drawn  map[ring]int64 // time up to which a device's field is drawn
	latest map[string]int64
	times  []int64
}

type ring struct {
	device string
	field  gpuquantity.Quantity
}

// maxDevices bounds the devices whose samples are drawn.
const maxDevices = 1024

// spans records when devices were busy, and returns the samples of those intervals so far.
func (r *rings) spans(events []chrometrace.Event, counters []chrometrace.Counter) []chrometrace.Counter {
	r.mu.Lock()
	defer r.mu.Unlock()
	first := map[string]int64{}
	for i := range events {
		e := &events[i]
		if e.Device == "" || e.Start <= 0 {
			continue
		}
		if at, ok := first[e.Device]; !ok || e.Start < at {
			first[e.Device] = e.Start
		}
		if _, known := r.latest[e.Device]; known || len(r.latest) < maxDevices {
			r.latest[e.Device] = max(r.latest[e.Device], e.End)
		}
	}
	return r.until(first, counters)
}

// rest returns the samples that arrived after the last work of each device but were taken before
// its end.
func (r *rings) rest() []chrometrace.Counter {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.until(r.latest, nil)
}

// until appends the samples of the devices, up to the first one after the latest work.
func (r *rings) until(from map[string]int64, counters []chrometrace.Counter) []chrometrace.Counter {
	v := r.samples.Acquire()
	defer v.Release()
	for id, start := range from {
		x, ok := v.Lookup(id)
		if !ok {
			continue
		}
		d, interval := x.Device(), int64(x.Interval())
		to := min(r.latest[id]+interval, x.Newest())
		for _, q := range sampled {
			registered, ok := q.Info().Metric.Registered()
			if !ok || !r.wanted[registered.Name] {
				continue
			}
			k := ring{d.ID, q}
			last, known := r.drawn[k]
			if !known {
				last = start - interval
			}
			r.times = x.Times(q, last+1, to, r.times[:0])
			for _, t := range r.times {
				begin := last
				if !known || t-last > 3*interval { // the time between is unknown
					begin = t - interval
				}
				known, last = true, t
				value, ok := x.Value(q, t)
				if q.Kind() == devicesamples.KindInterval {
					var covered float64
					value, covered = x.Mean(q, begin, t)
					ok = covered > 0
				}
				if ok {
					counters = append(counters, chrometrace.Counter{
						Device: d.ID, Label: cmp.Or(d.Name, d.ID), Name: registered.Name, Unit: unit(registered.Unit),
						Start: begin, Time: t, Value: value,
					})
				}
			}
			if known {
				r.drawn[k] = last
			}
		}
	}
	return counters
}
