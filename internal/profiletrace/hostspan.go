// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package profiletrace

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/internal/profiletrace/rules"
	"github.com/otelgpu/otelgpu/semconv"
)

// host writes the span of a host range with its summary.
func (s *spans) host(n *node) {
	sp := s.new(n.process, n.self, n.up, n.start, n.end)
	t := s.text(n.name)
	name, instance, hasInstance := t.name, int64(0), false
	if n.kind == KindModule {
		name, instance, hasInstance = instanceOf(s.p.Names.Name(n.name))
		name = distinct(name, maxName)
	}
	sp.SetName(name)
	for _, l := range n.link {
		l.add(sp)
	}
	var d Detail
	d.decode(n.detail)
	m := sp.Attributes()
	m.EnsureCapacity(attributesOf[n.kind])
	if n.thread >= 0 {
		putInt(m, semconv.ThreadIDKey, n.thread)
	}
	if hasInstance {
		putInt(m, semconv.GPUOperationInstanceKey, instance)
	}
	category := ""
	switch n.kind {
	case KindStep:
		s.step(m, sp.Name(), n.step)
		PutFinding(sp, sp.EndTimestamp(), s.stepFindings(sp.Name(), n.step)...)
		s.keepStep(sp.Name(), n.step)
	case KindRuntime:
		m.PutStr(string(semconv.GPUOperationCategoryKey), semconv.GPUOperationCategoryRuntime)
		if n.corr != 0 {
			putInt(m, semconv.GPUCorrelationIDKey, n.corr&correlationMask)
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
	if d.FLOPs > 0 && !n.replaced {
		m.PutDouble(string(semconv.GPUFLOPCountKey), d.FLOPs)
		putText(m, semconv.GPUFLOPPrecisionKey, d.Precision)
	}
	if s.p.opts.Shapes {
		putTexts(m, semconv.GPUOperationShapesKey, Shapes(d.Types, d.Shapes))
	}
	s.summary(m, n.sum)
	s.sections(n, name, category)
	n.sum, n.detail, n.link = nil, nil, nil // launches may hold the node for long
}

// attributesOf is how many attributes nearly all spans of a kind have, but for a summary.
var attributesOf = [kindCount]int{KindStep: 12, KindAnnotation: 2, KindModule: 2, KindOperator: 3, KindRuntime: 3}

// stepFindings returns the findings of a step: of late launches only where it ran on one device, whose idle time it
// is.
func (s *spans) stepFindings(name string, st *step) []finding.Finding {
	if _, ok := st.onlyDevice(); !ok {
		return nil
	}
	f := s.naming()
	f.Memory = s.memory(&st.allocated)
	list := rules.Step(&st.account, name, st.end-st.start, f)
	return list[:min(maxStepFindings, len(list))]
}

// keepStep keeps the parts of a step that ran on one device for that device's report.
func (s *spans) keepStep(name string, st *step) {
	ordinal, ok := st.onlyDevice()
	if list := s.steps[ordinal]; ok && len(list) < maxSteps {
		s.steps[ordinal] = append(list, st.account.Step(name, s.p.Meta.Base+st.start, st.end-st.start, st.compute.Length))
	}
}

// maxSteps bounds the steps of a device's report.
const maxSteps = 2000

// maxStepFindings bounds the findings of a step's span; the largest are kept.
const maxStepFindings = 4

// loopOf returns the name of the loop of a numbered step: "ProfilerStep" of "ProfilerStep#7".
func loopOf(name string) string {
	return cmp.Or(strings.TrimRight(strings.TrimRight(name, "0123456789"), " _#:=-"), name)
}

func (s *spans) step(m pcommon.Map, name string, st *step) {
	m.PutStr(string(semconv.GPUOperationTypeKey), semconv.GPUOperationTypeStep)
	if st.hasIndex {
		// Otherwise the span's name is the operation's, and each step another operation.
		putText(m, semconv.GPUOperationNameKey, loopOf(name))
		putInt(m, semconv.GPUStepIndexKey, st.index)
	}
	putSeconds(m, semconv.GPUStepDurationKey, st.end-st.start)
	if ordinal, ok := st.onlyDevice(); ok {
		s.identity(m, ordinal)
	}
	if st.busy.Any {
		putSeconds(m, semconv.GPUStepBusyDurationKey, st.busy.Length)
		putInt(m, semconv.GPUKernelCountKey, st.kernels)
	}
	if st.comm.Any {
		putSeconds(m, semconv.GPUStepCommExposedDurationKey, st.exposed())
	}
	st.computed.write(m)
	s.allocated(m, &st.allocated)
	s.phases(m, st)
}

func (s *spans) allocated(m pcommon.Map, a *allocated) {
	if a.any {
		putInt(m, semconv.GPUMemoryAllocatedDeltaKey, a.delta)
	}
	if a.hasUsage {
		putInt(m, semconv.GPUMemoryAllocatedMaxKey, a.highest)
	}
}

// phases writes the time of every phase, and what makes them add up: step = Σ phases − overlap + other.
func (s *spans) phases(m pcommon.Map, st *step) {
	var sum int64
	for _, name := range slices.Sorted(maps.Keys(st.phases)) {
		length := st.phases[name].Length
		putSeconds(m, semconv.GPUStepPhaseDurationKey(name), length)
		sum += length
	}
	if len(st.phases) == 0 || st.phaseFull {
		return
	}
	all := st.phaseAll.Length()
	putSeconds(m, semconv.GPUStepOverlapDurationKey, sum-all)
	putSeconds(m, semconv.GPUStepOtherDurationKey, st.end-st.start-all)
}

// windows writes the root span of each process and below it one span per device.
func (s *spans) windows(sw *sweep) error {
	s.noGPU = sw.hostFinding()
	for _, pid := range slices.Sorted(maps.Keys(sw.processes)) {
		n := sw.processes[pid].window
		sp := s.new(n.process, n.self, n.up, n.start, n.end)
		sp.SetName(s.p.source.Root)
		for _, l := range n.link {
			l.add(sp)
		}
		putText(sp.Attributes(), semconv.GPUTracePartialKey, s.p.Meta.Partial)
		s.summary(sp.Attributes(), n.sum)
		if s.noGPU != nil && n.process == sw.main {
			PutFinding(sp, sp.EndTimestamp(), *s.noGPU)
		}
	}
	s.p.Meta.Windows = s.p.Meta.Windows || s.p.Names.anyIs(windowsFrame)
	for _, o := range slices.Sorted(maps.Keys(sw.devices)) {
		s.deviceWindow(sw.devices[o], sw)
	}
	return s.err
}

// deviceWindow writes the span of a device's window. The parts of the window are computed by its report, which is kept.
func (s *spans) deviceWindow(d *deviceWindow, sw *sweep) {
	d.after(sw)
	f := s.facts(d, sw)
	r := d.verdicts.Report(f)
	r.ByStep = s.steps[d.ordinal]
	r.Findings = rules.Device(&d.verdicts.Totals, f, &r)
	w := d.process.window
	c := spanRef{w.self.trace, s.p.ids().span(idDevice, d.ordinal)}
	sp := s.on(d.ordinal, d.process, c, w.self.span, d.first, d.end)
	sp.SetName("GPU " + itoa(d.ordinal))
	m := sp.Attributes()
	s.identity(m, d.ordinal)
	if x := s.p.extent(); x != ExtentAll {
		putText(m, semconv.GPUWindowExtentKey, x.String())
	}
	parts := &r.Parts
	putSeconds(m, semconv.GPUWindowDurationKey, int64(r.Window))
	putSeconds(m, semconv.GPUWindowBusyDurationKey, int64(r.Window-parts.Idle))
	putSeconds(m, semconv.GPUWindowIdleDurationKey, int64(parts.Idle))
	for _, idle := range r.Idle {
		putSeconds(m, semconv.GPUWindowCauseDurationKey(idle.Cause.String()), int64(idle.Time))
	}
	if d.queueMax > 0 {
		putInt(m, semconv.GPUWindowQueueMaxKey, int64(d.queueMax))
	}
	if r.Kernels > 0 {
		var all int64
		times := map[string]int64{}
		for _, k := range r.ByKernel {
			all += int64(k.Time)
			times[k.Name] += int64(k.Time)
		}
		putInt(m, semconv.GPUWindowKernelCountKey, r.Kernels)
		putSeconds(m, semconv.GPUWindowKernelDurationKey, all)
		putSeconds(m, semconv.GPUWindowComputeDurationKey, int64(parts.Computing))
		putSeconds(m, semconv.GPUWindowNonComputeDurationKey, int64(r.Window-parts.Idle-parts.Computing))
		putTexts(m, semconv.GPUSummaryKernelNamesKey, topNames(times))
	}
	d.computed.write(m)
	writeEfficiency(m, &r.Efficiency)
	if len(r.Copies) > 0 {
		putSeconds(m, semconv.GPUWindowMemoryDurationKey, int64(parts.CopyExposed+parts.CopyHidden))
		putSeconds(m, semconv.GPUWindowMemoryExposedDurationKey, int64(parts.CopyExposed))
	}
	if len(r.Collectives) > 0 {
		comm := parts.CommExposed + parts.CommHidden
		putSeconds(m, semconv.GPUWindowCommDurationKey, int64(comm))
		putSeconds(m, semconv.GPUWindowOverlapDurationKey, int64(parts.CommHidden))
		putSeconds(m, semconv.GPUWindowCommExposedDurationKey, int64(parts.CommExposed))
		if comm > 0 {
			m.PutDouble(string(semconv.GPUWindowOverlapRatioKey), float64(parts.CommHidden)/float64(comm))
		}
	}
	if a := sw.memories[d.ordinal]; a != nil {
		s.allocated(m, a)
	}
	PutFinding(sp, sp.EndTimestamp(), r.Findings...)
	s.reports = append(s.reports, r)
}

// facts returns what a report needs besides the activities.
func (s *spans) facts(d *deviceWindow, sw *sweep) *facts.Context {
	f := s.naming()
	f.Ordinal, f.Model, f.Steps = d.ordinal, s.p.modelOf(d.ordinal), sw.steps
	f.World = s.p.Meta.WorldSize
	f.Peak = facts.PeakOf(f.Model)
	f.Modules = &sw.modules
	f.Clocks, f.Windows = s.p.clocks[d.ordinal], s.p.Meta.Windows
	if m := sw.memories[d.ordinal]; m != nil {
		f.Memory = s.memory(m)
	}
	return f
}

func (s *spans) naming() *facts.Context {
	return &facts.Context{Name: s.p.Names.text, Kernel: s.shortName}
}

func (s *spans) memory(m *allocated) facts.Memory {
	if !m.hasUsage {
		return facts.Memory{}
	}
	return facts.Memory{
		First: m.first, Highest: m.highest, At: s.p.Names.text(m.at), Levels: m.levels.From(s.p.Meta.Base),
	}
}
