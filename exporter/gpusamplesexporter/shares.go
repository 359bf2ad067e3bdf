// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpusamplesexporter

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/otelgpu/otelgpu/gpuspan/peaks"
	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/gpuquantity"
	"github.com/otelgpu/otelgpu/internal/processenergy"
)

// podShares divides the energy of a physical GPU among the pods that the series of an exporter
// name. An exporter writes a moment's utilization per scrape, so the utilization between two
// scrapes is between their values.
type podShares struct {
	device  *processenergy.Device // nil: no series of pods so far
	pods    []*pod
	numbers int64   // of pods so far
	t       int64   // of the present scrape
	joules  float64 // of the energy counter at the last scrape that was divided
	busy    float64 // utilization of the device then; negative: unknown
	through int64   // end of the last reading
}

// pod is a pod on a device or on an instance of it.
type pod struct {
	use       *devicesamples.DeviceUse
	on        *devicesamples.Device // the physical GPU or an instance
	key       processenergy.Key
	last, now span                // utilization at the last and the present scrape
	seen      int64               // time of the last scrape that named it
	bytes     int64               // of device memory; negative: unknown
	usage     processenergy.Usage // at the last reading
	err       float64             // J, up to then
	varies    float64             // mean Spread so far: both scrapes may miss the same work
}

// span is a value and its bounds; the zero value is of a pod that the exporter does not name.
type span struct {
	mid, low, high float64
	known          bool // the exporter names the pod
	unknown        bool // how pods share the value
}

// Times without a series, in nanoseconds, after which a pod has ended once its energy was read, and
// after which it is evicted if nothing reads it.
const (
	ended     = int64(30e9)
	forgetPod = int64(600e9)
)

// rounded is the error of a utilization in whole percent.
const rounded = 0.005

// usual is the weight of the newest two scrapes in how much a pod usually varies between two.
const usual = 0.1

// add adds the utilization or the memory of a pod on the physical GPU or an instance of it.
// Containers and replicas of a pod repeat its value. How several owners share a value is unknown.
func (s *podShares) add(
	on *devicesamples.Device, p *part, f devicesamples.Field, t int64, v float64, owners int,
) {
	if t < s.t || f != gpuquantity.Utilization && f != gpuquantity.MemoryUsed {
		return
	}
	x := s.pod(on, p)
	switch {
	case x == nil:
	case f == gpuquantity.Utilization:
		v *= size(on)
		s.t, x.seen = t, t
		x.now = span{v / float64(owners), max(v-rounded, 0), v + rounded, true, owners > 1}
	case owners == 1:
		x.bytes = int64(v)
	}
}

// size returns the share of an instance in its physical GPU, of whose computation the profile
// states the slices: four on an A30, otherwise seven.
func size(d *devicesamples.Device) float64 {
	slices, _, found := strings.Cut(d.MIG.Profile, "g.")
	n, err := strconv.Atoi(slices)
	switch {
	case d.Parent == "", !found, err != nil, n < 1, n > 7:
		return 1
	case strings.Contains(d.Model, "A30"):
		return min(float64(n)/4, 1)
	}
	return float64(n) / 7
}

// pod returns the entry of a pod; nil if there are too many.
func (s *podShares) pod(on *devicesamples.Device, p *part) *pod {
	i := slices.IndexFunc(s.pods, func(x *pod) bool {
		u := x.use
		return x.on == on && u.Namespace == p.Namespace && u.Pod == p.Pod && u.PodUID == p.PodUID
	})
	if i >= 0 {
		return s.pods[i]
	}
	if len(s.pods) >= maxParts {
		return nil
	}
	s.numbers++
	x := &pod{
		use: &devicesamples.DeviceUse{Device: on.ID, Namespace: p.Namespace, Pod: p.Pod, PodUID: p.PodUID}, on: on,
		key: processenergy.Key{PID: s.numbers}, seen: s.t, bytes: -1,
	}
	s.pods = append(s.pods, x)
	return x
}

