// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpusamplesexporter

import (
	"maps"
	"slices"
	"time"

	"github.com/otelgpu/otelgpu/internal/countertracker"
	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/gpuquantity"
)

// device is the state of one device between two batches.
type device struct {
	desc    devicesamples.Device
	out     devicesamples.Contradictions
	w       devicesamples.DeviceWriter // nil when refused
	retry   time.Time                  // if refused: not before
	last    time.Time
	best    [devicesamples.NumFields]uint8 // lowest rank seen, plus 1
	sums    [devicesamples.NumFields]countertracker.Sum
	xid     float64 // the newest
	xidTime int64   // Unix ns
	hasXID  bool
	unit    unit                           // of values that are a ratio or a percentage
	points  []*group                       // of the current batch, in order of arrival
	groups  map[groupKey]*group            // the same by key
	whole   [devicesamples.NumFields]int64 // time of the newest value that is no part
	divided [devicesamples.NumFields]int64 // time of the newest values of parts
	owners  []owner                        // pods on the device, at time owned
	owned   int64
	newest  int64                           // time of the newest points
	pending map[int64]*devicesamples.Sample // of the current batch, by time
	events  []devicesamples.Event
	shares  *podShares // of the physical GPU
	remote  remoteShares
	// partitioned says that AMD's driver divides the GPU. Its first partition reports what all do,
	// and the others report their memory only, so that the pods' shares are unknown.
	partitioned bool
}

func (d *device) close() {
	if d.w != nil {
		d.w.Close()
	}
}

// learn takes over what a data point states about the device and reports whether it is new. Not
// every metric has all attributes: by the semantic conventions hw.energy has no model.
func (d *device) learn(said *devicesamples.Device) (learned bool) {
	known := &d.desc
	for _, x := range [...]struct{ known, said *string }{
		{&known.Parent, &said.Parent},
		{&known.Name, &said.Name},
		{&known.Model, &said.Model},
		{&known.Vendor, &said.Vendor},
		{&known.DriverVersion, &said.DriverVersion},
		{&known.PCIBDF, &said.PCIBDF},
		{&known.DeviceFile, &said.DeviceFile},
		{&known.HostName, &said.HostName},
		{&known.HostID, &said.HostID},
		{&known.Source, &said.Source},
		{&known.MIG.Profile, &said.MIG.Profile},
	} {
		if *x.said != "" && *x.said != *x.known {
			*x.known, learned = *x.said, true
		}
	}
	if said.Ordinal >= 0 && said.Ordinal != known.Ordinal {
		known.Ordinal, learned = said.Ordinal, true
	}
	if said.PowerWindow != 0 && said.PowerWindow != known.PowerWindow {
		known.PowerWindow, learned = said.PowerWindow, true
	}
	return learned
}

// take converts one value to the sample of its time.
func (d *device) take(r *rule, p *reading) outcome {
	t, v := p.t, p.v
	if r.xid {
		if d.hasXID && t < d.xidTime {
			return outOfOrder
		}
		// The gauge keeps the last XID forever; the time of its first value is unknown.
		if d.hasXID && v != d.xid && v > 0 {
			d.events = append(d.events, devicesamples.Event{
				Time: t, Kind: devicesamples.EventXID, Code: int64(v),
				Count: 1,
			})
		}
		d.xid, d.xidTime, d.hasXID = v, t, true
		return written
	}
	v, o := d.convert(r, p)
	if o != written {
		return o
	}
	best := &d.best[r.field]
	if *best == 0 || r.rank+1 < *best {
		*best = r.rank + 1
	}
	if r.rank+1 > *best {
		return written
	}
	sum := &d.sums[r.field]
	switch {
	case r.summed(p.delta) && !sum.Newer(t):
		return outOfOrder // it would get the sum of a later time
	case r.form == gpuquantity.Rate:
		v = sum.AddRate(t, v, 0)
	case p.delta:
		v = sum.AddDelta(t, v)
	case r.form == gpuquantity.Totals:
		v = sum.AddCounter(t, p.start, v)
	}
	s := d.pending[t]
	if s == nil {
		s = &devicesamples.Sample{Time: t}
		d.pending[t] = s
	}
	if r.highest {
		v = max(v, s.Values[r.field])
	}
	s.Set(r.field, v)
	return written
}

func (r *rule) summed(delta bool) bool {
	return r.form == gpuquantity.Rate || r.form == gpuquantity.Totals || delta
}

// convert returns a value in base units.
func (d *device) convert(r *rule, p *reading) (v float64, o outcome) {
	v = p.v
	switch {
	case r.summed(p.delta) && v < 0, r.positive && v == 0, r.label != "" && v == -1:
		return v, noValue
	case r.either:
		scale, ok := d.unit.scale(v, p.newUnits)
		if !ok {
			return v, unknownUnit
		}
		v *= scale
	default:
		v *= r.scale
	}
	if !r.field.Valid(v) {
		devicesamples.ContradictRatio(d.out, &d.desc, r.field, v)
		return v, outOfRange
	}
	return v, written
}

// flush writes the points of the batch in order of time.
func (d *device) flush() {
	if d.w == nil || len(d.pending)+len(d.events) == 0 {
		return
	}
	samples := make([]devicesamples.Sample, 0, len(d.pending))
	for _, t := range slices.Sorted(maps.Keys(d.pending)) {
		samples = append(samples, *d.pending[t])
	}
	d.w.Write(samples)
	d.w.WriteEvents(d.events)
	if out, ok := d.out.(devicesamples.ShareWriter); ok && d.desc.Parent == "" {
		d.shares.write(&d.desc, samples, out)
	}
	clear(d.pending)
	d.events = d.events[:0]
}
