// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/internal/profiletrace/rules"
	activities "github.com/otelgpu/otelgpu/internal/profiletrace/timeline"
	"github.com/otelgpu/otelgpu/semconv"
)

// bare removes the operation type from spans, so that they look like spans of a service.
func bare(td ptrace.Traces, change func(ptrace.Span)) ptrace.Traces {
	for _, s := range td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().All() {
		s.Attributes().Remove("gpu.operation.type")
		change(s)
	}
	return td
}

// during returns a finding with the times of its first and last occurrence before noon.
func during(f finding.Finding, from, to time.Duration) finding.Finding {
	f.From, f.To = float64(noon.Add(-from).UnixMilli()), float64(noon.Add(-to).UnixMilli())
	return f
}

func traceID(n byte) string { return pcommon.TraceID{15: n + 1}.String() }

func TestFindingsArePrinted(t *testing.T) {
	m := at()
	require.Empty(t, m.State(Query{}).Findings)

	// Five requests of 50 ms and one of 400 ms, each with a usage record; the length of a seventh
	// is unknown.
	for i := range byte(7) {
		length := 50 * time.Millisecond
		if i == 3 {
			length = 400 * time.Millisecond
		}
		if i < 6 {
			m.Traces(bare(traces(t, span{name: "POST", start: 2 * time.Second, length: length, trace: i}),
				func(s ptrace.Span) { s.SetKind(ptrace.SpanKindServer) }))
		}
		m.Traces(traces(t, span{
			name: "decode", kind: "share", start: 2 * time.Second, length: length, trace: i,
			attributes: map[string]any{"gpu.energy": 2.5 * float64(i)},
		}))
	}
	// A clock that is throttled in 2 of 3 runs of gemm, and in work concurrent with one of them.
	capped := map[string]any{"gpu.flop.count": 1e9, "gpu.throttle.reasons": []any{"sw_power_cap"}}
	free := map[string]any{"gpu.flop.count": 1e9}
	for i := range byte(3) {
		attributes := capped
		if i == 0 {
			attributes = free
		}
		m.Traces(traces(t, span{
			name: "gemm", kind: "section", start: 3 * time.Second, length: 30 * time.Millisecond, trace: 20 + i,
			attributes: attributes,
		}))
	}
	for i := range byte(10) {
		attributes := free
		if i == 0 {
			attributes = capped
		}
		m.Traces(traces(t, span{
			name: "beside", kind: "section", start: 3 * time.Second, length: 2 * time.Millisecond, attributes: attributes,
		}))
	}
	// Copies through pageable memory: the one that moves most bytes. A pinned copy moves more.
	for name, memory := range map[string]string{"small": "pageable", "large": "pageable", "pinned": "pinned"} {
		size := map[string]int{"small": 1e6, "large": 20e6, "pinned": 100e6}[name]
		m.Traces(traces(t, span{
			name: name, kind: "copy", start: 4 * time.Second, length: 10 * time.Millisecond, trace: 30,
			attributes: map[string]any{
				"gpu.copy.host_memory": memory, "gpu.copy.direction": "host_to_device", "gpu.io.size": 10 * size,
				"gpu.roofline.utilization": 0.25, "gpu.duration": 0.01,
			},
		}))
	}
	// Rank 1 is late in two of three steps, and its device also works for another service.
	for i := range 3 {
		m.Traces(traces(t, span{
			name: "train", kind: "step", start: 5 * time.Second, length: time.Second, trace: 40,
			attributes: map[string]any{"gpu.step.index": i},
		}))
	}
	for i := range byte(2) {
		m.Traces(bare(traces(t, span{
			name: "straggler backward", start: 5 * time.Second, length: time.Second, trace: 40 + i,
			attributes: map[string]any{
				"gpu.straggler.score": 1.25 + 0.25*float64(i), "gpu.straggler.median": 0.1,
				"gpu.straggler.delay": 0.02, "gpu.straggler.rank.count": 4, "gpu.straggler.section": "backward",
				"gpu.operation.name": "train",
			},
		}), func(ptrace.Span) {}))
	}
	chat := traces(t, span{name: "prefill", kind: "section", start: 6 * time.Second, length: time.Millisecond})
	chat.ResourceSpans().At(0).Resource().Attributes().PutStr("service.name", "chat")
	m.Traces(chat)

	late := finding.New(semconv.GPUFindingKindLateRank, finding.Medium)
	late.Subject, late.Trace, late.Share, late.Threshold = "rank 1", traceID(41), 0.025, semconv.FindingLateRankLiveThreshold
	late.Gain = 75 * time.Millisecond
	late.Chain = []string{
		"rank 1 of 4 is late in 2 of 3 steps, by 37.5ms on average, 20ms of it in backward",
		"chat runs on its GPU, too", "each of the others waits 75ms for it",
	}
	pageable := found(semconv.GPUFindingKindPageableCopies, "large",
		"large moves through pageable memory at 20.0 GB/s, 25 % of the bus", 20./141, traceID(30))
	pageable.Threshold = semconv.FindingPageableCopiesLiveThreshold
	list := m.State(Query{Range: time.Minute}).Findings
	for i, want := range []finding.Finding{
		during(late, 4*time.Second, 4*time.Second),
		during(found(semconv.GPUFindingKindSlowRequest, "svc", "400ms, the median of 6 takes 50ms; it used 7.5 J", 8, traceID(3)),
			2*time.Second, 1600*time.Millisecond),
		during(found(semconv.GPUFindingKindThrottle, "gemm",
			"2 of 3 spans of gemm ran with a throttled clock, 60ms of GPU time (sw_power_cap)", 2./3, traceID(20)),
			5*time.Second, 0),
		during(pageable, 5*time.Second, 0),
	} {
		require.InDelta(t, want.Share, list[i].Share, 1e-3, want.Kind)
		list[i].Share = want.Share
		require.Equal(t, want, list[i])
	}
	require.Len(t, list, 4)
	s := m.State(Query{From: noon.Add(-50 * time.Second), To: noon.Add(-40 * time.Second)})
	require.Empty(t, s.Findings, "in another time")
	for _, o := range m.State(Query{}).Operations {
		require.EqualValues(t, map[string]int{"gemm": 2, "beside": 1}[o.Name], o.Held, o.Name)
	}
	for _, q := range m.State(Query{}).Requests {
		want := map[string]float64{traceID(3): 0.4, traceID(6): 0}
		if v, ok := want[q.Trace]; ok {
			require.InDelta(t, v, q.Duration, 1e-12)
		}
	}
}