// write adds the samples of the present batch, in order of time, and writes the shares of the
// windows that they complete.
func (s *podShares) write(desc *devicesamples.Device, samples []devicesamples.Sample, out devicesamples.ShareWriter) {
	if s.device == nil {
		model, _ := peaks.Lookup(desc.Model)
		s.device = processenergy.NewDevice(cmp.Or(desc.Limits.Power, model.Power), maxParts)
		s.joules, s.busy = -1, -1
		s.device.Shared = func(from, to int64, shares []processenergy.Share) { s.shared(desc.ID, from, to, shares, out) }
	}
	busy, joules := -1.0, s.joules
	for i := range samples {
		x := &samples[i]
		if x.Known&(1<<gpuquantity.Energy) != 0 {
			joules = x.Values[gpuquantity.Energy]
			s.device.AddEnergy(x.Time, joules)
		}
		if x.Known&(1<<gpuquantity.Power) != 0 {
			s.device.AddPower(x.Values[gpuquantity.Power], s.contexts())
		}
		if x.Known&(1<<gpuquantity.Utilization) != 0 {
			s.t, busy = max(s.t, x.Time), x.Values[gpuquantity.Utilization]
		}
	}
	if joules == s.joules {
		return // the exporter has not collected since
	}
	s.joules = joules
	a := processenergy.Answer{Time: s.t, Contexts: s.contexts(), Utilization: busy, Whole: true}
	if s.busy >= 0 && busy >= 0 {
		a.Utilization = (s.busy + busy) / 2
	}
	s.busy = busy
	var sum float64
	for _, x := range s.pods {
		sum += x.now.mid
		if x.use.Device != desc.ID {
			a.Utilization = -1 // instances do not add up to it
		}
	}
	// The exporter repeats the last utilization of a pod that became idle for as long as the driver
	// remembers it, but not the device's.
	stale := 0.0
	if a.Utilization >= 0 {
		stale = max(sum-busy-rounded*float64(1+len(s.pods)), 0)
	}
	for _, x := range s.pods {
		if stale > 0 {
			x.now.low = max(x.now.low-stale, 0)
			x.now.mid *= busy / sum
			x.now.mid = max(x.now.mid, x.now.low)
		}
		if y, ok := x.between(); ok {
			y.Time = s.t
			a.Samples = append(a.Samples, y)
		}
		x.last, x.now = x.now, span{}
	}
	s.device.Add(a)
	s.evict(func(x *pod) bool { return s.t-x.seen >= forgetPod })
}

func (s *podShares) evict(gone func(*pod) bool) {
	s.pods = slices.DeleteFunc(s.pods, func(x *pod) bool {
		if !gone(x) {
			return false
		}
		s.device.Forget(x.key)
		return true
	})
}

// between returns the utilization of a pod since the last scrape. One that the exporter named only
// then has ended in between.
func (x *pod) between() (s processenergy.Sample, ok bool) {
	a, b := x.last, x.now
	switch {
	case !a.known:
		a = b
	case !b.known:
		b.high = a.high
	}
	spread := max((max(a.high, b.high)-min(a.low, b.low))/2-rounded, 0)
	x.varies += usual * (spread - x.varies)
	s = processenergy.Sample{Process: x.key, Share: (a.mid + b.mid) / 2, Spread: max(spread, x.varies)}
	s.Low, s.High = max(s.Share-rounded, 0), s.Share+rounded
	if b.unknown {
		s.Low, s.High, s.Spread = 0, b.high, 0
	}
	return s, s.Share > 0 || s.Spread >= rounded
}

// contexts reports whether any pod has memory on the device; pods whose memory is unknown have.
func (s *podShares) contexts() bool {
	return slices.ContainsFunc(s.pods, func(x *pod) bool { return x.bytes != 0 })
}

// shared writes the shares of a window, also of pods that were idle.
func (s *podShares) shared(board string, from, to int64, shares []processenergy.Share, out devicesamples.ShareWriter) {
	w := devicesamples.ShareWindow{From: from, To: to}
	for _, x := range s.pods {
		u := devicesamples.DeviceShare{DeviceUse: x.use}
		for i := range shares {
			if y := &shares[i]; y.Process == x.key {
				u.Share, u.Error, u.Resident = y.Share, y.Error, min(y.Resident, 1)
			}
		}
		if x.last.known || u.Share > 0 {
			w.Users = append(w.Users, u)
		}
	}
	out.AddShares(board, w)
}

// division returns how the energy of the device was divided so far; false before the first window.
func (s *podShares) division(desc *devicesamples.Device) (d devicesamples.Division, ok bool) {
	if s.device == nil || s.device.Total() == 0 {
		return d, false
	}
	d = devicesamples.Division{
		Device: *desc, Time: s.device.Through(), Unattributed: s.device.Unattributed().Joules,
		Idle: [2]float64{s.device.Idle(false).Joules, s.device.Idle(true).Joules},
	}
	used := map[processenergy.Key]processenergy.Usage{}
	s.device.Processes(func(k processenergy.Key, u processenergy.Usage) { used[k] = u })
	seconds := float64(d.Time-s.through) * 1e-9
	s.evict(func(x *pod) bool {
		u := used[x.key]
		fresh := u.Since(x.usage)
		if s.t-x.seen >= ended && fresh.Joules == 0 {
			return true
		}
		x.usage, x.err = u, x.err+fresh.Error()
		y := devicesamples.DividedUse{
			DeviceUse: x.use, On: *x.on, ID: x.key.PID, Joules: u.Joules, Error: x.err, Utilization: -1, Bytes: x.bytes,
		}
		if seconds > 0 && s.through > 0 {
			y.Utilization = min(fresh.Seconds/seconds, 1)
		}
		d.Users = append(d.Users, y)
		return false
	})
	s.through = d.Time
	return d, true
}
