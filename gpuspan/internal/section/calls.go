// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package section

import (
	"context"
	"slices"
	"time"

	"github.com/otelgpu/otelgpu/gpuspan/internal/work"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
)

func (o *Operation) Launch(ctx context.Context, s *Stream, f func()) {
	x := s.Begin(ctx, o.graph(), FlagNone)
	defer x.End()
	if f != nil {
		f()
	}
}

func (o *Operation) Open(ctx context.Context, s *Stream) Section { return s.Begin(ctx, o, flagLent) }

func (o *Operation) Record(ctx context.Context, s *Stream, start time.Time, d time.Duration, w work.Work) {
	if s == nil {
		return
	}
	possible := PossibleRun(d) && (start.IsZero() || PossibleTime(start))
	if !possible && o != nil && s.Core.level.Load() >= int32(o.Cfg.Verbosity) {
		s.Core.CountMisuse(InvalidWork)
		s.Core.Untimed(o).EndWith(w)
		return
	}
	x := s.Begin(ctx, o, FlagHost|FlagGiven)
	if x.Slot == nil {
		x.EndWith(w)
		return
	}
	x.change(func(r *Record) {
		r.GPU = float64(d)
		if r.StartNs = start.UnixNano(); start.IsZero() {
			r.StartNs = justEnded
		}
	})
	x.EndWith(w)
}

// maxNamedOpen bounds the open sections of StartNamed on one stream.
const maxNamedOpen = 1024

func (s *Stream) StartNamed(ctx context.Context, name string) Section {
	if s == nil || s.Core.level.Load() < int32(settings.VerbosityDefault) {
		return Section{}
	}
	x := s.Begin(ctx, s.Core.names.operation(name), FlagNone)
	s.Mu.Lock()
	if len(s.named) >= maxNamedOpen { // never ended, or ended through the Section
		s.named = slices.Delete(s.named, 0, 1)
	}
	s.named = append(s.named, namedOpen{name, x})
	s.openNamed.Store(int32(len(s.named)))
	s.Mu.Unlock()
	return x
}

func (s *Stream) EndNamed(name string, w work.Work) {
	// A section that was disabled in between must still end, and disabled ones must cost nothing.
	if s == nil || s.Core.level.Load() < int32(settings.VerbosityDefault) && s.openNamed.Load() == 0 {
		return
	}
	s.Mu.Lock()
	for i, n := range slices.Backward(s.named) {
		if n.name != name {
			continue
		}
		x := n.section
		s.named = slices.Delete(s.named, i, i+1)
		s.openNamed.Store(int32(len(s.named)))
		if x.Slot != nil && x.Slot.stream == s && !x.live() {
			continue // ended by its Section
		}
		s.Mu.Unlock()
		x.EndWith(w)
		return
	}
	s.Mu.Unlock()
	s.Core.CountMisuse(unmatchedEnd)
}