func TestFewOrEqualRequestsAreNoFinding(t *testing.T) {
	for name, lengths := range map[string][]int{"few": {1, 1, 1, 9}, "even": {10, 11, 12, 13, 19}} {
		m := at()
		for i, length := range lengths {
			d := time.Duration(length) * time.Millisecond
			account := traces(t, span{name: "decode", kind: "share", start: time.Second, length: d, trace: byte(i)})
			server := bare(traces(t, span{name: "POST", start: time.Second, length: d, trace: byte(i)}),
				func(s ptrace.Span) { s.SetKind(ptrace.SpanKindServer) })
			m.Traces(account) // the usage record may also arrive first
			m.Traces(server)
		}
		require.Empty(t, m.State(Query{}).Findings, name)
		require.InDelta(t, float64(lengths[0])/1e3, m.requests.Get(pcommon.TraceID{15: 1}).Duration, 1e-12)
	}
}

// Thousands of requests later, the slow one has been evicted, but its finding stays for its time.
func TestTheSlowestRequestIsKeptWhenOthersAreEvicted(t *testing.T) {
	m := at()
	request := func(i int, start, length time.Duration) {
		td := traces(t, span{name: "llm_request", kind: "request", start: start, length: length})
		td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0).SetTraceID(pcommon.TraceID{1, byte(i >> 8), byte(i)})
		m.Traces(td)
	}
	request(0, time.Second, 400*time.Millisecond)
	for i := range maxRequests + 100 {
		request(i+1, time.Second, 10*time.Millisecond)
	}
	require.Nil(t, m.requests.Get(pcommon.TraceID{1}))
	require.Equal(t, maxRequests, m.requests.Len())
	list := m.State(Query{}).Findings
	require.Len(t, list, 1)
	require.Contains(t, list[0].Chain[0], "400ms, the median of 4001 takes 10ms")
	now := m.now()
	later := m.State(Query{From: now.Add(time.Hour), To: now.Add(2 * time.Hour)}).Findings
	require.Empty(t, later, "it was before")
}

