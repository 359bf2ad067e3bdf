// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package summarytable

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
	"github.com/otelgpu/otelgpu/internal/profiletrace/link"
	"github.com/otelgpu/otelgpu/internal/roofline"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/internal/spansums"
	"github.com/otelgpu/otelgpu/semconv"
)

// Recorder is the observer of a profile, whose activities and steps it sums by operation.
type Recorder struct {
	in    *link.Input
	ops   map[profiled]*stats
	steps map[string]*stats
	roofs map[int64]*roofline.Roof // by device
}

// profiled identifies an operation of a profile by its name's number.
type profiled struct {
	name uint32
	kind string
}

// NewRecorder returns the observer of a profile.
func NewRecorder(in *link.Input) *Recorder {
	return &Recorder{
		in: in, ops: map[profiled]*stats{}, steps: map[string]*stats{}, roofs: map[int64]*roofline.Roof{},
	}
}

// Range does nothing.
func (*Recorder) Range(*event.Record) {}

// Activity adds an activity.
func (r *Recorder) Activity(a *link.Activity) {
	f := spanfacts.Facts{
		Type: semconv.GPUOperationTypeKernel, Time: float64(a.Duration) / 1e9, Source: r.in.Meta.TimingSource,
		Direction: a.Detail.Direction, HostMemory: a.Detail.HostMemory,
	}
	switch {
	case a.Communicates:
		name, bytes := r.in.Collective(a)
		f.Type, f.Collective, f.Size = semconv.GPUOperationTypeCollective, name, float64(bytes)
		f.GroupSize = float64(a.Detail.GroupSize)
	case a.Kind == event.KindKernel && a.Detail.WholeGraph:
		f.Type = semconv.GPUOperationTypeGraph
	case a.Kind == event.KindKernel:
		if w := a.OnlyWork(); w != nil {
			f.FLOPs, f.Size, f.Precision = w.FLOPs, math.Floor(w.Bytes), w.Precision
		}
	default:
		if f.Type = semconv.GPUOperationTypeCopy; a.Kind == event.KindMemset {
			f.Type = semconv.GPUOperationTypeMemset
		}
		f.Size = float64(a.Detail.Bytes)
	}
	f.Kind = spanfacts.KindOf(f.Type)
	var v roofline.Values
	v.Derive(&f, r.roof(a.Device), 0)
	f.Bound = v.Bound
	if share := v.Share(); share >= 0 {
		f.Roofline, f.HasRoofline = share, true
	}
	k := profiled{a.Name, f.Type}
	s := r.ops[k]
	if s == nil {
		s = &stats{}
		r.ops[k] = s
	}
	one := spansums.Of(&f)
	s.Add(&one, 1)
}

func (r *Recorder) roof(device int64) *roofline.Roof {
	roof := r.roofs[device]
	if roof == nil {
		of := roofline.OfModel(r.in.ModelOf(device))
		if p := r.in.Peak(device); p.Stated {
			of = roofline.Of(&p.Device)
		}
		roof = &of
		r.roofs[device] = roof
	}
	return roof
}

// Step adds a step.
func (r *Recorder) Step(st *link.Step) {
	loop, _, _ := strings.Cut(spanfacts.DistinctText(r.in.Names.Name(st.Name), spanfacts.MaxText), "#")
	s := r.steps[loop]
	if s == nil {
		if len(r.steps) >= maxOperations {
			return
		}
		s = &stats{}
		r.steps[loop] = s
	}
	one := spansums.Of(&spanfacts.Facts{Kind: spanfacts.Step, StepDuration: float64(st.End-st.Start) / 1e9})
	s.Add(&one, 1)
}

// Recorded adds what was recorded of a profile.
func (t *Table) Recorded(r *Recorder) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, k := range slices.SortedFunc(maps.Keys(r.ops), func(a, b profiled) int { // sums are reproducible then
		return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.name, b.name))
	}) {
		name, of := r.in.Names.Name(k.name), key{kind: k.kind}
		switch k.kind {
		case semconv.GPUOperationTypeCollective:
			name, of.category = r.in.ShortName(k.name), semconv.GPUOperationCategoryComm
		case semconv.GPUOperationTypeKernel:
			name = r.in.ShortName(k.name)
		}
		of.name = spanfacts.DistinctText(name, spanfacts.MaxText)
		lookup(t.ops, position{op: t.name(of)}).add(r.ops[k], 1)
	}
	for _, loop := range slices.Sorted(maps.Keys(r.steps)) {
		lookup(t.steps, position{op: t.name(key{name: loop, kind: semconv.GPUOperationTypeStep})}).add(r.steps[loop], 1)
	}
}
