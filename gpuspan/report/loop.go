// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"slices"
	"time"
)

// loop adds up the steps of one loop.
type loop struct {
	name      string
	dur, host durations
	phases    []*phase
	overlap   time.Duration
	other     time.Duration
	covered   time.Duration
	exposed   time.Duration
	waiting   time.Duration
	device    int // of the latest step
	items     int64
	itemType  string
	flops     float64
	flopTime  map[string]flopTime // by precision: FLOPs and device seconds of the steps that stated them
}

type flopTime struct{ flops, seconds float64 }

type phase struct {
	name string
	dur  durations
}

func (l *loop) step(s StepSample, sketch func() Sketch) {
	l.dur.add(s.Duration, sketch)
	if s.Host > 0 {
		l.host.add(s.Host, nil)
	}
	for _, p := range s.Phases {
		if ph := l.phase(p.Name); ph != nil {
			ph.dur.add(p.Duration, sketch)
		}
	}
	l.overlap += s.Overlap
	l.other += s.Other
	l.covered += s.Covered
	l.exposed += s.Exposed
	l.waiting += s.Waiting
	l.device = s.Device
	l.items += s.Items
	if s.ItemType != "" {
		l.itemType = s.ItemType
	}
	if s.ModelFLOPs > 0 {
		l.flops += s.ModelFLOPs
		if l.flopTime == nil {
			l.flopTime = map[string]flopTime{}
		}
		f := l.flopTime[s.Precision]
		f.flops += s.ModelFLOPs
		f.seconds += s.Duration.Seconds() * float64(max(s.Devices, 1))
		l.flopTime[s.Precision] = f
	}
}

func (l *loop) phase(name string) *phase {
	i := slices.IndexFunc(l.phases, func(p *phase) bool { return p.name == name })
	if i >= 0 {
		return l.phases[i]
	}
	if len(l.phases) == maxPhases {
		return nil
	}
	p := &phase{name: name}
	l.phases = append(l.phases, p)
	return p
}

func (l *loop) summary(peaks Peaks) Loop {
	out := Loop{
		Name: l.name, Steps: l.dur.n, Duration: l.dur.summary(), Host: l.host.summary(),
		Overlap: l.overlap, Other: l.other, Covered: l.covered, Exposed: l.exposed, Waiting: l.waiting,
		Items: l.items, ItemType: l.itemType, ModelFLOPs: l.flops,
	}
	for _, p := range l.phases {
		out.Phases = append(out.Phases, Phase{Name: p.name, Duration: p.dur.summary()})
	}
	// A mean over precisions would compare with no peak at all, so MFU needs every step to state one precision.
	if len(l.flopTime) == 1 {
		for precision, f := range l.flopTime {
			if peak := peaks.FLOPs[precision]; peak > 0 && f.seconds > 0 {
				out.MFU = f.flops / f.seconds / peak
			}
		}
	}
	return out
}