func TestLengthsOfRequestsWithoutAUsageRecordAreBounded(t *testing.T) {
	m := at()
	for i := range maxRequests + 5 {
		td := bare(traces(t, span{name: "POST", start: time.Second, length: time.Millisecond}), func(s ptrace.Span) {
			s.SetKind(ptrace.SpanKindServer)
			s.SetTraceID(pcommon.TraceID{1, byte(i >> 8), byte(i)})
		})
		m.Traces(td)
		m.Traces(td)
	}
	require.Equal(t, maxRequests, m.lengths.Len())
	require.Zero(t, m.lengths.Get(pcommon.TraceID{1, 0, 4}), "the oldest leave")
}

// One copy of 4 bytes and one throttled span of a thousand are irrelevant. Tests both sides of each
// threshold.
func TestLiveFindingsHaveThresholds(t *testing.T) {
	for name, c := range map[string]struct {
		copied, held, free time.Duration // free: other runs of the throttled operation
		all                time.Duration
		want               int
	}{
		"short copy": {9 * time.Millisecond, 0, 0, time.Second, 0}, "long copies": {11 * time.Millisecond, 0, 0, time.Second, 1},
		"throttled for less than 0.1 %": {0, 900 * time.Microsecond, 0, time.Second, 0},
		"throttled for more":            {0, 1100 * time.Microsecond, 0, time.Second, 1},
		"throttled in 4 % of its time":  {0, 4 * time.Millisecond, 96 * time.Millisecond, time.Second, 0},
		"throttled in 6 % of its time":  {0, 6 * time.Millisecond, 94 * time.Millisecond, time.Second, 1},
		"throttled for 49 ms of 100 s":  {0, 49 * time.Millisecond, 0, 100 * time.Second, 0},
		"throttled for 51 ms of 100 s":  {0, 51 * time.Millisecond, 0, 100 * time.Second, 1},
	} {
		m := at()
		section := func(name string, length time.Duration, attributes map[string]any) {
			if length > 0 {
				m.Traces(traces(t, span{
					name: name, kind: "section", start: 3 * time.Second, length: length, attributes: attributes,
				}))
			}
		}
		section("work", time.Second-c.copied-c.held-c.free, nil)
		for range c.all/time.Second - 1 {
			section("work", time.Second, nil)
		}
		section("gemm", c.held, map[string]any{"gpu.flop.count": 1e9, "gpu.throttle.reasons": []any{"sw_power_cap"}})
		section("gemm", c.free, map[string]any{"gpu.flop.count": 1e9})
		if c.copied > 0 {
			m.Traces(traces(t, span{
				name: "copy", kind: "copy", start: 4 * time.Second, length: c.copied,
				attributes: map[string]any{
					"gpu.copy.host_memory": "pageable", "gpu.io.size": 4, "gpu.duration": c.copied.Seconds(),
				},
			}))
		}
		require.Len(t, m.State(Query{Range: time.Minute}).Findings, c.want, name)
	}
}

