// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.uber.org/goleak"

	"github.com/otelgpu/otelgpu/internal/plausibility"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// at returns a model whose clock is stopped at noon.
func at() *Model { return NewWithClock(func() time.Time { return noon }) }

type span struct {
	name, kind string
	start      time.Duration // before noon
	length     time.Duration
	trace      byte
	attributes map[string]any
}

// spanID makes the IDs of all spans different: a span that arrives again is ignored.
var spanID atomic.Uint64

func traces(t testing.TB, spans ...span) ptrace.Traces {
	t.Helper()
	td := ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	require.NoError(t, rs.Resource().Attributes().FromRaw(map[string]any{"service.name": "svc", "gpu.job.rank": 1}))
	ss := rs.ScopeSpans().AppendEmpty()
	require.NoError(t, ss.Scope().Attributes().FromRaw(map[string]any{
		"hw.id": "GPU-1", "hw.name": "gpu0",
		"hw.model": "Model X", "gpu.timing.source": "cuda_event",
	}))
	for _, s := range spans {
		out := ss.Spans().AppendEmpty()
		out.SetName(s.name)
		out.SetTraceID(pcommon.TraceID{15: s.trace + 1})
		var id pcommon.SpanID
		binary.BigEndian.PutUint64(id[:], spanID.Add(1))
		out.SetSpanID(id)
		out.SetStartTimestamp(pcommon.NewTimestampFromTime(noon.Add(-s.start)))
		out.SetEndTimestamp(pcommon.NewTimestampFromTime(noon.Add(-s.start + s.length)))
		require.NoError(t, out.Attributes().FromRaw(s.attributes))
		out.Attributes().PutStr("gpu.operation.type", s.kind)
		if s.kind == "section" || s.kind == "kernel" {
			out.Attributes().PutDouble("gpu.duration", s.length.Seconds())
		}
	}
	return td
}

func TestOperationsAreSumsOfTheirSpansInTheRange(t *testing.T) {
	m := at()
	work := map[string]any{
		"gpu.flop.count": 4e9, "gpu.flop.precision": "bf16", "gpu.io.size": 1000000, "gpu.roofline.bound": "memory",
		"gpu.roofline.utilization": 0.5,
		"gpu.energy":               2.0, "gpu.flop.utilization": 0.1, "gpu.io.utilization": 0.5,
	}
	m.Traces(traces(t,
		span{name: "gemm", kind: "section", start: 5 * time.Second, length: 10 * time.Millisecond, attributes: work},
		span{
			name: "gemm", kind: "section", start: 4 * time.Second, length: 30 * time.Millisecond, trace: 8,
			attributes: work,
		},
		span{name: "gemm", kind: "section", start: 200 * time.Second, length: time.Second, attributes: work},
		span{name: "mlp", kind: "section", start: 300 * time.Second, length: time.Second, attributes: map[string]any{
			"gpu.flop.count": 4e12, "gpu.flop.precision": "bf16", "gpu.io.size": 1, "gpu.roofline.bound": "compute",
			"gpu.roofline.utilization": 0.25,
		}},
		span{name: "account", kind: "share", start: time.Second, length: time.Second},
		span{name: "waits", kind: "request", start: time.Second, length: time.Second},
	))
	s := m.State(Query{Range: time.Minute})
	require.Len(t, s.Operations, 1)
	o := s.Operations[0]
	assert.Equal(t, "gemm", o.Name)
	assert.EqualValues(t, 2, o.Count)
	assert.InDelta(t, 0.040, o.Time, 1e-12)
	assert.InDelta(t, 4, o.Energy, 1e-12)
	assert.InEpsilon(t, 8e9/0.040, o.FLOPRate, 1e-12)
	assert.InEpsilon(t, 2e6/0.040, o.ByteRate, 1e-12)
	assert.InEpsilon(t, 4000, o.Intensity, 1e-12)
	assert.InEpsilon(t, 0.5, o.Roofline, 1e-12)
	assert.Equal(t, "memory", o.Bound)
	assert.Equal(t, pcommon.TraceID{15: 1}.String(), o.Trace, "of the longest run there is")
	require.Len(t, s.Roofs, 1, "the roof is what the spans' share of it says")
	assert.InEpsilon(t, 1e6/1/0.5, s.Roofs[0].Bandwidth, 1e-9)
	assert.InEpsilon(t, 4e12/0.25, s.Roofs[0].FLOPs["bf16"], 1e-9)
	assert.EqualValues(t, 3, m.State(Query{}).Operations[0].Count)
	assert.EqualValues(t, 4, s.Health.GPUSpans, "without usage records and requests")
}

func TestUnknownValuesAreAbsent(t *testing.T) {
	m := at()
	m.Traces(traces(t, span{name: "bare", kind: "section", start: time.Second, length: time.Millisecond}))
	b, err := json.Marshal(m.State(Query{}).Operations[0])
	require.NoError(t, err)
	for _, key := range []string{"energy", "flopRate", "byteRate", "intensity", "roofline", "bound", "items"} {
		assert.NotContains(t, string(b), key)
	}
}

