// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package link

import (
	"cmp"
	"time"

	"github.com/otelgpu/otelgpu/internal/boundedmap"
	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/internal/profiletrace/timeline"
	"github.com/otelgpu/otelgpu/internal/profiletrace/vocabulary"
)

// hostOnly is where the time of the host's threads went, in a file without activities of a device: each moment belongs
// to the innermost range, within a loader to the loader. The zero value is empty.
type hostOnly map[hostLocation]*finding.Location

type hostLocation struct{ track, name uint32 }

// maxHostPlaces bounds the distinct names.
const maxHostPlaces = 1 << 14

func (h hostOnly) at(track, name uint32) *finding.Location {
	return boundedmap.Bounded(h, hostLocation{track, name}, hostLocation{track: track}, maxHostPlaces)
}

// HostOnly returns where most time went, on the thread that was in ranges for longest; nil without any.
func (s *Sweep) HostOnly() *facts.HostOnly {
	threads := map[uint32]time.Duration{}
	for k, p := range s.hosts {
		threads[k.track] += p.Time
	}
	main := boundedmap.Largest(threads)
	out := &facts.HostOnly{Partial: s.in.Meta.Partial != "", Time: threads[main]}
	if out.Time <= 0 {
		return nil
	}
	for k, p := range s.hosts {
		p.Name = cmp.Or(s.in.Names.Text(k.name), facts.NoRange)
		switch {
		case k.track != main:
			if p.Time > out.Other.Time && k.name != 0 && !vocabulary.ContainsAny(p.Name, vocabulary.WaitingFrames) {
				out.Other = *p
			}
			continue
		case p.Time <= 0:
			continue
		case k.name != 0 && s.flags[k.name].Class == timeline.RangeLoader:
			out.Loader += p.Time
		}
		out.Where = append(out.Where, *p)
	}
	out.Where = finding.Longest(out.Where)
	return out
}

// hostOnly gives a range's time to its name, or to the loader around it, and subtracts it from the range around. It
// returns the name.
func (s *Sweep) hostOnly(r *event.Record, st []frame) (name uint32) {
	if r.Kind != event.KindStep {
		name = r.Name
	}
	if len(st) > 0 {
		around := st[len(st)-1].self
		if around != 0 && s.flags[around].Class == timeline.RangeLoader {
			name = around
		}
		s.hosts.at(r.Track, around).Time -= time.Duration(min(r.Duration, st[len(st)-1].end-r.Key))
	}
	s.flag(r)
	p := s.hosts.at(r.Track, name)
	p.Count++
	p.Time += time.Duration(r.Duration)
	return name
}
