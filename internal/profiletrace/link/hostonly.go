// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package link

import (
	"cmp"
	"math"
	"time"

	"github.com/otelgpu/otelgpu/internal/boundedmap"
	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/internal/profiletrace/timeline"
	"github.com/otelgpu/otelgpu/internal/profiletrace/vocabulary"
)

// hostOnly is where the time of the host's threads went, in a file without activities of a device:
// each moment belongs to the range that was opened last and is still open, within a loader to the
// loader. The zero value is empty.
type hostOnly map[hostLocation]*finding.Location

type hostLocation struct{ track, name uint32 }

// maxHostPlaces bounds the distinct names.
const maxHostPlaces = 1 << 14

func (h hostOnly) at(track, name uint32) *finding.Location {
	return boundedmap.Bounded(h, hostLocation{track, name}, hostLocation{track: track}, maxHostPlaces)
}

// HostOnly returns where most time went, on the thread that was in ranges for longest; nil without
// any.
func (s *Sweep) HostOnly() *facts.HostOnly {
	for track := range s.threads {
		s.threads[track].host.until(math.MaxInt64, func(name uint32, n int64) {
			s.hosts.at(uint32(track), name).Time += time.Duration(n)
		})
	}
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

// hostStack is the open ranges of a thread, in the order in which they were opened, and the time up
// to which each moment has been given to a range. Ranges may cross: ranges of Python's profiler
// start inside the frame that opens them, and outlive it.
type hostStack struct {
	open []hostRange
	at   int64
}

type hostRange struct {
	end  int64
	name uint32
}

// until gives each moment up to a time to the range that was opened last and is still open.
func (h *hostStack) until(t int64, give func(name uint32, time int64)) {
	for len(h.open) > 0 {
		top := h.open[len(h.open)-1]
		if to := min(top.end, t); to > h.at {
			give(top.name, to-h.at)
			h.at = to
		}
		if top.end > t {
			return
		}
		h.open = h.open[:len(h.open)-1]
	}
	h.at = max(h.at, t)
}

// hostOnly opens a range, whose time is its name's, or the loader's around it.
func (s *Sweep) hostOnly(r *event.Record) {
	th := &s.threads[r.Track]
	th.host.until(r.Key, func(name uint32, n int64) { s.hosts.at(r.Track, name).Time += time.Duration(n) })
	name := uint32(0)
	if r.Kind != event.KindStep {
		name = r.Name
	}
	if n := len(th.host.open); n > 0 {
		if around := th.host.open[n-1].name; around != 0 && s.flags[around].Class == timeline.RangeLoader {
			name = around
		}
	}
	s.flag(r)
	s.hosts.at(r.Track, name).Count++
	th.host.open = append(th.host.open, hostRange{r.Key + r.Duration, name})
}
