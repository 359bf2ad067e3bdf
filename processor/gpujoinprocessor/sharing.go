// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"time"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/processor/gpujoinprocessor/internal/attribution"
)

// sharing finds the shares of processes with spans among all processes of a physical GPU.
type sharing struct {
	reader    devicesamples.ShareReader // nil: nothing is known
	workloads map[uint64]*spanProcess   // by the number of the process

	until   int64                       // end of the last window that was shared, on the clock of samples
	windows []devicesamples.ShareWindow // scratch
}

// spanProcess is a process that sent spans of a board.
type spanProcess struct {
	workload devicesamples.Workload
	latest   int64 // end of its spans
}

// match returns how surely the process is one of the users of a window.
func (p *spanProcess) match(w *devicesamples.ShareWindow, hostID, hostName string) (best devicesamples.Match) {
	for i := range w.Users {
		best = max(best, w.Users[i].Match(&p.workload, hostID, hostName))
	}
	return best
}

// maxSpanProcesses bounds the processes of a board, and spanProcessAge, in ns, for how long one is
// known after its last span.
const maxSpanProcesses, spanProcessAge = 1 << 10, int64(10 * time.Minute)

// add records that spans of a process arrived, which end at a time.
func (s *sharing) add(process uint64, w *devicesamples.Workload, end int64) {
	if s.reader == nil {
		return
	}
	p := s.workloads[process]
	if p == nil {
		for id, old := range s.workloads {
			if old.latest < end-spanProcessAge {
				delete(s.workloads, id)
			}
		}
		if len(s.workloads) >= maxSpanProcesses {
			return
		}
		p = &spanProcess{workload: *w}
		if s.workloads == nil {
			s.workloads = map[uint64]*spanProcess{}
		}
		s.workloads[process] = p
	}
	p.latest = max(p.latest, end)
}

// Windows implements attribution.Meter.
func (m *meter) Windows(from, to int64, dst []attribution.Window) []attribution.Window {
	s := &m.sharing
	if s.reader == nil || len(s.workloads) == 0 {
		return dst
	}
	host := m.dev.Device()
	s.windows = s.reader.Shares(host.ID, from+m.shift, to+m.shift, s.windows[:0])
	for i := range s.windows {
		w := &s.windows[i]
		if len(s.workloads) == 1 && len(w.Users) == 1 && w.Users[0].Share >= 1 {
			continue // most devices have one process
		}
		s.until = w.To
		dst = append(dst, attribution.Window{
			From: w.From - m.shift, To: w.To - m.shift, Parts: s.parts(w, host.HostID, host.HostName),
		})
	}
	return dst
}

// parts returns the parts of the processes with spans. Processes that are one user's, for example
// two instances of a library in one process, have equal parts of its share.
func (s *sharing) parts(w *devicesamples.ShareWindow, hostID, hostName string) (parts []attribution.Part) {
	claims := make([]int, len(w.Users))
	for pass := range 2 {
		for id, p := range s.workloads {
			best := p.match(w, hostID, hostName)
			if best == devicesamples.MatchNone {
				continue
			}
			part := attribution.Part{Process: id}
			for i := range w.Users {
				switch u := &w.Users[i]; {
				case u.Match(&p.workload, hostID, hostName) != best:
				case pass == 0:
					claims[i]++
				default:
					part.Share += u.Share / float64(claims[i])
					part.Resident = min(part.Resident+u.Resident, 1)
				}
			}
			if pass == 1 {
				parts = append(parts, part)
			}
		}
	}
	return parts
}

// mostUnknown is the largest relative error by the distribution within a window. It is below 1, so
// that energy of short spans is not withheld: their sum is known.
const mostUnknown = 0.95

// shareError returns by how many joules the energy of a span of a process may be wrong because of
// its share of the device: the errors of the windows, and at its ends the distribution within a
// window, which is unknown.
func (m *meter) shareError(r *resourceInfo, start, end int64, energy float64) (bound float64) {
	s := &m.sharing
	if start >= s.until || end <= start {
		return 0
	}
	p := s.workloads[m.loads.processOf(r.process)]
	if p == nil {
		return 0
	}
	host := m.dev.Device()
	s.windows = s.reader.Shares(host.ID, start, end, s.windows[:0])
	for i := range s.windows {
		w := &s.windows[i]
		best := p.match(w, host.HostID, host.HostName)
		if best == devicesamples.MatchNone {
			continue
		}
		var share, err float64
		for j := range w.Users {
			if u := &w.Users[j]; u.Match(&p.workload, host.HostID, host.HostName) == best {
				share, err = share+u.Share, err+u.Error
			}
		}
		part := energy * float64(min(w.To, end)-max(w.From, start)) / float64(end-start)
		switch {
		case share <= 0:
		case w.From < start || w.To > end:
			// At most the process had all of the device's energy, which is 1/share of its own.
			bound += part * max(min(1, err/share), min(mostUnknown, (1-share)/share))
		default:
			bound += part * min(1, err/share)
		}
	}
	return bound
}
