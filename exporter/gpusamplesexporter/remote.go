// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpusamplesexporter

import (
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/semconv"
)

// remoteShares are the shares of processes that another Collector measures: its gpu receiver emits
// the energy of each process, and so at each output how the energy since the last one was divided.
type remoteShares struct {
	users map[remoteKey]*remoteUser
	t     int64 // of the last output
}

// remoteKey identifies a counter.
type remoteKey struct {
	device string
	part   part
}

type remoteUser struct {
	use           *devicesamples.DeviceUse // nil: unattributed
	joules, error remoteCounter
	resident      float64
}

// remoteCounter is a cumulative value and its increase since the last output.
type remoteCounter struct {
	start, t         int64
	value, increased float64
}

func (c *remoteCounter) add(start, t int64, v float64) {
	switch {
	case t <= c.t:
		return
	case c.t == 0, start != c.start: // its first output is 0, at its start
		c.increased = v
	default:
		c.increased = max(v-c.value, 0)
	}
	c.start, c.t, c.value = start, t, v
}

// add adds a point of a process's metric.
func (s *remoteShares) add(name, device string, labels pcommon.Map, start, t int64, v float64) {
	owner, _ := ownerOf(labels, pcommon.NewMap())
	k := remoteKey{device, owner}
	u := s.users[k]
	if u == nil {
		if len(s.users) >= maxParts {
			return
		}
		u = &remoteUser{}
		if name != semconv.GPUUnattributedEnergyName {
			u.use = &devicesamples.DeviceUse{
				Device: device, Namespace: owner.Namespace, Pod: owner.Pod, Container: owner.Container, PodUID: owner.PodUID,
				ContainerID: owner.ContainerID, PID: owner.PID,
			}
		}
		if s.users == nil {
			s.users = map[remoteKey]*remoteUser{}
		}
		s.users[k] = u
	}
	switch name {
	case semconv.GPUProcessUtilizationName:
		u.resident = v
	case semconv.GPUProcessEnergyErrorName:
		u.error.add(start, t, v)
	default:
		u.joules.add(start, t, v)
	}
}

// remoteMetric reports whether a metric is of what processes use.
func remoteMetric(name string) bool {
	return name == semconv.GPUProcessEnergyName || name == semconv.GPUProcessEnergyErrorName ||
		name == semconv.GPUProcessUtilizationName || name == semconv.GPUUnattributedEnergyName
}

// remote adds a point of such a metric.
func (x *writer) remote(name string, p pmetric.NumberDataPoint, delta bool, from *origin) outcome {
	start, t, v := int64(p.StartTimestamp()), int64(p.Timestamp()), p.DoubleValue()
	if p.Flags().NoRecordedValue() || t == 0 || delta || !(v >= 0) || start == t { // the last is the 0 before a series
		return noValue
	}
	desc, ok := x.cfg.describe(p.Attributes(), from.resource, "")
	if !ok {
		return noDevice
	}
	on := desc.ID
	if desc.Parent != "" {
		desc = boardOf(&desc)
	}
	d := x.device(desc, from.now)
	if d.w == nil {
		return refused
	}
	d.remote.add(name, on, p.Attributes(), start, t, v)
	return partWritten
}

// write writes the shares since the last output.
func (s *remoteShares) write(board string, out devicesamples.ShareWriter) {
	var newest int64
	var all float64
	for _, u := range s.users {
		newest = max(newest, u.joules.t)
	}
	if newest <= s.t {
		return
	}
	w := devicesamples.ShareWindow{From: s.t, To: newest}
	s.t = newest
	for k, u := range s.users {
		if u.joules.t == newest {
			all += u.joules.increased
		} else {
			delete(s.users, k)
		}
	}
	if w.From == 0 || all <= 0 {
		return
	}
	for _, u := range s.users {
		if u.use != nil {
			w.Users = append(w.Users, devicesamples.DeviceShare{
				DeviceUse: u.use, Share: u.joules.increased / all, Error: min(u.error.increased/all, 1), Resident: u.resident,
			})
		}
	}
	out.AddShares(board, w)
}