// A clock that is set back leaves future seconds in the strips, which are overwritten.
func TestStripsContinueWhenTheClockIsSetBack(t *testing.T) {
	now := noon.Add(time.Hour + 10*time.Second)
	m := NewWithClock(func() time.Time { return now })
	power := func() {
		md := pmetric.NewMetrics()
		one := md.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
		one.SetName("hw.power")
		p := one.SetEmptyGauge().DataPoints().AppendEmpty()
		p.Attributes().PutStr("hw.id", "GPU-1")
		p.SetDoubleValue(300)
		p.SetTimestamp(pcommon.NewTimestampFromTime(now.Add(-5 * time.Second)))
		m.Metrics(md)
	}
	work := func(start time.Duration) {
		m.Traces(traces(t, span{name: "a", kind: "section", start: start, length: time.Second}))
		power()
	}
	work(-time.Hour)
	now = noon.Add(10 * time.Second)
	work(0)
	d := m.State(Query{Range: time.Minute}).Devices[0]
	covered, powered := 0., 0.
	for i := range d.Covered {
		if d.Covered[i] != nil {
			covered += *d.Covered[i]
		}
		if d.Power[i] != nil {
			powered = *d.Power[i]
		}
	}
	assert.InDelta(t, 1, covered, 1e-9)
	assert.InDelta(t, 300, powered, 1e-9)
}

func TestADevicesStripIsTheUnionOfItsSpans(t *testing.T) {
	m := at()
	m.Traces(traces(t,
		span{name: "a", kind: "section", start: 10 * time.Second, length: 500 * time.Millisecond},
		span{name: "b", kind: "section", start: 10*time.Second - 250*time.Millisecond, length: 500 * time.Millisecond},
		span{name: "c", kind: "section", start: 8 * time.Second, length: 2 * time.Second},
	))
	md := pmetric.NewMetrics()
	ms := md.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics()
	gauge := func(name string, v float64, before time.Duration) {
		x := ms.AppendEmpty()
		x.SetName(name)
		p := x.SetEmptyGauge().DataPoints().AppendEmpty()
		p.SetDoubleValue(v)
		p.SetTimestamp(pcommon.NewTimestampFromTime(noon.Add(-before)))
		p.Attributes().PutStr("hw.id", "GPU-1")
	}
	gauge("hw.gpu.utilization", 0.75, 10*time.Second)
	gauge("hw.power", 300, 10*time.Second)
	gauge("hw.gpu.memory.usage", 3<<30, 10*time.Second)
	gauge("hw.gpu.memory.limit", 80<<30, 10*time.Second)
	gauge("gpu.throttle.time", 1, 11*time.Second)
	gauge("gpu.throttle.time", 1.5, 10*time.Second)
	gauge("gpu.throttle.time", 1.5, 9*time.Second)
	gauge("gpu.throttle.time", 0.2, 8*time.Second)
	last := ms.At(ms.Len() - 1).Gauge().DataPoints().At(0)
	last.Attributes().PutStr("gpu.throttle.reason", "sw_power_cap")
	m.Metrics(md)
	s := m.State(Query{})
	require.Len(t, s.Devices, 1)
	d := s.Devices[0]
	assert.Equal(t, []string{"GPU-1", "gpu0", "Model X"}, []string{d.ID, d.Name, d.Model})
	assert.EqualValues(t, 2, d.Step, "ten minutes in 300 cells")
	s = m.State(Query{Range: time.Minute})
	d = s.Devices[0]
	assert.EqualValues(t, 1, d.Step)
	at := func(before int64) int { return int(noon.Unix() - before - d.Start) }
	assert.InDelta(t, 0.75, *d.Covered[at(10)], 1.0/32)
	assert.InDelta(t, 1, *d.Covered[at(8)], 1e-12)
	assert.InDelta(t, 1, *d.Covered[at(7)], 1e-12)
	assert.Zero(t, *d.Covered[at(9)], "between spans it is known to be idle")
	assert.Nil(t, d.Covered[at(11)], "nothing is known of the time before the first span")
	assert.Equal(t, 0.75, *d.Busy[at(10)])
	assert.Equal(t, 300.0, *d.Power[at(10)])
	assert.Equal(t, 0.5, *d.Throttled[at(10)])
	assert.Nil(t, d.Throttled[at(11)], "of a counter that came with the device it is not known when it rose")
	assert.Zero(t, *d.Throttled[at(9)])
	assert.Equal(t, 0.2, *d.Throttled[at(8)], "a reason that is new counts from the reading before")
	assert.Equal(t, 3072.0, *d.Memory[at(10)], "MiB")
	assert.Nil(t, d.Memory[at(8)])
	assert.Equal(t, 81920.0, d.Limit)
	assert.Nil(t, d.Power[at(8)])
	assert.Len(t, d.Power, 60)
}

