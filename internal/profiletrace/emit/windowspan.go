// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package emit

import (
	"maps"
	"slices"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/profiletrace/link"
	"github.com/otelgpu/otelgpu/internal/profiletrace/vocabulary"
	"github.com/otelgpu/otelgpu/semconv"
)

// windows writes the root span of each process and below it one span per device.
func (s *spans) windows(sw *link.Sweep, devices []*link.DeviceFacts, host *finding.Finding) error {
	for _, pid := range slices.Sorted(maps.Keys(sw.Processes)) {
		n := kept(sw.Processes[pid].Window)
		sp := s.new(n.process, n.self, n.up, n.Start, n.End)
		sp.SetName(s.p.Root)
		for _, l := range n.link {
			l.add(sp)
		}
		putText(sp.Attributes(), semconv.GPUTracePartialKey, s.p.Meta.Partial)
		s.summary(sp.Attributes(), n.sum)
		if host != nil && n.process == sw.Main {
			PutFinding(sp, *host)
		}
	}
	for _, d := range devices {
		s.deviceWindow(d)
	}
	return s.err
}

// deviceWindow writes the span of a device's window.
func (s *spans) deviceWindow(d *link.DeviceFacts) {
	r := &d.Report
	w := kept(d.Process.Window)
	c := spanRef{w.self.trace, s.p.ids.span(idDevice, d.Ordinal)}
	sp := s.on(d.Ordinal, d.Process, c, w.self.span, d.First, d.End)
	sp.SetName(vocabulary.DeviceName(d.Ordinal))
	m := sp.Attributes()
	s.identity(m, d.Ordinal)
	if x := s.p.UsedExtent(); x != link.ExtentAll {
		putText(m, semconv.GPUWindowExtentKey, x.String())
	}
	parts := &r.Parts
	putSeconds(m, semconv.GPUWindowDurationKey, r.Window)
	putSeconds(m, semconv.GPUWindowBusyDurationKey, r.Window-parts.Idle-parts.NotRecorded)
	putSeconds(m, semconv.GPUWindowIdleDurationKey, parts.Idle)
	if parts.NotRecorded > 0 {
		putSeconds(m, semconv.GPUWindowNotRecordedDurationKey, parts.NotRecorded)
	}
	for _, idle := range r.Idle {
		putSeconds(m, semconv.GPUWindowCauseDurationKey(idle.Cause.String()), idle.Time)
	}
	if d.QueueMax > 0 {
		putInt(m, semconv.GPUWindowQueueMaxKey, int64(d.QueueMax))
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
		putSeconds(m, semconv.GPUWindowComputeDurationKey, parts.Computing)
		putSeconds(m, semconv.GPUWindowNonComputeDurationKey, r.Window-parts.Idle-parts.NotRecorded-parts.Computing)
		putTexts(m, semconv.GPUSummaryKernelNamesKey, topNames(times))
	}
	writeComputed(m, &d.Computed)
	writeEfficiency(m, &r.Efficiency)
	if len(r.Copies) > 0 {
		putSeconds(m, semconv.GPUWindowMemoryDurationKey, parts.CopyExposed+parts.CopyHidden)
		putSeconds(m, semconv.GPUWindowMemoryExposedDurationKey, parts.CopyExposed)
	}
	if len(r.Collectives) > 0 {
		comm := parts.CommExposed + parts.CommHidden
		putSeconds(m, semconv.GPUWindowCommDurationKey, comm)
		putSeconds(m, semconv.GPUWindowOverlapDurationKey, parts.CommHidden)
		putSeconds(m, semconv.GPUWindowCommExposedDurationKey, parts.CommExposed)
		if comm > 0 {
			putNumber(m, semconv.GPUWindowOverlapRatioKey, float64(parts.CommHidden)/float64(comm))
		}
	}
	if d.Allocated != nil {
		s.allocated(m, d.Allocated)
	}
	PutFinding(sp, r.Findings...)
}

// samePrecision is the part of the FLOPs from which on their precision is the sum's: the rest,
// rotary embeddings in single precision among products in bfloat16, changes a utilization by no
// more than this.
const samePrecision = 0.99

// writeComputed writes the sum with the part of the kernel time that it covers. If no operator is
// known there is no sum.
func writeComputed(m pcommon.Map, c *link.Computed) {
	if c.Flops == 0 {
		return
	}
	putNumber(m, semconv.GPUFLOPCountKey, c.Flops)
	for precision, flops := range c.By {
		if flops >= samePrecision*c.Flops {
			putText(m, semconv.GPUFLOPPrecisionKey, precision)
		}
	}
	if c.All > 0 {
		putNumber(m, semconv.GPUFLOPCoverageKey, c.Coverage())
	}
}
