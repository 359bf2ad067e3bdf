// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package profiletrace

import "github.com/otelgpu/otelgpu/internal/boundedmap"

// StreamWait is a wait of a stream for an event, which another stream reaches with the work that it had been given
// before the event was recorded.
type StreamWait struct {
	Device, Stream, On int64
	Call, Record       int64 // correlations of the calls that requested the wait, and that recorded the event
}

// maxStreamWaits bounds the waits that are kept for critical paths; further ones are inferred from times.
const maxStreamWaits = 1 << 15

// StreamWait adds a wait. It is needed for Options.Paths only.
func (p *Profile) StreamWait(w StreamWait) {
	if p.opts.Paths && len(p.streamWaits) < maxStreamWaits && w.Call != 0 && w.Record != 0 {
		p.streamWaits = append(p.streamWaits, w)
	}
}

// streamWaits are the waits of a profile during a sweep, by the calls.
type streamWaits struct {
	byCall   map[int64]*StreamWait
	recorded map[int64]*int64 // times of the calls that recorded events; 0: not yet
	streams  map[[2]int64]uint32
}

func (p *Profile) newStreamWaits() *streamWaits {
	if len(p.streamWaits) == 0 {
		return nil
	}
	s := &streamWaits{map[int64]*StreamWait{}, map[int64]*int64{}, map[[2]int64]uint32{}}
	for i := range p.streamWaits {
		w := &p.streamWaits[i]
		s.byCall[w.Call] = w
		boundedmap.Of(s.recorded, w.Record)
	}
	for i, t := range p.trackList {
		if t.device {
			s.streams[[2]int64{t.outer, t.inner}] = uint32(i)
		}
	}
	return s
}

// call takes a call of the host, which may record an event or request a wait.
func (s *streamWaits) call(r *record, p *process) {
	if at := s.recorded[r.correlation]; at != nil {
		*at = r.key
		return
	}
	w := s.byCall[r.correlation]
	if w == nil || p.path == nil {
		return
	}
	stream, ok := s.streams[[2]int64{w.Device, w.Stream}]
	on, is := s.streams[[2]int64{w.Device, w.On}]
	if at := *s.recorded[w.Record]; ok && is && at != 0 {
		p.path.Wait(r.key, stream, at, on)
	}
}