// Devices are read every ten seconds or less often: values apply to the time since the previous
// reading.
func TestASampleCoversTheTimeSinceThePreviousOne(t *testing.T) {
	m := at()
	for before, watts := range map[int]float64{170: 100, 50: 200, 40: 300, 20: 400} {
		md := gauge("hw.power", watts)
		p := md.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().At(0).Gauge().DataPoints().At(0)
		p.SetTimestamp(pcommon.NewTimestampFromTime(noon.Add(-time.Duration(before) * time.Second)))
		m.Metrics(md)
	}
	d := m.State(Query{Range: 4 * time.Minute}).Devices[0]
	at := func(before int64) *float64 { return d.Power[noon.Unix()-before-d.Start] }
	for before, want := range map[int64]float64{170: 100, 50: 200, 49: 300, 40: 300, 39: 400, 30: 400, 20: 400} {
		if assert.NotNil(t, at(before), "%d s ago", before) {
			assert.Equal(t, want, *at(before), "%d s ago", before)
		}
	}
	for _, before := range []int64{171, 169, 100, 51, 19, 0} {
		assert.Nil(t, at(before), "%d s ago: before the first, after the last and over a longer gap nothing is known", before)
	}
	d = m.State(Query{Range: 45 * time.Second}).Devices[0]
	assert.Equal(t, 300.0, *at(44), "the sample before may lie before what is shown")
}

// The load repeats every ten seconds and the device is read as often: each reading of power is at
// the same point of the load.
func TestPowerAndThrottlingAreOfTheTimeBetweenReadings(t *testing.T) {
	m := at()
	for i := range 7 {
		md := gauge("hw.power", 690)
		ms := md.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics()
		joules, throttle := ms.AppendEmpty(), ms.AppendEmpty()
		ms.At(0).CopyTo(joules)
		joules.SetName("hw.energy")
		joules.Gauge().DataPoints().At(0).SetDoubleValue(1e6 + 4490*float64(i))
		ms.At(0).CopyTo(throttle)
		throttle.SetName("gpu.throttle.time")
		throttle.Gauge().DataPoints().At(0).SetDoubleValue(4 * float64(i))
		for _, x := range ms.All() {
			p := x.Gauge().DataPoints().At(0)
			p.SetTimestamp(pcommon.NewTimestampFromTime(noon.Add(-time.Duration(60-10*i) * time.Second)))
		}
		m.Metrics(md)
	}
	d := m.State(Query{Range: time.Minute}).Devices[0]
	assert.True(t, d.Metered)
	var watts, held mean
	for i := range d.Power {
		if d.Power[i] != nil {
			watts.add(*d.Power[i], true)
			held.add(*d.Throttled[i], true)
		}
	}
	assert.Equal(t, 60.0, watts.count)
	assert.InDelta(t, 449, watts.sum/watts.count, 1e-9)
	assert.InDelta(t, 0.4, held.sum/held.count, 1e-9)
}

// The first reading of a counter has no rate, and the gauge read with it is not a mean. A throttle
// reason that appears later counts from the exact time of the reading before.
func TestTheFirstReadingsOfCountersHaveNoTimeOfTheirOwn(t *testing.T) {
	m := at()
	before := gauge("hw.temperature", 60)
	before.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().At(0).Gauge().DataPoints().At(0).
		SetTimestamp(pcommon.NewTimestampFromTime(noon.Add(-11 * time.Second)))
	m.Metrics(before)
	for i := range 3 {
		md := gauge("hw.power", 690)
		ms := md.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics()
		joules := ms.AppendEmpty()
		ms.At(0).CopyTo(joules)
		joules.SetName("hw.energy")
		joules.Gauge().DataPoints().At(0).SetDoubleValue(1e6 + 300*float64(i))
		if i == 2 {
			throttle := ms.AppendEmpty()
			ms.At(0).CopyTo(throttle)
			throttle.SetName("gpu.throttle.time")
			throttle.Gauge().DataPoints().At(0).SetDoubleValue(0.5)
		}
		for _, x := range ms.All() {
			x.Gauge().DataPoints().At(0).SetTimestamp(pcommon.NewTimestampFromTime(noon.Add(-10*time.Second + time.Duration(i)*time.Second +
				900*time.Millisecond)))
		}
		m.Metrics(md)
	}
	d := m.State(Query{Range: time.Minute}).Devices[0]
	var watts, held []float64
	for i := range d.Power {
		if d.Power[i] != nil {
			watts = append(watts, *d.Power[i])
		}
		if d.Throttled[i] != nil {
			held = append(held, *d.Throttled[i])
		}
	}
	assert.Equal(t, []float64{300, 300, 300}, watts, "neither the gauge nor the counter itself")
	assert.Equal(t, []float64{0, 0, 0.5}, held)
}

func TestAChosenTimeIsTheOneOfAllViews(t *testing.T) {
	m := at()
	for i := range 60 {
		before := time.Duration(i)*time.Second + 500*time.Millisecond
		m.Traces(traces(t,
			span{name: "gemm", kind: "section", start: before, length: 10 * time.Millisecond},
			span{
				name: "train", kind: "step", start: before, length: 100 * time.Millisecond,
				attributes: map[string]any{"gpu.step.index": i},
			},
			span{name: "prefill", kind: "share", trace: byte(i), start: before, length: 100 * time.Millisecond},
		))
	}
	s := m.State(Query{
		Range: time.Minute, From: noon.Add(-30 * time.Second),
		To: noon.Add(-20*time.Second - time.Millisecond),
	})
	require.Len(t, s.Operations, 1)
	assert.EqualValues(t, 10, s.Operations[0].Count)
	require.Len(t, s.Steps, 10)
	assert.EqualValues(t, 29, s.Steps[0].Index)
	assert.EqualValues(t, 20, s.Steps[9].Index)
	assert.Len(t, s.Requests, 10)
	assert.Len(t, s.Devices[0].Covered, 60, "the strips show the whole range, to choose from")
}

