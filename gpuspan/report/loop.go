// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"slices"
)

// loop adds up the steps of one loop.
type loop struct {
	Loop      // but for Steps, what is of durations, and MFU
	dur, host durations
	phases    []*phase
	device    int                 // of the latest step
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
	l.Overlap += s.Overlap
	l.Other += s.Other
	l.Covered += s.Covered
	l.Exposed += s.Exposed
	l.Waiting += s.Waiting
	l.device = s.Device
	l.Items += s.Items
	l.ItemType = cmp.Or(s.ItemType, l.ItemType)
	if s.ModelFLOPs > 0 {
		l.ModelFLOPs += s.ModelFLOPs
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
	out := l.Loop
	out.Steps, out.Duration, out.Host = l.dur.n, l.dur.summary(), l.host.summary()
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
