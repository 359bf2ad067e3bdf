// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package emit

import (
	"cmp"
	"maps"
	"slices"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
	"github.com/otelgpu/otelgpu/internal/profiletrace/link"
	"github.com/otelgpu/otelgpu/internal/profiletrace/rules"
	"github.com/otelgpu/otelgpu/internal/profiletrace/vocabulary"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/semconv"
)

// host writes the span of a host range with its summary.
func (s *spans) host(n *node) {
	sp := s.new(n.process, n.self, n.up, n.Start, n.End)
	t := s.text(n.Name)
	name, instance, hasInstance := t.name, int64(0), false
	if n.Kind == event.KindModule {
		name, instance, hasInstance = vocabulary.SplitInstance(s.p.Names.Name(n.Name))
		name = spanfacts.DistinctText(name, maxName)
	}
	sp.SetName(name)
	for _, l := range n.link {
		l.add(sp)
	}
	var d event.Detail
	d.Decode(n.detail)
	m := sp.Attributes()
	m.EnsureCapacity(attributesOf[n.Kind])
	if n.thread >= 0 {
		putInt(m, semconv.ThreadIDKey, n.thread)
	}
	if hasInstance {
		putInt(m, semconv.GPUOperationInstanceKey, instance)
	}
	category := ""
	switch n.Kind {
	case event.KindStep:
		s.step(m, sp.Name(), n.step)
		PutFinding(sp, s.stepFindings(sp.Name(), n.step)...)
	case event.KindRuntime:
		m.PutStr(string(semconv.GPUOperationCategoryKey), semconv.GPUOperationCategoryRuntime)
		if n.corr != 0 {
			putInt(m, semconv.GPUCorrelationIDKey, n.corr&event.CorrelationMask)
		}
	default:
		category = cmp.Or(d.Category, t.phase)
		putText(m, semconv.GPUOperationCategoryKey, category)
	}
	putText(m, semconv.CUDANvtxDomainKey, d.Domain)
	putText(m, semconv.CUDANvtxPayloadKey, d.PayloadText)
	if d.PayloadText == "" {
		putText(m, semconv.CUDANvtxPayloadKey, d.Payload)
	}
	if d.FLOPs > 0 && !n.Replaced {
		putNumber(m, semconv.GPUFLOPCountKey, d.FLOPs)
		putText(m, semconv.GPUFLOPPrecisionKey, d.Precision)
	}
	if s.p.Shapes {
		putTexts(m, semconv.GPUOperationShapesKey, vocabulary.Shapes(d.Types, d.Shapes))
	}
	s.summary(m, n.sum)
	s.sections(n, name, category)
	n.sum, n.detail, n.link = nil, nil, nil // launches may hold the node for long
}

// attributesOf is how many attributes nearly all spans of a kind have, but for a summary.
var attributesOf = [event.KindCount]int{
	event.KindStep: 12, event.KindAnnotation: 2, event.KindModule: 2, event.KindOperator: 3, event.KindRuntime: 3,
}

// stepFindings returns the findings of a step: of late launches only where it ran on one device,
// whose idle time it is.
func (s *spans) stepFindings(name string, st *link.Step) []finding.Finding {
	if _, ok := st.OnlyDevice(); !ok {
		return nil
	}
	list := rules.Step(&st.Account, name, st.End-st.Start, s.p.StepContext(st))
	return list[:min(maxStepFindings, len(list))]
}

// maxStepFindings bounds the findings of a step's span; the largest are kept.
const maxStepFindings = 4

func (s *spans) step(m pcommon.Map, name string, st *link.Step) {
	m.PutStr(string(semconv.GPUOperationTypeKey), semconv.GPUOperationTypeStep)
	if st.HasIndex {
		// Otherwise the span's name is the operation's, and each step another operation.
		putText(m, semconv.GPUOperationNameKey, vocabulary.LoopOf(name, true))
		putInt(m, semconv.GPUStepIndexKey, st.Index)
	}
	putSeconds(m, semconv.GPUStepDurationKey, st.End-st.Start)
	if ordinal, ok := st.OnlyDevice(); ok {
		s.identity(m, ordinal)
	}
	if st.Busy.Any {
		putSeconds(m, semconv.GPUStepBusyDurationKey, st.Busy.Length)
		putInt(m, semconv.GPUKernelCountKey, st.Kernels)
	}
	if st.Comm.Any {
		putSeconds(m, semconv.GPUStepCommExposedDurationKey, st.Exposed())
	}
	writeComputed(m, &st.Computed)
	s.allocated(m, &st.Allocated)
	s.phases(m, st)
}

func (s *spans) allocated(m pcommon.Map, a *link.Allocated) {
	if a.Any {
		putInt(m, semconv.GPUMemoryAllocatedDeltaKey, a.Delta)
	}
	if a.HasUsage {
		putInt(m, semconv.GPUMemoryAllocatedMaxKey, a.Highest)
	}
}

// phases writes the time of every phase, and what makes them add up: step = Σ phases − overlap +
// other.
func (s *spans) phases(m pcommon.Map, st *link.Step) {
	var sum int64
	for _, name := range slices.Sorted(maps.Keys(st.Phases)) {
		length := st.Phases[name].Length
		putSeconds(m, semconv.GPUStepPhaseDurationKey(name), length)
		sum += length
	}
	if len(st.Phases) == 0 || st.PhaseFull {
		return
	}
	all := st.PhaseAll.Length()
	putSeconds(m, semconv.GPUStepOverlapDurationKey, sum-all)
	putSeconds(m, semconv.GPUStepOtherDurationKey, st.End-st.Start-all)
}
