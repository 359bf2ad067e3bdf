// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package processmeter

import (
	"cmp"
	"slices"
	"time"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/processenergy"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/processes"
)

// Reading is the use of a physical GPU since the meter began. Energies are in joules, and only
// grow.
type Reading struct {
	Device       devicesamples.Device
	Time         int64      // up to which energy is divided, in Unix nanoseconds; 0 if none is yet
	Idle         [2]float64 // without and with a context
	Unattributed float64
	Beyond       float64   // the part of Unattributed of processes beyond the limit
	Dropped      int64     // samples of these processes since the last reading, and processes without a series
	Processes    []Process // by number
}

// Process is the use of a device by a process.
type Process struct {
	Device devicesamples.Device // the physical GPU or the instance
	Key    processenergy.Key
	processes.Facts
	Joules, Error float64
	HasEnergy     bool
	// Utilization is the share of time since the last reading in which its kernels were resident on
	// the physical GPU; negative if unknown.
	Utilization float64
	Bytes       int64 // of device memory; gpudata.BytesUnknown if unknown
	Ended       bool  // and its values are the last ones
}

// settled is how long after its end a process may still get energy, because windows end later.
const settled = int64(5 * time.Second)

// Read returns the use of all devices by now.
func (m *Meter) Read(now int64) (all []Reading) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, b := range m.boards {
		if len(b.parts) == 0 { // it is absent
			delete(m.boards, id)
			continue
		}
		r := Reading{
			Device: b.desc, Time: b.device.Through(), Unattributed: b.device.Unattributed().Joules,
			Idle: [2]float64{b.device.Idle(false).Joules, b.device.Idle(true).Joules},
		}
		beyond, dropped := b.device.Beyond()
		r.Beyond, r.Dropped = beyond.Joules, dropped-b.dropped
		b.dropped = dropped
		usages := map[processenergy.Key]processenergy.Usage{}
		b.device.Processes(func(k processenergy.Key, u processenergy.Usage) {
			usages[k] = u
		})
		for k := range usages {
			if b.used[k] == nil && len(b.used) >= m.perDevice {
				b.evictIdle(usages)
			}
			m.seriesOf(b, k, now)
		}
		for _, s := range b.used {
			if s.gone == 0 {
				s.gone = now
			}
		}
		for _, p := range b.parts {
			for _, x := range p.running {
				s := m.seriesOf(b, x.key, now)
				if b.used[x.key] == nil {
					r.Dropped++
				}
				s.on, s.bytes, s.gone = p.desc.ID, x.bytes, 0
			}
		}
		seconds := float64(r.Time-b.through) * 1e-9
		for k, s := range b.used {
			r.Processes = append(r.Processes, m.read(b, k, s, usages, seconds, now))
		}
		b.through = r.Time
		slices.SortFunc(r.Processes, func(x, y Process) int {
			return cmp.Or(cmp.Compare(x.Key.PID, y.Key.PID), cmp.Compare(x.Key.Start, y.Key.Start))
		})
		all = append(all, r)
	}
	slices.SortFunc(all, func(x, y Reading) int { return cmp.Compare(x.Device.ID, y.Device.ID) })
	return all
}

// evictIdle evicts a process without energy for one with energy, of which there are at most
// perDevice.
func (b *board) evictIdle(usages map[processenergy.Key]processenergy.Usage) {
	for k := range b.used {
		if _, used := usages[k]; !used {
			delete(b.used, k)
			return
		}
	}
}

// read returns what is new of a process, and forgets it if it has ended.
func (m *Meter) read(
	b *board, k processenergy.Key, s *series, usages map[processenergy.Key]processenergy.Usage, seconds float64, now int64,
) Process {
	p := Process{Device: b.desc, Key: k, Facts: s.facts, Utilization: -1, Bytes: s.bytes}
	if s.gone > 0 {
		p.Bytes = gpudata.BytesUnknown
	}
	if on := m.parts[s.on]; on != nil {
		p.Device = on.desc
	}
	u, used := usages[k]
	fresh := u.Since(s.usage)
	if seconds > 0 && b.through > 0 && (b.reported || used) {
		p.Utilization = min(fresh.Seconds/seconds, 1)
	}
	s.err += fresh.Error()
	s.usage = u
	p.Joules, p.Error, p.HasEnergy = u.Joules, s.err, used
	if s.gone > 0 && now-s.gone >= settled && fresh.Joules == 0 {
		p.Ended = true
		delete(b.used, k)
		b.device.Forget(k)
	}
	return p
}

// seriesOf returns the series of a process. There are as many as the board may keep processes.
func (m *Meter) seriesOf(b *board, k processenergy.Key, now int64) *series {
	s := b.used[k]
	if s == nil {
		s = &series{bytes: gpudata.BytesUnknown}
		if len(b.used) < m.perDevice {
			b.used[k] = s
		}
	}
	if f := m.known[k.PID]; f != nil && f.key == k {
		s.facts = f.facts
	}
	return s
}
