// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpusamplesextension

import (
	"sort"
	"time"

	"go.opentelemetry.io/collector/component"
)

// device is the stored state of one GPU or MIG instance, guarded by the store's lock.
type device struct {
	desc    Device
	key     string // NormalizeID(desc.ID)
	owner   component.ID
	open    bool // the owner has not given it up
	gen     int  // counts registrations: only the newest one writes
	series  [NumFields]*series
	events  []Event // by time, at most maxEvents
	newest  int64   // newest sample of any field
	settled int64   // oldest newest sample among the live fields; never decreases
	primary *series // whose times stand for the device's: the first live field
}

const maxEvents = 1024

// refresh recomputes what a write changed. A field that has been silent for gapFactor intervals is no longer live
// and holds nobody up.
func (d *device) refresh() {
	d.newest, d.primary = 0, nil
	for _, s := range d.series {
		if s != nil && s.len() > 0 {
			d.newest = max(d.newest, s.last().t)
		}
	}
	settled := d.newest
	for _, s := range d.series {
		if s == nil || s.len() == 0 || (s.interval > 0 && s.last().t < d.newest-gapFactor*s.interval) {
			continue
		}
		settled = min(settled, s.last().t)
		if d.primary == nil {
			d.primary = s
		}
	}
	d.settled = max(d.settled, settled)
}

// addEvent keeps the events in time order; one that was already there is ignored.
func (d *device) addEvent(e Event) bool {
	i := sort.Search(len(d.events), func(i int) bool { return d.events[i].Time > e.Time })
	for j := i - 1; j >= 0 && d.events[j].Time == e.Time; j-- {
		if d.events[j] == e {
			return false
		}
	}
	if len(d.events) == maxEvents {
		if i == 0 {
			return false
		}
		copy(d.events, d.events[1:i])
		d.events[i-1] = e
		return true
	}
	d.events = append(d.events, Event{})
	copy(d.events[i+1:], d.events[i:])
	d.events[i] = e
	return true
}

func (d *device) setDescription(desc Device) {
	desc.PCIBDF = NormalizePCI(desc.PCIBDF)
	d.desc = desc
	for _, s := range d.series {
		if s != nil {
			s.nominal = int64(max(desc.Interval, 0))
		}
	}
}

// idleFor says how long the device has had no new sample.
func (d *device) idleFor(now time.Time) time.Duration {
	return now.Sub(time.Unix(0, d.newest))
}
