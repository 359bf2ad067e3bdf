// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpureceiver

import (
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/podresources"
)

// endedSeries are the series of one device that end with this emission. Exporters keep a series for
// minutes after its last point, so without a point that ends it, sums over devices count a device
// twice after its source or its pod changed.
type endedSeries struct {
	device  deviceState // as if all its values were new
	before  labels
	after   labels
	removed bool
}

// label sets the labels of this emission. It returns the series of the devices whose labels changed
// since the last emission, and of the devices that are gone.
func (r *gpuReceiver) label(devices []*deviceState, pods *podresources.Devices) (ended []endedSeries) {
	for _, d := range r.removed {
		if again := r.devices[d.desc.ID]; again != nil {
			again.labels, again.labeled = d.labels, d.labeled
		} else if d.labeled {
			ended = append(ended, endedSeries{device: d.renewed(), before: d.labels, removed: true})
		}
	}
	r.removed = nil
	for _, d := range devices {
		now := labels{identity: pcommon.NewMap()}
		identify(now.identity, &d.desc)
		now.pod, now.hasPod = r.owner(pods, d)
		if d.labeled && (!d.present || !d.labels.equal(now)) {
			ended = append(ended, endedSeries{device: d.renewed(), before: d.labels, after: now})
		}
		d.labels, d.labeled = now, d.present
	}
	return ended
}

func (l labels) equal(o labels) bool {
	return l.pod == o.pod && l.hasPod == o.hasPod && l.identity.Equal(o.identity)
}

// renewed returns a copy that emits each series that the device has had.
func (d *deviceState) renewed() deviceState {
	c := *d
	for q := range c.series {
		c.series[q].fresh = c.series[q].time > 0
	}
	c.reported = 0
	return c
}

// write adds a metric with a point without a value for each series of a metric that the device has
// had and does not continue. Each has a separate metric because contrib's prometheus exporter
// (0.159) ignores the rest of a metric's points after one without a value.
func (e *endedSeries) write(to pmetric.MetricSlice, def *metricDef, now time.Time) {
	series := func(l labels, d *deviceState) pmetric.NumberDataPointSlice {
		w := pointWriter{labels: l, points: pmetric.NewNumberDataPointSlice(), now: now}
		def.write(&w, d)
		return w.points
	}
	continues := pmetric.NewNumberDataPointSlice()
	switch {
	case e.removed:
	case e.device.present:
		continues = series(e.after, &e.device)
	default: // a lost GPU has a status only
		lost := deviceState{desc: e.device.desc, health: e.device.health}
		continues = series(e.after, &lost)
	}
	for _, old := range series(e.before, &e.device).All() {
		if hasSeries(continues, old.Attributes()) {
			continue
		}
		p := def.prepare(to.AppendEmpty()).AppendEmpty()
		old.Attributes().MoveTo(p.Attributes())
		p.SetStartTimestamp(old.StartTimestamp())
		p.SetTimestamp(pcommon.NewTimestampFromTime(now))
		p.SetFlags(pmetric.DefaultDataPointFlags.WithNoRecordedValue(true))
	}
}

func hasSeries(points pmetric.NumberDataPointSlice, attributes pcommon.Map) bool {
	for _, p := range points.All() {
		if p.Attributes().Equal(attributes) {
			return true
		}
	}
	return false
}
