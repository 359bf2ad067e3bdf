// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package section

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/otelgpu/otelgpu/gpuspan/internal/work"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
	"github.com/otelgpu/otelgpu/semconv"
)

// names holds operations that are found by name: a bounded number, then one for all others.
type names struct {
	mu       sync.RWMutex
	byName   map[string]*Operation
	limit    int
	create   func(string) *Operation
	overflow *Operation
	dropped  atomic.Int64 // how often there were too many names
}

// maxNameLength bounds a name, in bytes, so that a bounded number of them takes bounded memory.
// Mangled names of kernels stay below it.
const maxNameLength = 4096

func (n *names) init(limit int, create func(string) *Operation) {
	n.byName, n.limit, n.create = make(map[string]*Operation), limit, create
	n.overflow = create(overflowName)
}

func (n *names) operation(name string) *Operation {
	name = name[:min(len(name), maxNameLength)]
	n.mu.RLock()
	o := n.byName[name]
	n.mu.RUnlock()
	if o != nil {
		return o
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if o := n.byName[name]; o != nil {
		return o
	}
	if len(n.byName) >= n.limit {
		n.dropped.Add(1)
		return n.overflow
	}
	name = strings.Clone(name) // it may be part of a large string
	o = n.create(name)
	n.byName[name] = o
	return o
}

// newNamed returns a new operation of StartNamed.
func (p *Core) newNamed(name string) *Operation {
	return NewOperation(name, p.namedOptions(name)...)
}

func (p *Core) namedOptions(name string) []func(*OperationConfig) {
	if p.Cfg.Named == nil {
		return nil
	}
	defer p.Guard("a name was described")
	return p.Cfg.Named(name)
}

// MaxPhases bounds the phases of a profiler, because each is an attribute name.
const MaxPhases = 64

// PhaseOperation returns the operation of a phase's sections, whose name and category are the
// phase's; other is true if there are too many, which share one.
func (p *Core) PhaseOperation(name string) (o *Operation, other bool) {
	o = p.phases.operation(name)
	return o, o == p.phases.overflow
}

func newPhaseOperation(name string) *Operation {
	return NewOperation(name, func(c *OperationConfig) { c.Info.Category = name })
}

// StepOperation returns the operation of the steps of all loops of a name, so that a loop may be
// created for each epoch or evaluation.
func (p *Core) StepOperation(name string) *Operation { return p.steps.operation(name) }

func newStepOperation(name string) *Operation {
	return NewOperation(name, func(c *OperationConfig) { c.Info.Type = semconv.GPUOperationTypeStep })
}

type namedOpen struct {
	name    string
	section Section
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