func TestStepsAndRequests(t *testing.T) {
	m := at()
	m.Traces(traces(t,
		span{name: "train", kind: "step", start: 2 * time.Second, length: time.Second, attributes: map[string]any{
			"gpu.step.index": 7, "gpu.step.duration": 0.9, "gpu.step.phase.duration.forward": 0.4,
			"gpu.step.comm.exposed.duration": 0.1, "gpu.energy": 12.0,
		}},
		span{
			name: "prefill", kind: "share", trace: 4, start: 3 * time.Second, length: time.Second,
			attributes: map[string]any{"gpu.request.duration": 0.2, "gpu.energy": 3.0, "gpu.operation.items": 10},
		},
		span{
			name: "decode", kind: "share", trace: 4, start: 2 * time.Second, length: time.Second,
			attributes: map[string]any{"gpu.request.duration": 0.5, "gpu.energy": 4.0, "gpu.operation.items": 5},
		},
		span{
			name: "decode", kind: "share", trace: 5, start: 2 * time.Second, length: time.Second,
			attributes: map[string]any{"gpu.request.duration": 0.1, "gpu.energy": 1.0},
		},
	))
	queue := traces(t, span{
		name: "queue", trace: 4, start: 4 * time.Second, length: time.Second,
		attributes: map[string]any{"gpu.request.queue.duration": 0.9},
	})
	queue.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0).Attributes().Remove("gpu.operation.type")
	m.Traces(queue)
	s := m.State(Query{Range: time.Minute})
	require.Len(t, s.Steps, 1)
	st := s.Steps[0]
	assert.Equal(t, Step{
		Time: float64(noon.Add(-time.Second).UnixMilli()), Name: "train", Service: "svc", Index: 7, Rank: 1,
		Device: "GPU-1", Duration: 0.9,
		Phases:  []Phase{{"forward", 0.4}},
		Exposed: 0.1, Energy: 12, Trace: pcommon.TraceID{15: 1}.String(), Span: st.Span,
	}, st)
	require.Len(t, s.Requests, 2)
	assert.Equal(t, 7.0, s.Requests[0].Energy, "the most joules first")
	assert.Equal(t, 15.0, s.Requests[0].Items)
	assert.Equal(t, 0.9, s.Requests[0].Queue)
	assert.Equal(t, float64(noon.Add(-4*time.Second).UnixMilli()), s.Requests[0].Start)
	assert.InDelta(t, 0.7, s.Requests[0].GPUTime, 1e-12)
	assert.Equal(t, []Phase{{"prefill", 0.2}, {"decode", 0.5}}, s.Requests[0].Parts)
}

// A request that its engine times on the host is shown together with batched ones; counts of
// batches have priority. The time axis shows the longest request of each piece of time, whose
// median is not the median of all.
func TestTheMedianIsOfAllRequestsNotOfTheShownOnes(t *testing.T) {
	m := at()
	require.Zero(t, m.State(Query{Range: time.Minute}).ReqMedian)
	for i := range 1600 {
		length := 10 * time.Millisecond
		if i%4 == 0 {
			length = 400 * time.Millisecond
		}
		start := time.Duration(i) * 10 * time.Millisecond
		td := traces(t, span{name: "llm_request", kind: "request", start: start, length: length})
		td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0).SetTraceID(pcommon.TraceID{1, byte(i >> 8), byte(i)})
		m.Traces(td)
	}
	s := m.State(Query{Range: time.Hour})
	require.LessOrEqual(t, len(s.Points), shownPoints)
	require.InDelta(t, 0.01, s.ReqMedian, 1e-9)
}

func TestRequestsOfEngines(t *testing.T) {
	m := at()
	request := span{
		name: "llm_request", kind: "request", trace: 8, start: 3 * time.Second, length: 2 * time.Second,
		attributes: map[string]any{
			"gpu.energy": 12.0, "gpu.self_energy": 5.0, "gpu.operation.items": 40,
			"gpu.request.queue.duration": 0.3, "gpu.request.time_to_first_item": 0.4, "gen_ai.request.model": "m",
			"gpu.join.coverage": 0.9,
		},
	}
	batch := span{
		name: "decode", kind: "share", trace: 8, start: 3 * time.Second, length: time.Second,
		attributes: map[string]any{"gpu.request.duration": 0.5, "gpu.energy": 7.0, "gpu.operation.items": 38},
	}
	m.Traces(traces(t, request))
	s := m.State(Query{Range: time.Minute})
	require.Len(t, s.Requests, 1)
	assert.Empty(t, s.Operations, "its time is not the GPU's")
	q := s.Requests[0]
	assert.Equal(t, []float64{5, 40, 0.3, 0.4, 2, 0},
		[]float64{q.Energy, q.Items, q.Queue, q.FirstItem, q.Duration, q.GPUTime})
	assert.Equal(t, "m", q.Model)
	assert.Equal(t, 0.9, s.Health.Coverage)
	for name, order := range map[string][]span{"before": {request, batch}, "after": {batch, request}} {
		m := at()
		for _, x := range order {
			m.Traces(traces(t, x))
		}
		q := m.State(Query{Range: time.Minute}).Requests[0]
		assert.Equal(t, []float64{12, 38, 0.5}, []float64{q.Energy, q.Items, q.GPUTime}, "the request came "+name)
	}
}

