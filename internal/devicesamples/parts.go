// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package devicesamples

import (
	"iter"
	"slices"
)

// Part identifies a workload that has a part of a device. Empty strings and 0 mean unknown.
type Part struct {
	Namespace, Pod, PodUID, Container string // of a pod that shares the device
	Replica                           string // number of the device plugin's replica, as its exporter names it
	ContainerID                       string // of a process
	PID                               int64  // of a process, as the host counts it
}

// PartWriter is implemented by the DeviceWriters of a Store. WriteParts appends the part's own
// values, such as its utilization of the device and its device memory, under the rules of
// DeviceWriter.Write. They never change the device's own values. A device keeps the parts that were
// written last, at most MaxParts.
type PartWriter interface {
	WriteParts(part Part, samples []Sample)
}

// MaxParts is the maximum number of parts of one device in memory.
const MaxParts = 128

// part is what a device keeps of one workload.
type part struct {
	Part
	series [NumFields]*series
	newest int64
}

func (w *deviceWriter) WriteParts(of Part, samples []Sample) {
	st := w.st
	now := st.now()
	st.mu.Lock()
	defer st.mu.Unlock()
	if !w.valid() || len(samples) == 0 {
		return
	}
	p := w.d.part(st, of)
	for i := range samples {
		st.write(w.d, &p.series, &samples[i], now)
		p.newest = max(p.newest, samples[i].Time)
	}
}

// part returns the entry of a workload, which replaces the oldest one if there are too many.
func (d *device) part(st *Store, of Part) *part {
	if i := slices.IndexFunc(d.parts, func(p *part) bool { return p.Part == of }); i >= 0 {
		return d.parts[i]
	}
	p := &part{Part: of}
	if len(d.parts) < MaxParts {
		d.parts = append(d.parts, p)
		return p
	}
	oldest := 0
	for i := range d.parts {
		if d.parts[i].newest < d.parts[oldest].newest {
			oldest = i
		}
	}
	st.free(&d.parts[oldest].series)
	d.parts[oldest] = p
	return p
}

// forgetParts drops the parts without a sample since t.
func (d *device) forgetParts(st *Store, t int64) {
	d.parts = slices.DeleteFunc(d.parts, func(p *part) bool {
		if p.newest >= t {
			return false
		}
		st.free(&p.series)
		return true
	})
}

// free returns the memory of rings to the budget.
func (st *Store) free(all *[NumFields]*series) {
	for _, s := range all {
		if s != nil {
			st.resize(s, 0)
		}
	}
}

// all returns the rings of the device and of its parts.
func (d *device) all() iter.Seq[*series] {
	return func(yield func(*series) bool) {
		for _, s := range d.series {
			if s != nil && !yield(s) {
				return
			}
		}
		for _, p := range d.parts {
			for _, s := range p.series {
				if s != nil && !yield(s) {
					return
				}
			}
		}
	}
}

// PartView is a workload's part of a device under the lock of a View.
type PartView struct{ p *part }

// Parts appends a view of every workload that has had a part of the device to dst, in no order.
func (x DeviceView) Parts(dst []PartView) []PartView {
	for _, p := range x.d.parts {
		dst = append(dst, PartView{p})
	}
	return dst
}

// Part identifies the workload.
func (x PartView) Part() Part { return x.p.Part }

// Mean returns the time-weighted mean of the part's own values, by the rules of DeviceView.Mean.
func (x PartView) Mean(f Field, start, end int64) (mean, coverage float64) {
	if int(f) >= NumFields || x.p.series[f] == nil || x.p.series[f].len() == 0 {
		return 0, 0
	}
	return x.p.series[f].mean(start, end)
}
