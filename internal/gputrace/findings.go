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
	return fmt.Sprintf("%s, %s: %s (%.3g %%, threshold %.3g %%)", f.Kind, f.Subject, f.Evidence, 100*f.Value, 100*f.Threshold)
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
	thresholdSpike    = 0.25 // growth of allocated memory ÷ its highest
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

// shared adds what is found of devices and steps alike, in which the host waited as w says; length is theirs.
func (s *spans) shared(f *finder, t *tallies, w *waitTally, length int64) {
	f.add(semconv.GPUFindingKindHostStarved, t.idle.host, length, thresholdHost, t.idle.host,
		"waited %s for launches; the host was in %s", span(t.idle.host), s.culprits(t.culprits))
	f.add(semconv.GPUFindingKindPageableCopies, t.pageable.time, length, thresholdPageable, t.pageable.time,
		"%s of %s from or to pageable memory took %s, %.3g GB/s",
		count(t.pageable.count, "copy", "copies"), size(t.pageable.bytes), span(t.pageable.time), float64(t.pageable.bytes)/float64(max(t.pageable.time, 1)))
	if t.short.count >= minShort {
		f.add(semconv.GPUFindingKindShortKernels, t.short.count, t.kernels, thresholdShort, t.short.time,
			"%d of %d kernels are shorter than %s, %s together", t.short.count, t.kernels, span(shortKernel), span(t.short.time))
	}
	f.add(semconv.GPUFindingKindOpaqueRegions, t.opaque.time, t.kernelTime, thresholdOpaque, 0,
		"%s, %s of %s, in compiled regions or graphs, which do not show their operators",
		count(t.opaque.count, "kernel", "kernels"), span(t.opaque.time), span(t.kernelTime))
	f.add(semconv.GPUFindingKindLowParallelism, t.narrow.time, t.gridTime, thresholdNarrow, t.narrow.time,
		"%s, %s of %s, with fewer blocks than the device has SMs", count(t.narrow.count, "kernel", "kernels"), span(t.narrow.time), span(t.gridTime))
	if w.count > 0 {
		f.add(semconv.GPUFindingKindSynchronization, w.time, length, thresholdSync, w.time,
			"the host waited for the device in %s, %s together, in %s", count(w.count, "call", "calls"), span(w.time), s.culprits(w.in))
	}
}

func (s *spans) memory(f *finder, m *allocated) {
	if !m.hasUsage {
		return
	}
	where := ""
	if m.at != 0 {
		where = ", which it reached in " + s.rangeName(m.at)
	}
	f.add(semconv.GPUFindingKindMemorySpike, m.highest-m.first, m.highest, thresholdSpike, 0,
		"allocated memory grew from %s to %s%s", size(m.first), size(m.highest), where)
}

// deviceFindings are those of a device over the window.
func (s *spans) deviceFindings(d *deviceWindow, sw *sweep) []Finding {
	f := &finder{subject: "GPU " + itoa(d.ordinal)}
	window := d.all.span()
	idle := window - d.all.total
	f.add(semconv.GPUFindingKindIdleDevice, idle, window, thresholdIdle, idle,
		"idle for %s of %s: %s waiting for the host, %s after a launch, %s without a launch in the file",
		span(idle), span(window), span(d.idle.host), span(d.idle.launch), span(d.idle.unknown))
	s.shared(f, &d.tallies, &d.process.waits, window)
	exposed := d.comm.total - d.overlap()
	f.add(semconv.GPUFindingKindExposedCommunication, exposed, window, thresholdExposed, exposed,
		"%s of %s of communication ran without computation beside it", span(exposed), span(d.comm.total))
	f.add(semconv.GPUFindingKindLoaderGaps, sw.stepData, sw.stepTime, thresholdLoader, sw.stepData,
		"%s of %s of steps waited for data", span(sw.stepData), span(sw.stepTime))
	if m := sw.memories[d.ordinal]; m != nil {
		s.memory(f, m)
	}
	return f.sorted()
}

// stepFindings are those of one step.
func (s *spans) stepFindings(name string, st *step) []Finding {
	f := &finder{subject: name}
	length := st.end - st.start
	if st.busy.any && len(st.devices) == 1 {
		idle := length - st.busy.total
		f.add(semconv.GPUFindingKindIdleDevice, idle, length, thresholdIdle, idle, "the device was idle for %s of %s", span(idle), span(length))
	}
	s.shared(f, &st.tallies, &st.waits, length)
	if data := st.phases["data"]; data != nil {
		f.add(semconv.GPUFindingKindLoaderGaps, data.total, length, thresholdLoader, data.total, "%s of %s waited for data", span(data.total), span(length))
	}
	exposed := st.exposed()
	f.add(semconv.GPUFindingKindExposedCommunication, exposed, length, thresholdExposed, exposed,
		"%s of %s of communication ran without computation beside it", span(exposed), span(st.comm.total))
	s.memory(f, &st.allocated)
	return f.sorted()
}

func (f *finder) sorted() []Finding {
	slices.SortStableFunc(f.list, func(a, b Finding) int { return cmp.Compare(b.Cost, a.Cost) })
	return f.list
}

// size is a number of bytes for people, in powers of 1,000.
func size(bytes int64) string {
	const units = "kMGTPE"
	if bytes < 1000 {
		return itoa(bytes) + " B"
	}
	v, unit := float64(bytes)/1000, 0
	for ; v >= 999.5 && unit < len(units)-1; unit++ {
		v /= 1000
	}
	return fmt.Sprintf("%.3g %cB", v, units[unit])
}

func count(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return itoa(n) + " " + many
}

// rangeName is the name of a host range for a sentence.
func (s *spans) rangeName(id uint32) string {
	if id == 0 {
		return "no named range"
	}
	return clip(s.p.Names.Name(id), 80)
}

// culprits names the three host ranges that most of the time was waited for.
func (s *spans) culprits(times map[uint32]int64) string {
	type culprit struct {
		name string
		time int64
	}
	var list []culprit
	for id, t := range times {
		list = append(list, culprit{s.rangeName(id), t})
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
