// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package profiletrace

import (
	"cmp"
	"fmt"
	"time"

	"github.com/otelgpu/otelgpu/internal/boundedmap"
	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/internal/profiletrace/timeline"
	"github.com/otelgpu/otelgpu/semconv"
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

// hostFinding reports where most time went, on the thread that was in ranges for longest; nil without any.
func (s *sweep) hostFinding() *finding.Finding {
	threads := map[uint32]time.Duration{}
	for k, p := range s.hosts {
		threads[k.track] += p.Time
	}
	main := boundedmap.Largest(threads)
	all := threads[main]
	if all <= 0 {
		return nil
	}
	v := &finding.Finding{
		Kind: semconv.GPUFindingKindNoDevice, Subject: "host", Certainty: finding.High,
		Chain:  []string{"the profile has no activity of a device"},
		Remedy: "if there is a device, record it (PyTorch: ProfilerActivity.CUDA; nsys: --trace=cuda)",
	}
	if s.p.Meta.Partial != "" {
		v.Certainty = finding.Low
		v.Chain[0] = "the part of the profile that could be read has no activity of a device"
		v.Remedy = "convert the whole file: activities of devices often come last"
	}
	var loader time.Duration
	var beside finding.Location
	for k, p := range s.hosts {
		p.Name = cmp.Or(s.p.Names.text(k.name), facts.NoRange)
		switch {
		case k.track != main:
			if p.Time > beside.Time && k.name != 0 && !containsAny(p.Name, waitingFrames) {
				beside = *p
			}
			continue
		case p.Time <= 0:
			continue
		case k.name != 0 && s.flags[k.name].class == timeline.RangeLoader:
			loader += p.Time
		}
		v.Where = append(v.Where, *p)
	}
	const enough = 0.05
	v.Where = finding.Longest(v.Where)
	if float64(loader) >= enough*float64(all) {
		v.Chain = append(v.Chain, fmt.Sprintf("the host waited for data for %s of %s (%.3g %%)", finding.Duration(loader),
			finding.Duration(all), 100*float64(loader)/float64(all)))
	}
	top := v.Where[0]
	v.Chain = append(v.Chain, fmt.Sprintf("its busiest thread was in ranges for %s, for longest in %s",
		finding.Duration(all), top))
	v.Evidence = "by the innermost range: " + finding.Names(v.Where)
	if float64(beside.Time) >= enough*float64(all) {
		v.Evidence += "; on another thread " + finding.Names([]finding.Location{beside})
	}
	return v
}

// hostOnly gives a range's time to its name, or to the loader around it, and subtracts it from the range around. It
// returns the name.
func (s *sweep) hostOnly(r *record, st []frame) (name uint32) {
	if r.kind != KindStep {
		name = r.name
	}
	if len(st) > 0 {
		around := st[len(st)-1].self
		if around != 0 && s.flags[around].class == timeline.RangeLoader {
			name = around
		}
		s.hosts.at(r.track, around).Time -= time.Duration(min(r.duration, st[len(st)-1].end-r.key))
	}
	s.flag(r)
	p := s.hosts.at(r.track, name)
	p.Count++
	p.Time += time.Duration(r.duration)
	return name
}
