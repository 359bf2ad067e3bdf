// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpureceiver

import (
	"time"

	"github.com/otelgpu/otelgpu/extension/gpusamplesextension"
	"github.com/otelgpu/otelgpu/gpuspan/peaks"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
)

// deviceState is what the receiver keeps of one device between two emissions. It is kept by hw.id, so counters go on
// when a source is opened anew.
type deviceState struct {
	desc     gpusamplesextension.Device
	writer   gpusamplesextension.DeviceWriter // nil without gpu_samples
	present  bool
	health   gpudata.Health
	newest   int64 // time of the newest value
	reported int64 // newest at the last emission
	series   [gpudata.NumQuantities]seriesState
	throttle throttleState
	// processes is the newest reading of the memory of each process.
	processes []gpudata.Process
	// peaks is the row of the device table, scaled for a MIG instance.
	peaks    peaks.Device
	hasPeaks bool
}

// seriesState is one quantity of one device.
type seriesState struct {
	time  int64
	value float64
	fresh bool // newer than the last emission
	gap   int64

	// Since the last emission, for quantities that are means over an interval.
	integral float64
	covered  int64

	// For counters: the emitted stream. A decrease of the raw value begins a new one.
	start int64
	first float64
}

// gapFactor: time between two samples further apart than this many intervals is not covered by them.
const gapFactor = 3

// add takes a newer value and says by how much a counter grew and whether the value was taken.
func (s *seriesState) add(v gpudata.Value, sampling time.Duration) (growth float64, ok bool) {
	kind := v.Quantity.Kind()
	if s.time == 0 {
		*s = seriesState{time: v.Time, value: v.V, fresh: true, start: v.Time, first: v.V}
		return 0, true
	}
	if v.Time <= s.time {
		return 0, false
	}
	gap := v.Time - s.time
	if near := gapFactor * max(int64(sampling), s.gap); gap <= near && kind == gpusamplesextension.KindInterval {
		s.integral += v.V * float64(gap)
		s.covered += gap
	}
	s.gap = gap
	if kind == gpusamplesextension.KindCounter {
		if growth = v.V - s.value; growth < 0 {
			growth = 0
			s.start, s.first = v.Time, v.V
		}
	}
	s.time, s.value, s.fresh = v.Time, v.V, true
	return growth, true
}

// mean is the time-weighted mean since the last emission, or the newest value when there was only one.
func (s *seriesState) mean() float64 {
	if s.covered == 0 {
		return s.value
	}
	return s.integral / float64(s.covered)
}

// emitted begins the next emission.
func (s *seriesState) emitted() { s.fresh, s.integral, s.covered = false, 0, 0 }

// throttleState integrates the mask of throttle reasons into seconds for each reason.
type throttleState struct {
	start   int64
	gap     int64
	seen    gpusamplesextension.ThrottleReason // reasons that held at any time
	seconds [64]float64                        // by bit
}

// describe takes a new description.
func (d *deviceState) describe(desc gpusamplesextension.Device) {
	if d.desc.Model != desc.Model || d.desc.MIG != desc.MIG || !d.hasPeaks {
		d.peaks, d.hasPeaks = peaks.Lookup(desc.Model)
		if d.hasPeaks && desc.Parent != "" {
			d.peaks, d.hasPeaks = instancePeaks(d.peaks, desc)
		}
	}
	d.desc, d.present = desc, true
}

// instancePeaks scales a board's peaks to a MIG instance; false when its share is not known.
func instancePeaks(board peaks.Device, desc gpusamplesextension.Device) (peaks.Device, bool) {
	if desc.MIG.SMs > 0 && desc.Limits.Memory > 0 {
		return board.Instance(desc.MIG.SMs, float64(desc.Limits.Memory))
	}
	return board.Profile(desc.MIG.Profile)
}

// fresh says whether there is anything newer than the last emission.
func (d *deviceState) fresh() bool { return d.newest > d.reported }
