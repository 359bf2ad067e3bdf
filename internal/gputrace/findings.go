// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gputrace

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/semconv"
)

// Finding is something that is probably worth a look.
type Finding struct {
	Kind      string // value of gpu.finding.kind
	Subject   string // "GPU 0", or the name of a step
	Value     float64
	Threshold float64
	Evidence  string
	Cost      time.Duration // time at stake, an upper bound of what could be gained
}

// String is one sentence with evidence and threshold.
func (f Finding) String() string {
	return fmt.Sprintf("%s, %s: %s (%.3g, threshold %.3g)", f.Kind, f.Subject, f.Evidence, f.Value, f.Threshold)
}

// Thresholds of findings: parts of the time of the window or step, unless said otherwise.
const (
	thresholdIdle     = 0.2  // idle time of the device
	thresholdHost     = 0.2  // idle time that the host caused
	thresholdPageable = 0.01 // copies from or to pageable memory
	thresholdLoader   = 0.1  // of the steps' time in phase data
	thresholdSync     = 0.1  // host time in calls that wait
	thresholdShort    = 0.5  // of kernels: shorter than 10 µs
	minShort          = 500  // kernels of which that is said
	thresholdExposed  = 0.05 // communication that nothing hides
	thresholdSpike    = 0.25 // growth within a step ÷ most memory allocated
	thresholdOpaque   = 0.5  // of kernel time: in compiled regions
	thresholdNarrow   = 0.25 // of kernel time with a known grid: fewer blocks than SMs
)

func span(ns int64) string {
	d := time.Duration(ns)
	switch {
	case d >= time.Second:
		d = d.Round(10 * time.Millisecond)
	case d >= time.Millisecond:
		d = d.Round(10 * time.Microsecond)
	default:
		d = d.Round(10 * time.Nanosecond)
	}
	return d.String()
}

// finder gathers findings of one subject.
type finder struct {
	subject string
	list    []Finding
}

func (f *finder) add(kind string, part, whole int64, threshold float64, cost int64, format string, args ...any) {
	if whole <= 0 || float64(part)/float64(whole) < threshold {
		return
	}
	f.list = append(f.list, Finding{
		Kind: kind, Subject: f.subject, Value: float64(part) / float64(whole), Threshold: threshold,
		Evidence: fmt.Sprintf(format, args...), Cost: time.Duration(cost),
	})
}

// findings of a device over the window.
func (s *spans) deviceFindings(d *deviceWindow, sw *sweep) []Finding {
	f := &finder{subject: "GPU " + itoa(d.ordinal)}
	window := d.all.span()
	idle := window - d.all.total
	f.add(semconv.GPUFindingKindIdleDevice, idle, window, thresholdIdle, idle,
		"idle for %s of %s: %s waiting for the host, %s after a launch, %s without a launch in the file",
		span(idle), span(window), span(d.idle.host), span(d.idle.launch), span(d.idle.unknown))
	f.add(semconv.GPUFindingKindHostStarved, d.idle.host, window, thresholdHost, d.idle.host,
		"waited %s for launches; the host was in %s", span(d.idle.host), s.culprits(d.culprits))
	f.add(semconv.GPUFindingKindPageableCopies, d.pageable.time, window, thresholdPageable, d.pageable.time,
		"%d copies of %d bytes from or to pageable memory took %s, %.3g GB/s",
		d.pageable.count, d.pageable.bytes, span(d.pageable.time), float64(d.pageable.bytes)/float64(max(d.pageable.time, 1)))
	if d.short.count >= minShort {
		f.add(semconv.GPUFindingKindShortKernels, d.short.count, d.kernels, thresholdShort, d.short.time,
			"%d of %d kernels are shorter than %s, %s together", d.short.count, d.kernels, span(shortKernel), span(d.short.time))
	}
	exposed := d.comm.total - d.overlap()
	f.add(semconv.GPUFindingKindExposedCommunication, exposed, window, thresholdExposed, exposed,
		"%s of %s of communication ran without computation beside it", span(exposed), span(d.comm.total))
	f.add(semconv.GPUFindingKindOpaqueRegions, d.opaque.time, d.kernelTime, thresholdOpaque, 0,
		"%d kernels, %s of %s, run in compiled regions that do not show their operators", d.opaque.count, span(d.opaque.time), span(d.kernelTime))
	f.add(semconv.GPUFindingKindLowParallelism, d.narrow.time, d.gridTime, thresholdNarrow, d.narrow.time,
		"%d kernels, %s of %s, have fewer blocks than the device has SMs", d.narrow.count, span(d.narrow.time), span(d.gridTime))
	if p := d.process; p.syncs > 0 && window > 0 {
		f.add(semconv.GPUFindingKindSynchronization, p.syncTime, window, thresholdSync, p.syncTime,
			"the host waited for the device in %d calls, %s together", p.syncs, span(p.syncTime))
	}
	f.add(semconv.GPUFindingKindLoaderGaps, sw.stepData, sw.stepTime, thresholdLoader, sw.stepData,
		"%s of %s of steps waited for data", span(sw.stepData), span(sw.stepTime))
	slices.SortStableFunc(f.list, func(a, b Finding) int { return cmp.Compare(b.Cost, a.Cost) })
	return f.list
}