func TestTheModelIsBounded(t *testing.T) {
	m := at()
	for i := range maxOperations + 500 {
		m.Traces(traces(t, span{
			name: fmt.Sprint("op ", i), kind: "section", start: time.Duration(20000-i) * time.Millisecond,
			length: time.Millisecond,
		}))
	}
	assert.LessOrEqual(t, len(m.operations), maxOperations)
	s := m.State(Query{})
	assert.Len(t, s.Operations, shownOperations)
	assert.EqualValues(t, maxOperations/10, s.Health.OperationsDropped)
	assert.Equal(t, len(m.operations)-shownOperations, s.MoreOps)
	_, there := m.operations[operationKey{"svc", fmt.Sprint("op ", maxOperations+499), "section"}]
	assert.True(t, there, "the oldest leave")
	for i := range maxSteps + 10 {
		m.Traces(traces(t, span{
			name: "s", kind: "step", start: time.Second, length: time.Millisecond,
			attributes: map[string]any{"gpu.step.index": i},
		}))
	}
	for i := range shownRequests + 10 {
		td := traces(t, span{name: "r", kind: "share", start: time.Second, length: time.Millisecond})
		td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0).SetTraceID(pcommon.TraceID{14: byte(i >> 8), 15: byte(i)})
		m.Traces(td)
	}
	s = m.State(Query{})
	assert.Equal(t, []int{maxSteps, 10}, []int{s.StepCount, s.MoreReqs}, "what is omitted is counted")
	assert.Len(t, s.Requests, shownRequests)
	assert.LessOrEqual(t, len(s.Steps), shownSteps)
	count := 0
	for _, st := range s.Steps {
		count += st.Count
	}
	assert.Equal(t, maxSteps, count, "all are in a mean")
}

// TestPermanentOperationsCoverLessTime verifies that buckets bound the memory of many operations.
func TestPermanentOperationsCoverLessTime(t *testing.T) {
	m := at()
	const names = 900
	for second := 595; second >= 0; second -= 5 {
		list := make([]span, names)
		for i := range list {
			list[i] = span{
				name: fmt.Sprint("op ", i), kind: "section",
				start: time.Duration(second)*time.Second + 100*time.Millisecond, length: time.Millisecond,
			}
		}
		m.Traces(traces(t, list...))
		require.LessOrEqual(t, m.buckets, maxBuckets)
	}
	held := 0
	for _, o := range m.operations {
		held += len(o.buckets)
	}
	assert.Equal(t, m.buckets, held)
	s := m.State(Query{})
	assert.Greater(t, s.Health.OperationsSince, noon.Unix()-600)
	assert.Equal(t, names, len(s.Operations)+s.MoreOps)
	assert.EqualValues(t, (noon.Unix()-1)/bucketSeconds-s.Health.OperationsSince/bucketSeconds+1, s.Operations[0].Count)
}

func TestTextsAndTimesFromTheWireAreBounded(t *testing.T) {
	m := at()
	long := strings.Repeat("ä", 1<<19)
	m.Traces(traces(t,
		span{name: long, kind: "section", start: time.Second, length: time.Millisecond},
		span{
			name: long, kind: "step", start: time.Second, length: time.Millisecond,
			attributes: map[string]any{"gpu.step.phase.duration." + long: 0.1},
		},
		span{name: long, kind: "share", start: time.Second, length: time.Millisecond},
		span{name: "future", kind: "section", start: -time.Hour, length: time.Millisecond},
	))
	b, err := json.Marshal(m.State(Query{}))
	require.NoError(t, err)
	assert.Less(t, len(b), 50_000)
	assert.True(t, utf8.Valid(b))
	assert.NotContains(t, string(b), "\\ufffd")
	s := m.State(Query{})
	assert.Len(t, s.Operations, 1, "a clock that is an hour ahead must not push out what is now")
	assert.EqualValues(t, 1, s.Health.FutureDropped)
}

func TestListenersAreBounded(t *testing.T) {
	srv := httptest.NewServer(Handler(at(), ""))
	defer srv.Close()
	for range maxListeners {
		r, err := http.Get(srv.URL + "/api/events")
		require.NoError(t, err)
		defer r.Body.Close()
		require.Equal(t, http.StatusOK, r.StatusCode)
	}
	r, err := http.Get(srv.URL + "/api/events")
	require.NoError(t, err)
	require.NoError(t, r.Body.Close())
	assert.Equal(t, http.StatusServiceUnavailable, r.StatusCode)
}