// liveCases has a row for each finding of the page with a threshold: telemetry whose value is a
// multiple of it.
var liveCases = map[string]func(t *testing.T, m *Model, of float64){
	semconv.GPUFindingKindLateRank: func(t *testing.T, m *Model, of float64) {
		for i := range 10 {
			m.Traces(traces(t, span{
				name: "train", kind: "step", start: 5 * time.Second, length: time.Second, trace: 40,
				attributes: map[string]any{"gpu.step.index": i},
			}))
		}
		m.Traces(bare(traces(t, span{name: "straggler", start: 5 * time.Second, length: time.Second, trace: 41, attributes: map[string]any{
			"gpu.straggler.score": 2.0, "gpu.straggler.median": 10 * of * semconv.FindingLateRankLiveThreshold,
			"gpu.straggler.rank.count": 4, "gpu.operation.name": "train",
		}}), func(ptrace.Span) {}))
	},
	semconv.GPUFindingKindMemoryLimit: func(_ *testing.T, m *Model, of float64) {
		m.put("hw.gpu.memory.limit", 20*time.Second, 1e11, true, nil)
		m.put("hw.gpu.memory.usage", 20*time.Second, 1e11*of*semconv.FindingMemoryLimitThreshold, true, nil)
	},
	semconv.GPUFindingKindPageableCopies: func(t *testing.T, m *Model, of float64) {
		length := time.Duration(1e9 * of * semconv.FindingPageableCopiesLiveThreshold)
		m.Traces(traces(t, span{name: "work", kind: "section", start: 3 * time.Second, length: time.Second - length}))
		m.Traces(traces(t, span{name: "copy", kind: "copy", start: 4 * time.Second, length: length, attributes: map[string]any{
			"gpu.copy.host_memory": "pageable", "gpu.io.size": 4, "gpu.duration": length.Seconds(),
		}}))
	},
	semconv.GPUFindingKindSlowRequest: func(t *testing.T, m *Model, of float64) {
		for i := range byte(semconv.FindingSlowRequestRequests) {
			length := 50 * time.Millisecond
			if i == 3 {
				length = time.Duration(of * semconv.FindingSlowRequestThreshold * float64(length))
			}
			m.Traces(bare(traces(t, span{name: "POST", start: 2 * time.Second, length: length, trace: i}),
				func(s ptrace.Span) { s.SetKind(ptrace.SpanKindServer) }))
			m.Traces(traces(t, span{name: "decode", kind: "share", start: 2 * time.Second, length: length, trace: i}))
		}
	},
	semconv.GPUFindingKindStarved: func(t *testing.T, m *Model, of float64) {
		m.Traces(traces(t, span{name: "train", kind: "step", start: 5 * time.Second, length: time.Second, trace: 3}))
		starved := 2 * semconv.FindingStarvedObserved * of * semconv.FindingStarvedThreshold
		m.put("hw.gpu.utilization", 30*time.Second, 0.98*semconv.FindingStarvedBusy, false, nil)
		for state, seconds := range map[string]float64{"starved": starved, "covered": 2*semconv.FindingStarvedObserved - starved} {
			m.put("gpu.section.time", 30*time.Second, 100, true, map[string]any{"gpu.section.state": state})
			m.put("gpu.section.time", 10*time.Second, 100+seconds, true, map[string]any{"gpu.section.state": state})
		}
	},
	semconv.GPUFindingKindThrottle: func(t *testing.T, m *Model, of float64) {
		held := time.Duration(1e9 * of * semconv.FindingThrottleLiveThreshold)
		m.Traces(traces(t, span{name: "work", kind: "section", start: 3 * time.Second, length: time.Second - held}))
		m.Traces(traces(t, span{name: "gemm", kind: "section", start: 3 * time.Second, length: held, attributes: map[string]any{
			"gpu.flop.count": 1e9, "gpu.throttle.reasons": []any{"sw_power_cap"},
		}}))
	},
}