// stepFindings are those of one step.
func (s *spans) stepFindings(name string, st *step) []Finding {
	f := &finder{subject: name}
	length := st.end - st.start
	if st.busy.any && len(st.devices) == 1 {
		idle := length - st.busy.total
		f.add(semconv.GPUFindingKindIdleDevice, idle, length, thresholdIdle, idle, "the device was idle for %s of %s", span(idle), span(length))
	}
	if data := st.phases["data"]; data != nil {
		f.add(semconv.GPUFindingKindLoaderGaps, data.total, length, thresholdLoader, data.total, "%s of %s waited for data", span(data.total), span(length))
	}
	exposed := st.exposed()
	f.add(semconv.GPUFindingKindExposedCommunication, exposed, length, thresholdExposed, exposed,
		"%s of %s of communication ran without computation beside it", span(exposed), span(st.comm.total))
	if m := &st.allocated; m.hasUsage {
		f.add(semconv.GPUFindingKindMemorySpike, m.highest-m.first, m.highest, thresholdSpike, 0,
			"allocated memory grew from %d to %d bytes", m.first, m.highest)
	}
	return f.list
}

// culprits names the three host ranges that most of the time was waited for.
func (s *spans) culprits(times map[uint32]int64) string {
	type culprit struct {
		name string
		time int64
	}
	var list []culprit
	for id, t := range times {
		name := "no named range"
		if id != 0 {
			name = clip(s.p.Names.Name(id), 80)
		}
		list = append(list, culprit{name, t})
	}
	slices.SortFunc(list, func(a, b culprit) int { return cmp.Or(cmp.Compare(b.time, a.time), cmp.Compare(a.name, b.name)) })
	var text []string
	for _, c := range list[:min(3, len(list))] {
		text = append(text, fmt.Sprintf("%s (%s)", c.name, span(c.time)))
	}
	return strings.Join(text, ", ")
}

// findingEvent is the name of the span events that findings are.
const findingEvent = "finding"

func writeFindings(sp ptrace.Span, at pcommon.Timestamp, list []Finding) {
	for _, f := range list {
		e := sp.Events().AppendEmpty()
		e.SetName(findingEvent)
		e.SetTimestamp(at)
		m := e.Attributes()
		m.PutStr(string(semconv.GPUFindingKindKey), f.Kind)
		putText(m, semconv.GPUFindingEvidenceKey, f.Evidence)
		m.PutDouble(string(semconv.GPUFindingValueKey), f.Value)
		m.PutDouble(string(semconv.GPUFindingThresholdKey), f.Threshold)
		if f.Cost > 0 {
			putSeconds(m, semconv.GPUFindingCostKey, int64(f.Cost))
		}
	}
}