var hostile = []string{
	"\u202egpj.exe", strings.Repeat("long ", 40), `</script><script>alert(1)</script>`, `<img src=x onerror=alert(1)>`,
	`"><svg onload=alert(1)>`, "{{constructor}}", "a\u2028b", "javascript:alert(1)", "\x1b[31mred",
}

func hostileModel(t testing.TB) *Model {
	m := at()
	for i, name := range hostile {
		td := traces(t, span{
			name: name, kind: "section", start: time.Second, length: time.Millisecond,
			attributes: map[string]any{"gpu.flop.count": 1e9, "gpu.io.size": 1000, "gpu.roofline.bound": name},
		},
			span{
				name: name, kind: "step", start: time.Second, length: time.Millisecond,
				attributes: map[string]any{"gpu.step.index": i, "gpu.step.phase.duration." + name: 0.0005},
			},
			span{name: name, kind: "share", trace: byte(i), start: time.Second, length: time.Millisecond})
		td.ResourceSpans().At(0).Resource().Attributes().PutStr("service.name", name)
		td.ResourceSpans().At(0).ScopeSpans().At(0).Scope().Attributes().PutStr("hw.model", name)
		m.Traces(td)
	}
	return m
}

func TestThePageRunsItsOwnScriptOnly(t *testing.T) {
	h := Handler(hostileModel(t), "http://localhost:16686/trace/{traceID}")
	get := func(path string) *http.Response {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w.Result()
	}
	for path, kind := range map[string]string{
		"/": "text/html", "/app.js": "text/javascript", "/app.css": "text/css",
		"/api/state": "application/json", "/report.html": "text/html",
	} {
		r := get(path)
		assert.Equal(t, http.StatusOK, r.StatusCode, path)
		assert.Contains(t, r.Header.Get("Content-Type"), kind)
		assert.Contains(t, r.Header.Get("Content-Security-Policy"), "script-src 'self'")
		assert.Equal(t, "nosniff", r.Header.Get("X-Content-Type-Options"))
		require.NoError(t, r.Body.Close())
	}
	assert.Equal(t, http.StatusNotFound, get("/etc/passwd").StatusCode)
	assert.Equal(t, http.StatusBadRequest, get("/api/state?range=5").StatusCode)
	for _, bad := range []string{"range=601", "range=x", "from=5", "from=9&to=8", "from=1&to=99999999999999999999"} {
		r := get("/api/state?" + bad)
		assert.Equal(t, http.StatusBadRequest, r.StatusCode, bad)
		require.NoError(t, r.Body.Close())
	}
	script := string(script())
	for _, way := range []string{
		"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function",
		"DOMParser",
	} {
		assert.NotContains(t, script, way, "text must never be parsed as HTML or run")
	}
}

func TestAStateCanBeLimitedToOneService(t *testing.T) {
	m := at()
	for i, name := range []string{"a", "b"} {
		td := traces(t,
			span{name: "gemm", kind: "section", start: 2 * time.Second, length: time.Second, trace: byte(3 * i)},
			span{
				name: "train", kind: "step", start: 2 * time.Second, length: time.Second, trace: byte(3*i + 1),
				attributes: map[string]any{"gpu.step.index": 1},
			},
			span{name: "prefill", kind: "share", start: 2 * time.Second, length: time.Second, trace: byte(3*i + 2)})
		td.ResourceSpans().At(0).Resource().Attributes().PutStr("service.name", name)
		m.Traces(td)
	}
	for service, want := range map[string][]string{"": {"a", "b"}, "a": {"a"}, "b": {"b"}, "c": nil} {
		s := m.State(Query{Service: service})
		assert.Equal(t, []string{"a", "b"}, s.Services)
		var operations, steps, requests []string
		for _, o := range s.Operations {
			operations = append(operations, o.Service)
		}
		for _, x := range s.Steps {
			steps = append(steps, x.Service)
		}
		for _, q := range s.Requests {
			requests = append(requests, q.Service)
		}
		assert.ElementsMatch(t, want, operations, service)
		assert.ElementsMatch(t, want, steps, service)
		assert.ElementsMatch(t, want, requests, service)
		assert.Len(t, s.Devices, 1, "devices are of all services")
	}
}

func TestAReportIsOneFileThatNeedsNothing(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, Report(&b, hostileModel(t).State(Query{})))
	page := b.String()
	assert.NotContains(t, page, `<script>alert`)
	assert.NotContains(t, page, `src="app.js"`)
	assert.NotContains(t, page, `href="app.css"`)
	assert.Equal(t, 2, strings.Count(page, "</script>"), "no name ends the script that contains it")
	assert.Less(t, b.Len(), 224_000, "with the waterfall and the tracks in one file")
	_, rest, ok := strings.Cut(page, `id="state">`)
	require.True(t, ok)
	data, _, _ := strings.Cut(rest, "</script>")
	var s State
	require.NoError(t, json.Unmarshal([]byte(data), &s))
	assert.Len(t, s.Operations, len(hostile))
}

