// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package link

import (
	"github.com/otelgpu/otelgpu/internal/boundedmap"
	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
)

// streamWaits are the waits of a profile during a sweep, by the calls.
type streamWaits struct {
	byCall   map[int64]*event.StreamWait
	recorded map[int64]*int64 // times of the calls that recorded events; 0: not yet
	streams  map[[2]int64]uint32
}

func (s *Sweep) newStreamWaits() *streamWaits {
	list := s.in.StreamWaits()
	if len(list) == 0 {
		return nil
	}
	waits := &streamWaits{map[int64]*event.StreamWait{}, map[int64]*int64{}, map[[2]int64]uint32{}}
	for i := range list {
		w := &list[i]
		waits.byCall[w.Call] = w
		boundedmap.Of(waits.recorded, w.Record)
	}
	for i, t := range s.tracks {
		if t.Device {
			waits.streams[[2]int64{t.Outer, t.Inner}] = uint32(i)
		}
	}
	return waits
}

// call takes a call of the host, which may record an event or request a wait.
func (s *streamWaits) call(r *event.Record, p *Process) {
	if at := s.recorded[r.Correlation]; at != nil {
		*at = r.Key
		return
	}
	w := s.byCall[r.Correlation]
	if w == nil || p.path == nil {
		return
	}
	stream, ok := s.streams[[2]int64{w.Device, w.Stream}]
	on, is := s.streams[[2]int64{w.Device, w.On}]
	if at := *s.recorded[w.Record]; ok && is && at != 0 {
		p.path.Wait(r.Key, stream, at, on)
	}
}
