// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpusamplesexporter

import (
	"slices"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/gpuquantity"
	"github.com/otelgpu/otelgpu/internal/processenergy"
)

// podShares divides a device's energy among the pods of an exporter that writes the utilization of
// each. An exporter writes a moment's utilization per scrape, so the utilization between two scrapes
// is between their values.
type podShares struct {
	device *processenergy.Device // nil: no series of pods so far
	pods   []*devicesamples.DeviceUse
	last   []float64 // utilization at the last scrape, by pod; negative before the first
	now    []float64 // at the present one; negative without
	t      int64     // of now
}

// add adds the utilization of a pod. Containers and replicas of a pod repeat its value.
func (s *podShares) add(p *devicesamples.Part, t int64, v float64) {
	if t < s.t {
		return
	}
	i := slices.IndexFunc(s.pods, func(u *devicesamples.DeviceUse) bool {
		return u.Namespace == p.Namespace && u.Pod == p.Pod && u.PodUID == p.PodUID
	})
	if i < 0 {
		if i = len(s.pods); i >= devicesamples.MaxParts {
			return
		}
		s.pods = append(s.pods, &devicesamples.DeviceUse{Namespace: p.Namespace, Pod: p.Pod, PodUID: p.PodUID})
		s.last, s.now = append(s.last, -1), append(s.now, -1)
	}
	s.now[i], s.t = v, t
}

// write adds the samples of the present batch, in order of time, and writes the shares of the
// windows that they complete.
func (s *podShares) write(desc *devicesamples.Device, samples []devicesamples.Sample, out devicesamples.ShareWriter) {
	if len(s.pods) == 0 {
		return
	}
	if s.device == nil {
		s.device = processenergy.NewDevice(desc.Limits.Power, devicesamples.MaxParts)
		s.device.Shared = func(from, to int64, shares []processenergy.Share) { s.shared(desc.ID, from, to, shares, out) }
	}
	a := processenergy.Answer{Time: s.t, Contexts: true, Utilization: -1}
	for i := range samples {
		x := &samples[i]
		if x.Known&(1<<gpuquantity.Energy) != 0 {
			s.device.AddEnergy(x.Time, x.Values[gpuquantity.Energy])
		}
		if x.Known&(1<<gpuquantity.Power) != 0 {
			s.device.AddPower(x.Values[gpuquantity.Power], true)
		}
		if x.Known&(1<<gpuquantity.Utilization) != 0 && x.Time == s.t {
			a.Utilization = x.Values[gpuquantity.Utilization]
		}
	}
	fresh := false
	for i, v := range s.now {
		if fresh = fresh || v >= 0; v < 0 {
			s.last[i] = -1 // it is no longer on the device
			continue
		}
		x := processenergy.Sample{Process: processenergy.Key{PID: int64(i + 1)}, Time: s.t, Share: v, Low: v, High: v}
		if before := s.last[i]; before >= 0 {
			x.Share, x.Low, x.High = (v+before)/2, min(v, before), max(v, before)
		}
		x.Low, x.High = max(0, x.Low-rounded), x.High+rounded
		if x.Share > 0 {
			a.Samples = append(a.Samples, x)
		}
		s.last[i], s.now[i] = v, -1
	}
	if fresh {
		s.device.Add(a)
	}
}

// rounded is the error of a utilization in whole percent.
const rounded = 0.005

func (s *podShares) shared(board string, from, to int64, shares []processenergy.Share, out devicesamples.ShareWriter) {
	w := devicesamples.ShareWindow{From: from, To: to}
	for i, pod := range s.pods {
		u := devicesamples.DeviceShare{DeviceUse: pod}
		for _, x := range shares {
			if x.Process.PID == int64(i+1) {
				u.Share, u.Error, u.Resident = x.Share, x.Error, min(x.Resident, 1)
			}
		}
		if s.last[i] >= 0 || u.Share > 0 {
			w.Users = append(w.Users, u)
		}
	}
	out.AddShares(board, w)
}