func TestEventsComeWhenSomethingNewIsThere(t *testing.T) {
	m := at()
	srv := httptest.NewServer(Handler(m, ""))
	defer srv.Close()
	r, err := http.Get(srv.URL + "/api/events")
	require.NoError(t, err)
	defer r.Body.Close()
	assert.Equal(t, "text/event-stream", r.Header.Get("Content-Type"))
	buf := make([]byte, 256)
	n, err := r.Body.Read(buf)
	require.NoError(t, err)
	assert.Equal(t, "event: state\ndata: 0\n\n", string(buf[:n]))
	m.Traces(traces(t, span{name: "a", kind: "section", start: time.Second, length: time.Millisecond}))
	n, err = r.Body.Read(buf)
	require.NoError(t, err)
	assert.Equal(t, "event: state\ndata: 1\n\n", string(buf[:n]))
}

// BenchmarkTraces measures the cost of a span to the Collector.
func BenchmarkTraces(b *testing.B) {
	m := at()
	list := make([]span, 512)
	for i := range list {
		list[i] = span{
			name: fmt.Sprint("op ", i%50), kind: "section", start: time.Duration(i) * time.Millisecond,
			length: time.Millisecond, attributes: map[string]any{
				"gpu.flop.count": 4e9, "gpu.flop.precision": "bf16", "gpu.io.size": 1000000, "gpu.roofline.bound": "memory",
				"gpu.energy": 2.0, "gpu.flop.utilization": 0.1, "gpu.io.utilization": 0.5,
			},
		}
	}
	td := traces(b, list...)
	b.ReportAllocs()
	for b.Loop() {
		m.Traces(td)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/512, "ns/span")
}

// BenchmarkOpenPage measures the cost of one browser to the Collector per second: the state as
// JSON, as small as a demo's and as large as it can be.
func BenchmarkOpenPage(b *testing.B) {
	for _, size := range []struct{ devices, operations int }{{1, 12}, {64, 10_000}} {
		b.Run(fmt.Sprintf("devices=%d,operations=%d", size.devices, size.operations), func(b *testing.B) {
			m := at()
			for second := range 60 {
				list := make([]span, size.operations/max(1, size.operations/512))
				for i := range list {
					list[i] = span{
						name: fmt.Sprint("op ", (second*len(list)+i)%size.operations), kind: "section",
						start: time.Duration(second) * time.Second, length: time.Millisecond,
					}
				}
				td := traces(b, list...)
				for d := range size.devices {
					td.ResourceSpans().At(0).ScopeSpans().At(0).Scope().Attributes().PutStr("hw.id", fmt.Sprint("GPU-", d))
					m.Traces(td)
				}
			}
			h := Handler(m, "")
			for b.Loop() {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/api/state?range=60", nil))
				b.SetBytes(int64(w.Body.Len()))
			}
		})
	}
}

func TestContradictionsAreListed(t *testing.T) {
	m := at()
	var l plausibility.Ledger
	m.AddContradictions(l.Entries)
	require.Empty(t, m.State(Query{}).Contradictions)
	l.Report(plausibility.Contradiction{Source: "dcgm", Reason: plausibility.CounterFrozen, Found: "0 W", Other: "300 W"})
	got := m.State(Query{}).Contradictions
	require.Len(t, got, 1)
	require.Equal(t, "counter_frozen", got[0].Reason)
	require.EqualValues(t, 1, got[0].Count)
}

// The rates before a selection are the rates of a selection of that time.
func TestTheTimeBeforeHasTheRatesOfThatTime(t *testing.T) {
	m := at()
	var list []span
	for i := range 60 { // a step per second, from 30 s before noon every 2 s
		if i >= 30 || i%2 == 0 {
			list = append(list, span{
				name: "train", kind: "step", start: time.Duration(i+1) * time.Second, length: 500 * time.Millisecond,
				attributes: map[string]any{"gpu.step.index": 100 - i},
			})
		}
	}
	m.Traces(traces(t, list...))
	for i := range 70 {
		before := time.Duration(70-i) * time.Second
		m.put("hw.power", before, 200+100*float64(i/40), false, nil) // 300 W in the last 30 s
	}
	for i, joules := range []float64{4, 8, 6} { // of 10 tokens each, 50, 40 and 10 s before noon
		m.Traces(traces(t, span{
			name: "decode", kind: "share", start: []time.Duration{50, 40, 10}[i] * time.Second, length: time.Second, trace: byte(i),
			attributes: map[string]any{"gpu.energy": joules, "gpu.operation.items": 10, "gpu.operation.item.type": "token"},
		}))
	}
	half := Query{Range: time.Minute, From: noon.Add(-30 * time.Second), To: noon}
	b := m.State(half).Before
	require.NotNil(t, b)
	assert.Equal(t, &Before{Seconds: 30, Power: 200, PerItem: 0.6, Loop: "svc\ntrain\n\n1", StepRate: b.StepRate}, b)
	assert.InEpsilon(t, 30/29.5, b.StepRate, 1e-3)
	assert.Nil(t, m.State(Query{Range: 6 * time.Minute}).Before, "more than is kept")
	assert.Equal(t, &Before{Seconds: 60}, m.State(Query{Range: time.Minute}).Before, "before all data")
	half.Service = "other"
	assert.Equal(t, &Before{Seconds: 30, Power: 200}, m.State(half).Before, "devices have no service")
}