func TestEveryLiveFindingHasItsThreshold(t *testing.T) {
	for _, kind := range semconv.FindingKinds() {
		switch {
		case !slices.Contains(kind.ReportedBy, "page"):
			require.NotContains(t, liveCases, kind.Kind)
			continue
		case kind.Threshold == 0: // TestDeviceErrorsAreFindings
			continue
		}
		put := liveCases[kind.Kind]
		require.NotNil(t, put, "add a row for %s", kind.Kind)
		with := func(of float64) []finding.Finding {
			m := at()
			put(t, m, of)
			return m.State(Query{Range: time.Minute}).Findings
		}
		require.Empty(t, with(0.98), "%s below its threshold", kind.Kind)
		list := with(1.02)
		require.Len(t, list, 1, "%s above its threshold", kind.Kind)
		require.Equal(t, kind.Kind, list[0].Kind)
		require.Equal(t, kind.Remedy, list[0].Remedy)
		require.GreaterOrEqual(t, list[0].Share, list[0].Threshold)
	}
}

// A process that copies through pageable memory has the same finding from its spans as from its
// profile.
func TestTheSameFactsGiveTheSameFindingAsInAProfile(t *testing.T) {
	for share, is := range map[float64]bool{0.009: false, 0.051: true, 0.3: true} {
		copied := time.Duration(share * float64(time.Second))
		m := at()
		m.Traces(traces(t, span{name: "work", kind: "section", start: 3 * time.Second, length: time.Second - copied}))
		m.Traces(traces(t, span{name: "batch", kind: "copy", start: 4 * time.Second, length: copied, attributes: map[string]any{
			"gpu.copy.host_memory": "pageable", "gpu.io.size": 1e6, "gpu.duration": copied.Seconds(),
		}}))
		live := m.State(Query{Range: time.Minute}).Findings

		c := facts.Copy{Direction: activities.HostToDevice, Memory: "pageable", Count: 1, Bytes: 1e6, Exposed: copied}
		d := &facts.Totals{}
		d.Parts[activities.Computing] = int64(time.Second - copied)
		name := func(uint32) string { return "" }
		list := rules.Device(d, &facts.Context{Name: name, Kernel: name, Peak: facts.PeakOf("")},
			&facts.Report{Window: time.Second, Copies: []facts.Copy{c}})
		i := slices.IndexFunc(list, func(f finding.Finding) bool { return f.Kind == semconv.GPUFindingKindPageableCopies })
		require.Equal(t, is, i >= 0, "%g: %s", share, list)
		if !is {
			require.Empty(t, live)
			continue
		}
		require.Len(t, live, 1)
		require.Equal(t, list[i].Kind, live[0].Kind)
		require.Equal(t, list[i].Remedy, live[0].Remedy)
		require.InDelta(t, list[i].Share, live[0].Share, 1e-9)
	}
}

// Two runs of one job have separate ranks.
func TestRanksOfTwoJobsAreNotMixed(t *testing.T) {
	m := at()
	job := func(td ptrace.Traces, id string) ptrace.Traces {
		td.ResourceSpans().At(0).Resource().Attributes().PutStr("gpu.job.id", id)
		return td
	}
	for id, late := range map[string]int{"run-1": 2, "run-2": 3} {
		for i := range 10 {
			m.Traces(job(traces(t, span{
				name: "train", kind: "step", start: 5 * time.Second, length: time.Second, trace: 40,
				attributes: map[string]any{"gpu.step.index": i},
			}), id))
		}
		for range late {
			m.Traces(job(bare(traces(t, span{
				name: "straggler backward", start: 5 * time.Second, length: time.Second, trace: 41,
				attributes: map[string]any{
					"gpu.straggler.score": 1.5, "gpu.straggler.median": 0.1, "gpu.straggler.delay": 0.02,
					"gpu.straggler.rank.count": 4, "gpu.straggler.section": "backward", "gpu.operation.name": "train",
				},
			}), func(ptrace.Span) {}), id))
		}
	}
	list := m.State(Query{Range: time.Minute}).Findings
	require.Len(t, list, 1)
	require.Contains(t, list[0].Chain[0], "rank 1 of 4 of job run-2 is late in 3 of 10 steps, by 50ms on average")
}

// A rank that is late once in many steps is reported only from the live threshold on.
func TestLateRankIsReportedFromItsThresholdOn(t *testing.T) {
	for score, want := range map[float64]int{1.999: 0, 2.001: 1} { // 100 ms of 10 s are the threshold
		m := at()
		for i := range 10 {
			m.Traces(traces(t, span{
				name: "train", kind: "step", start: 5 * time.Second, length: time.Second, trace: 40,
				attributes: map[string]any{"gpu.step.index": i},
			}))
		}
		m.Traces(bare(traces(t, span{
			name: "straggler", start: 5 * time.Second, length: time.Second, trace: 41,
			attributes: map[string]any{
				"gpu.straggler.score": score, "gpu.straggler.median": 0.1, "gpu.straggler.rank.count": 4,
				"gpu.operation.name": "train",
			},
		}), func(ptrace.Span) {}))
		list := m.State(Query{Range: time.Minute}).Findings
		require.Len(t, list, want, score)
		for _, f := range list {
			require.Equal(t, semconv.FindingLateRankLiveThreshold, f.Threshold)
			require.GreaterOrEqual(t, f.Share, f.Threshold)
		}
	}
}

// put adds a point of a metric of device GPU-1 at a time before noon.
func (m *Model) put(name string, before time.Duration, value float64, sum bool, attributes map[string]any) {
	md := pmetric.NewMetrics()
	rm := md.ResourceMetrics().AppendEmpty()
	rm.Resource().Attributes().PutStr("service.name", "svc")
	x := rm.ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
	x.SetName(name)
	points := x.SetEmptyGauge().DataPoints()
	if sum {
		points = x.SetEmptySum().DataPoints()
	}
	p := points.AppendEmpty()
	p.SetDoubleValue(value)
	p.SetTimestamp(pcommon.NewTimestampFromTime(noon.Add(-before)))
	p.Attributes().PutStr("hw.id", "GPU-1")
	p.Attributes().PutStr("hw.name", "gpu0")
	for k, v := range attributes {
		p.Attributes().PutStr(k, v.(string))
	}
	m.Metrics(md)
}

func TestDeviceErrorsAreFindings(t *testing.T) {
	for _, c := range []struct {
		kind   string
		values []float64
		want   string
	}{
		{"xid", []float64{0, 1}, "gpu0 reported 1 XID"},
		{"xid", []float64{5, 5}, ""},
		{"ecc_uncorrected", []float64{2, 4}, "gpu0 reported 2 uncorrected memory errors"},
		{"ecc_corrected", []float64{2, 4}, ""},
		{"xid", []float64{7}, ""}, // errors before the first point
	} {
		m := at()
		m.Traces(traces(t, span{name: "a", kind: "section", start: 25 * time.Second, length: time.Second, trace: 6}))
		m.Traces(traces(t, span{name: "b", kind: "section", start: 5 * time.Second, length: time.Second, trace: 7}))
		for i, v := range c.values {
			at := time.Duration(30-10*i) * time.Second
			m.put("hw.power", at, 100, false, nil)
			m.put("hw.errors", at, v, true, map[string]any{"error.type": c.kind})
		}
		list := m.State(Query{Range: time.Minute}).Findings
		if c.want == "" {
			require.Empty(t, list, c.kind)
			continue
		}
		last := map[float64]time.Duration{1: 20 * time.Second, 4: 20 * time.Second}[c.values[1]]
		want := found(semconv.GPUFindingKindDeviceError, "gpu0", c.want, 0, traceID(6))
		require.Equal(t, []finding.Finding{during(want, 20*time.Second, last)}, list)
		require.Empty(t, m.State(Query{From: noon.Add(-15 * time.Second), To: noon}).Findings, "it was before")
	}
}

// Each kind of error has a separate counter.
func TestDeviceErrorsAreCountedByKind(t *testing.T) {
	m := at()
	for i := range 3 {
		before := time.Duration(30-10*i) * time.Second
		m.put("hw.power", before, 100, false, nil)
		m.put("hw.errors", before, 5, true, map[string]any{"error.type": "xid"})
		m.put("hw.errors", before, 7, true, map[string]any{"error.type": "ecc_uncorrected"})
	}
	require.Empty(t, m.State(Query{Range: time.Minute}).Findings)
}