// Joules per item are of the work whose joules and items are both known, as in the metric.
func TestJoulesPerItemAreOfTheSameWork(t *testing.T) {
	m := at()
	for i, attributes := range []map[string]any{
		{"gpu.energy": 8.0, "gpu.operation.items": 2}, {"gpu.operation.items": 100}, {"gpu.energy": 5.0},
	} {
		m.Traces(traces(t, span{
			name: fmt.Sprint("part ", i), kind: "share", start: 3 * time.Second, length: time.Second, attributes: attributes,
		}))
	}
	s := m.State(Query{})
	require.Len(t, s.Requests, 1)
	q := s.Requests[0]
	assert.Equal(t, []float64{13, 102, 4}, []float64{q.Energy, q.Items, q.ItemEnergy})
	assert.Equal(t, []float64{13, 8, 2}, []float64{s.Bins[0].Used, s.Bins[0].Metered, s.Bins[0].Items})
}

// Joules per item are of one type of items, and a request is slow among the requests of its service.
func TestRequestsOfServicesAreNotMixed(t *testing.T) {
	m := at()
	for i := range 40 {
		service, length, attributes := "images", 5*time.Second, map[string]any{
			"gpu.energy": 900.0, "gpu.operation.items": 1, "gpu.operation.item.type": "image",
		}
		if i%2 == 0 {
			service, length, attributes = "chat", 100*time.Millisecond, map[string]any{
				"gpu.energy": 1000.0, "gpu.operation.items": 500, "gpu.operation.item.type": "token",
			}
		}
		if i == 0 {
			length = time.Second
		}
		td := traces(t, span{
			name: "llm_request", kind: "request", start: 10 * time.Second, length: length, trace: byte(i), attributes: attributes,
		})
		td.ResourceSpans().At(0).Resource().Attributes().PutStr("service.name", service)
		m.Traces(td)
	}
	s := m.State(Query{})
	assert.Equal(t, "token", s.ItemType)
	metered, items, slow := 0.0, 0.0, 0
	for _, b := range s.Bins {
		metered, items = metered+b.Metered, items+b.Items
	}
	for _, p := range s.Points {
		if p.Slow {
			slow++
			assert.InDelta(t, 1, p.Duration, 1e-9)
		}
	}
	assert.Equal(t, []float64{20_000, 10_000, 1}, []float64{metered, items, float64(slow)})
}

// Of a request with items of two types, the first type counts.
func TestItemsOfOneRequestAreOfOneType(t *testing.T) {
	m := at()
	for i, attributes := range []map[string]any{
		{"gpu.energy": 8.0, "gpu.operation.items": 2, "gpu.operation.item.type": "token"},
		{"gpu.energy": 5.0, "gpu.operation.items": 100, "gpu.operation.item.type": "image"},
	} {
		m.Traces(traces(t, span{
			name: fmt.Sprint("part ", i), kind: "share", start: 3 * time.Second, length: time.Second, attributes: attributes,
		}))
	}
	q := m.State(Query{}).Requests[0]
	assert.Equal(t, []float64{13, 2, 4}, []float64{q.Energy, q.Items, q.ItemEnergy})
}

// A device that only decodes video is not busy.
func TestEncodersAndDecodersAreNotTheDevicesUtilization(t *testing.T) {
	m := at()
	for task, busy := range map[string]float64{"general": 0.1, "encoder": 0.9, "decoder": 0.8} {
		m.put("hw.gpu.utilization", 2*time.Second, busy, false, map[string]any{"hw.gpu.task": task})
	}
	var got []float64
	for _, v := range m.State(Query{Range: time.Minute}).Devices[0].Busy {
		if v != nil {
			got = append(got, *v)
		}
	}
	assert.Equal(t, []float64{0.1}, got)
}

// Devices of several hosts are named with their host; a device without an ID is another one on
// another host.
func TestDevicesOfSeveralHostsAreToldApart(t *testing.T) {
	m := at()
	names := func() (list []string) {
		for _, d := range m.State(Query{}).Devices {
			list = append(list, d.Name)
		}
		return list
	}
	for _, host := range []string{"b", "a"} {
		for _, id := range []string{"", "GPU-10-" + host, "GPU-9-" + host} {
			td := traces(t, span{name: "gemm", kind: "section", start: 3 * time.Second, length: time.Second})
			rs := td.ResourceSpans().At(0)
			rs.Resource().Attributes().PutStr("host.name", host)
			scope := rs.ScopeSpans().At(0).Scope().Attributes()
			scope.Remove("hw.name")
			if scope.PutStr("hw.id", id); id == "" {
				scope.PutInt("gpu.device.ordinal", 0)
			} else {
				scope.PutStr("hw.name", "gpu"+strings.Split(id, "-")[1])
			}
			m.Traces(td)
		}
		if host == "b" {
			assert.Equal(t, []string{"gpu9", "gpu10", "device 0"}, names())
		}
	}
	assert.Equal(t, []string{
		"gpu9 on a", "gpu10 on a", "device 0 on a", "gpu9 on b", "gpu10 on b", "device 0 on b",
	}, names())
}