func TestMemoryNearItsLimitIsAFinding(t *testing.T) {
	const gib = 1 << 30
	for used, want := range map[float64]int{0.96: 0, 0.98: 1} {
		m := at()
		m.put("hw.gpu.memory.limit", 20*time.Second, 80*gib, true, nil)
		m.put("hw.gpu.memory.usage", 20*time.Second, 80*gib*used, true, nil)
		m.put("hw.gpu.memory.usage", 10*time.Second, gib, true, nil)
		list := m.State(Query{Range: time.Minute}).Findings
		require.Len(t, list, want)
		if want > 0 {
			require.Equal(t, during(found(semconv.GPUFindingKindMemoryLimit, "gpu0", "gpu0 had 78.4 of 80.0 GiB in use",
				list[0].Share, ""), 20*time.Second, 20*time.Second), list[0])
		}
	}
}

func TestAStarvedDeviceIsAFinding(t *testing.T) {
	for name, c := range map[string]struct {
		starved, covered, utilization float64
		trains                        bool
		want                          int
	}{
		"below the threshold":      {5.9, 14.1, 0.3, true, 0},
		"above the threshold":      {6.1, 13.9, 0.3, true, 1},
		"no training":              {6.1, 13.9, 0.3, false, 0},
		"others keep it busy":      {6.1, 13.9, 0.9, true, 0},
		"too short to be judged":   {3, 6, 0.3, true, 0},
		"just enough to be judged": {4, 6.5, 0.3, true, 1},
	} {
		m := at()
		if c.trains {
			m.Traces(traces(t, span{name: "train", kind: "step", start: 5 * time.Second, length: time.Second, trace: 3}))
		}
		m.put("hw.gpu.utilization", 30*time.Second, c.utilization, false, nil)
		for state, seconds := range map[string]float64{"starved": c.starved, "covered": c.covered} {
			m.put("gpu.section.time", 30*time.Second, 100, true, map[string]any{"gpu.section.state": state})
			m.put("gpu.section.time", 10*time.Second, 100+seconds, true, map[string]any{"gpu.section.state": state})
		}
		list := m.State(Query{Range: time.Minute}).Findings
		require.Len(t, list, c.want, name)
		if name == "above the threshold" {
			require.Equal(t, during(found(semconv.GPUFindingKindStarved, "gpu0",
				"svc leaves gpu0 without work for 30 % of its time", list[0].Share, traceID(3)),
				10*time.Second, 10*time.Second), list[0])
		}
	}
}

// With delta temporality, each point is an increment.
func TestSectionTimeMayBeDelta(t *testing.T) {
	m := at()
	m.put("hw.power", 30*time.Second, 100, false, nil)
	m.Traces(traces(t, span{name: "train", kind: "step", start: 5 * time.Second, length: time.Second}))
	for i, state := range []string{"starved", "covered", "starved"} {
		md := pmetric.NewMetrics()
		x := md.ResourceMetrics().AppendEmpty()
		x.Resource().Attributes().PutStr("service.name", "svc")
		sum := x.ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
		sum.SetName("gpu.section.time")
		sum.SetEmptySum().SetAggregationTemporality(pmetric.AggregationTemporalityDelta)
		p := sum.Sum().DataPoints().AppendEmpty()
		p.SetDoubleValue(5)
		p.SetTimestamp(pcommon.NewTimestampFromTime(noon.Add(time.Duration(i-20) * time.Second)))
		p.Attributes().PutStr("hw.id", "GPU-1")
		p.Attributes().PutStr("gpu.section.state", state)
		m.Metrics(md)
	}
	require.Equal(t, "svc leaves gpu0 without work for 67 % of its time", m.State(Query{Range: time.Minute}).Findings[0].Chain[0])
}
