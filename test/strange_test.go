// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/xpdata"

	"github.com/otelgpu/otelgpu/config"
)

// strangeSpan makes a span strange. It is in a request of normal spans, and names their device if
// it has a reason not to be joined.
type strangeSpan struct {
	name   string
	reason string // of processor_gpu_join_bad_spans; empty: it names another device
	change func(s ptrace.Span)
}

func strangeAttribute(name string, set func(pcommon.Value)) strangeSpan {
	return strangeSpan{name: name, change: func(s ptrace.Span) {
		v, _ := s.Attributes().GetOrPutEmpty(name)
		set(v)
	}}
}

func nested(v pcommon.Value, depth int) {
	for range depth / 2 {
		v = v.SetEmptySlice().AppendEmpty().SetEmptyMap().PutEmpty("k")
	}
	v.SetStr("end")
}

var strangeSpans = []strangeSpan{
	{"end before start", "end_before_start", func(s ptrace.Span) { s.SetEndTimestamp(s.StartTimestamp() - 5e6) }},
	{"zero length", "zero_length", func(s ptrace.Span) { s.SetEndTimestamp(s.StartTimestamp()) }},
	{"start 0", "epoch", func(s ptrace.Span) { s.SetStartTimestamp(0) }},
	{"year 2500", "future", func(s ptrace.Span) { s.SetEndTimestamp(16725225600e9) }},
	{"latest time", "future", func(s ptrace.Span) { s.SetEndTimestamp(math.MaxUint64) }},
	{"latest times", "future", func(s ptrace.Span) {
		s.SetStartTimestamp(math.MaxUint64 - 1)
		s.SetEndTimestamp(math.MaxUint64)
	}},
	{"no IDs", "no_id", func(s ptrace.Span) {
		s.SetTraceID(pcommon.TraceID{})
		s.SetSpanID(pcommon.SpanID{})
	}},
	{"no span ID", "no_id", func(s ptrace.Span) { s.SetSpanID(pcommon.SpanID{}) }},
	{name: "own parent", change: func(s ptrace.Span) { s.SetParentSpanID(s.SpanID()) }},
	{name: "kind and status", change: func(s ptrace.Span) { s.SetKind(300); s.Status().SetCode(77) }},
	{name: "negative kind and status", change: func(s ptrace.Span) { s.SetKind(-1); s.Status().SetCode(-300) }},
	{name: "flags", change: func(s ptrace.Span) { s.SetFlags(math.MaxUint32) }},
	{name: "trace state", change: func(s ptrace.Span) { s.TraceState().FromRaw(strings.Repeat("x", 100_000)) }},
	{name: "links", change: func(s ptrace.Span) {
		for i := range 10_000 {
			l := s.Links().AppendEmpty()
			l.Attributes().PutDouble("gpu.batch.share", float64(i)-5)
			l.SetSpanID(pcommon.SpanID{1, byte(i)})
		}
	}},
	{name: "invalid UTF-8", change: func(s ptrace.Span) {
		s.SetName("a\xff\x00b")
		s.Attributes().PutStr("k\xfe", "v\xfd")
		s.Attributes().PutStr("gpu.stream.name", "\xc0\xaf")
	}},
	{name: "two values of a key", change: func(s ptrace.Span) {
		var b xpdata.MapBuilder
		for _, v := range []string{"GPU-strange", "", workedGPU} {
			b.AppendEmpty("gpu.operation.type").SetStr("section")
			b.AppendEmpty("gpu.operation.type").SetInt(1)
			b.AppendEmpty("hw.id").SetStr(v)
		}
		b.UnsafeIntoMap(s.Attributes())
	}},
	{name: "many attributes", change: func(s ptrace.Span) {
		for i := range 5000 {
			s.Attributes().PutEmpty(fmt.Sprint("k", i))
		}
	}},
	{name: "nothing", change: func(s ptrace.Span) {
		id := s.SpanID()
		ptrace.NewSpan().CopyTo(s)
		s.SetSpanID(id)
	}},
	strangeAttribute("gpu.operation.type", func(v pcommon.Value) { v.SetInt(3) }),
	strangeAttribute("gpu.operation.type", func(v pcommon.Value) { v.SetStr("\xff") }),
	strangeAttribute("gpu.operation.type", func(v pcommon.Value) { nested(v, 500) }),
	strangeAttribute("hw.id", func(v pcommon.Value) { v.SetEmptyBytes().FromRaw([]byte(workedGPU)) }),
	strangeAttribute("hw.id", func(v pcommon.Value) { v.SetEmptySlice().AppendEmpty().SetEmptyMap() }),
	strangeAttribute("hw.id", func(v pcommon.Value) { v.SetEmptyMap() }),
	strangeAttribute("hw.id", func(v pcommon.Value) { v.SetStr(strings.Repeat("GPU-", 25_000)) }),
	strangeAttribute("gpu.duration", func(v pcommon.Value) { v.SetDouble(math.NaN()) }),
	strangeAttribute("gpu.duration", func(v pcommon.Value) { v.SetDouble(math.Inf(1)) }),
	strangeAttribute("gpu.duration", func(v pcommon.Value) { v.SetDouble(math.Inf(-1)) }),
	strangeAttribute("gpu.duration", func(v pcommon.Value) { v.SetDouble(-1) }),
	strangeAttribute("gpu.duration", func(v pcommon.Value) { v.SetDouble(1e300) }),
	strangeAttribute("gpu.duration", func(v pcommon.Value) { v.SetStr("0.05") }),
	strangeAttribute("gpu.flop.count", func(v pcommon.Value) { v.SetStr("many") }),
	strangeAttribute("gpu.flop.count", func(v pcommon.Value) { v.SetInt(math.MinInt64) }),
	strangeAttribute("gpu.flop.count", func(v pcommon.Value) { v.SetDouble(math.NaN()) }),
	strangeAttribute("gpu.item.count", func(v pcommon.Value) { v.SetDouble(math.Inf(1)) }),
	strangeAttribute("gpu.energy", func(v pcommon.Value) { v.SetDouble(math.NaN()) }),
	strangeAttribute("gpu.energy", func(v pcommon.Value) { v.SetStr("-") }),
	strangeAttribute("gpu.join.coverage", func(v pcommon.Value) { v.SetBool(true) }),
	strangeAttribute("gpu.section.count", func(v pcommon.Value) { v.SetInt(math.MaxInt64) }),
	strangeAttribute("gpu.stream.id", func(v pcommon.Value) { v.SetInt(math.MinInt64) }),
	strangeAttribute("gpu.memory.usage", func(v pcommon.Value) { v.SetDouble(math.Inf(-1)) }),
	strangeAttribute("process.pid", func(v pcommon.Value) { v.SetInt(math.MinInt64) }),
	strangeAttribute("gpu.collective.type", func(v pcommon.Value) { v.SetEmptyBytes() }),
	strangeAttribute("gen_ai.usage.completion_tokens", func(v pcommon.Value) { v.SetInt(math.MinInt64) }),
	strangeAttribute("gen_ai.latency.e2e", func(v pcommon.Value) { v.SetDouble(math.NaN()) }),
	strangeAttribute("", func(v pcommon.Value) { nested(v, 500) }),
}

// strangeMetrics returns metrics that no SDK produces.
func strangeMetrics(rng *rand.Rand, at time.Time) pmetric.Metrics {
	md := pmetric.NewMetrics()
	rm := md.ResourceMetrics().AppendEmpty()
	rm.Resource().Attributes().PutStr("service.name", "strange")
	now := pcommon.NewTimestampFromTime(at)
	doubles := []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1, 1e300, math.SmallestNonzeroFloat64, 0}
	times := []pcommon.Timestamp{0, 1, now, now, now, math.MaxUint64, 16725225600e9}
	double := func() float64 { return doubles[rng.IntN(len(doubles))] }
	moment := func() pcommon.Timestamp { return times[rng.IntN(len(times))] }
	temporality := func() pmetric.AggregationTemporality { return pmetric.AggregationTemporality(rng.IntN(5) - 1) }
	exemplars := func(es pmetric.ExemplarSlice) {
		for i := range rng.IntN(3) {
			e := es.AppendEmpty()
			e.SetDoubleValue(double())
			e.SetTimestamp(moment())
			e.SetTraceID(pcommon.TraceID{byte(i)})
			e.FilteredAttributes().PutStr("k\xff", strings.Repeat("long", 100))
		}
	}
	ids := []string{"GPU-strange", "", "\xff", strings.Repeat("GPU", 1000)}
	attrs := func(m pcommon.Map) {
		if rng.IntN(4) > 0 {
			m.PutStr("hw.id", ids[rng.IntN(len(ids))])
		}
		if rng.IntN(4) == 0 {
			nested(m.PutEmpty("deep"), 100)
		}
	}
	names := []string{
		"hw.energy", "hw.power", "hw.gpu.utilization", "hw.gpu.memory.usage", "strange.histogram", "", "a\xff",
		"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "gpu_power_usage", "gpu.operation.duration", "9{}\"\n",
	}
	ms := rm.ScopeMetrics().AppendEmpty().Metrics()
	for range 20 {
		m := ms.AppendEmpty()
		m.SetName(names[rng.IntN(len(names))])
		m.SetUnit([]string{"J", "W", "1", "", "\xff", "parsec"}[rng.IntN(6)])
		number := func(points pmetric.NumberDataPointSlice) {
			for range rng.IntN(4) {
				p := points.AppendEmpty()
				attrs(p.Attributes())
				exemplars(p.Exemplars())
				p.SetStartTimestamp(moment())
				p.SetTimestamp(moment())
				switch rng.IntN(3) {
				case 0:
					p.SetDoubleValue(double())
				case 1:
					p.SetIntValue(math.MinInt64)
				}
			}
		}
		switch rng.IntN(6) {
		case 0:
			number(m.SetEmptyGauge().DataPoints())
		case 1:
			s := m.SetEmptySum()
			s.SetAggregationTemporality(temporality())
			s.SetIsMonotonic(rng.IntN(2) == 0)
			number(s.DataPoints())
		case 2:
			h := m.SetEmptyHistogram()
			h.SetAggregationTemporality(temporality())
			for range 2 {
				p := h.DataPoints().AppendEmpty()
				exemplars(p.Exemplars())
				p.SetStartTimestamp(moment())
				p.SetTimestamp(moment())
				p.SetCount(rng.Uint64())
				p.SetSum(double())
				for range rng.IntN(4) {
					p.BucketCounts().Append(rng.Uint64())
				}
				for range rng.IntN(3) {
					p.ExplicitBounds().Append(double())
				}
			}
		case 3:
			h := m.SetEmptyExponentialHistogram()
			h.SetAggregationTemporality(temporality())
			p := h.DataPoints().AppendEmpty()
			exemplars(p.Exemplars())
			p.SetTimestamp(moment())
			p.SetScale([]int32{0, 20, -10, 8, math.MaxInt32, math.MinInt32}[rng.IntN(6)])
			p.SetZeroThreshold(double())
			p.Positive().SetOffset([]int32{0, math.MaxInt32, math.MinInt32}[rng.IntN(3)])
			p.Positive().BucketCounts().Append(1, math.MaxUint64)
		case 4:
			p := m.SetEmptySummary().DataPoints().AppendEmpty()
			p.SetTimestamp(moment())
			p.QuantileValues().AppendEmpty().SetQuantile(double())
			p.QuantileValues().AppendEmpty().SetQuantile(double())
		}
	}
	return md
}

// strange sends what no SDK does.
type strange struct {
	*worker
	rng     *rand.Rand
	next    uint64
	sent    int
	reasons map[string]int
	order   []int
}

// mix adds strange spans to a request.
func (x *strange) mix(td ptrace.Traces) {
	rs := td.ResourceSpans().AppendEmpty()
	if x.rng.IntN(4) > 0 { // otherwise the resource is empty
		rs.Resource().Attributes().PutStr("service.name", "strange")
	}
	spans := rs.ScopeSpans().AppendEmpty().Spans()
	begin := td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0).StartTimestamp()
	for range 4 {
		if len(x.order) == 0 {
			x.order = x.rng.Perm(len(strangeSpans))
		}
		k := strangeSpans[x.order[0]]
		x.order = x.order[1:]
		s := spans.AppendEmpty()
		x.next++
		x.sent++
		s.SetSpanID(pcommon.SpanID{0xee, 0, 0, 0, byte(x.next >> 24), byte(x.next >> 16), byte(x.next >> 8), byte(x.next)})
		s.SetTraceID(pcommon.TraceID{9, 9, byte(x.next >> 8), byte(x.next)})
		s.SetName(k.name)
		s.SetStartTimestamp(begin)
		s.SetEndTimestamp(begin + 10e6)
		s.Attributes().PutStr("gpu.operation.type", "section")
		s.Attributes().PutStr("hw.id", "GPU-strange")
		if k.reason != "" {
			s.Attributes().PutStr("hw.id", workedGPU)
			x.reasons[k.reason]++
		}
		k.change(s)
	}
}

// delivered returns the number of normal and strange spans in the store, the latter as they were
// sent.
func (x *strange) delivered(store *store) (normal, strange int) {
	store.mu.Lock()
	defer store.mu.Unlock()
	for id, s := range store.spans {
		switch {
		case id[0] == 0xee:
			strange++
		case id[0] == 0 && !id.IsEmpty():
			normal++
		}
		switch s.Name() {
		case "kind and status":
			assert.EqualValues(x.t, 300, s.Kind())
			assert.EqualValues(x.t, 77, s.Status().Code())
		case "negative kind and status":
			assert.EqualValues(x.t, -1, s.Kind())
			assert.EqualValues(x.t, -300, s.Status().Code())
		case "links":
			assert.Equal(x.t, 10_000, s.Links().Len())
		case "trace state":
			assert.Len(x.t, s.TraceState().AsRaw(), 100_000)
		}
	}
	return normal, strange
}

// closed is what post returns if the server closes the connection while the body is sent. It
// answers a body above its limit without reading it, and closes the connection after half a second:
// a client that is not scheduled in that time never sees the answer.
const closed = 0

// post sends a body to the OTLP/HTTP receiver and returns the status, or closed.
func post(t *testing.T, address, signal, format string, body []byte, packed bool) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/v1/"+signal, bytes.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/"+format)
	if packed {
		r.Header.Set("Content-Encoding", "gzip")
	}
	response, err := http.DefaultClient.Do(r)
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
		return closed
	}
	require.NoError(t, err, "the Collector answers")
	require.NoError(t, response.Body.Close())
	return response.StatusCode
}

// zipped compresses.
func zipped(t *testing.T, b []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := w.Write(b)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return out.Bytes()
}

// strangeSpanOf is a GPU span of the present with an ID that no other one has.
func strangeSpanOf(n byte, change func(ptrace.Span)) []byte {
	td := ptrace.NewTraces()
	s := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans().AppendEmpty()
	s.SetTraceID(pcommon.TraceID{8, n})
	s.SetSpanID(pcommon.SpanID{0xdd, n})
	s.SetStartTimestamp(pcommon.NewTimestampFromTime(time.Now().Add(-time.Second)))
	s.SetEndTimestamp(pcommon.NewTimestampFromTime(time.Now()))
	s.Attributes().PutStr("gpu.operation.type", "section")
	s.Attributes().PutStr("hw.id", "GPU-strange")
	change(s)
	b, _ := (&ptrace.ProtoMarshaler{}).MarshalTraces(td)
	return b
}

// amongOthers returns a request of a span that no exporter can send, between two that it can, all
// of one second from the given time.
func amongOthers(n byte, device string, from time.Time) []byte {
	td, err := (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces(strangeSpanOf(n, func(s ptrace.Span) {
		s.Attributes().PutStr("hw.id", device)
		s.SetStartTimestamp(pcommon.NewTimestampFromTime(from))
		s.SetEndTimestamp(pcommon.NewTimestampFromTime(from.Add(time.Second)))
	}))
	if err != nil {
		panic(err)
	}
	spans := td.ResourceSpans().At(0).ScopeSpans().At(0).Spans()
	for i := range byte(2) {
		s := spans.AppendEmpty()
		spans.At(0).CopyTo(s)
		s.SetSpanID(pcommon.SpanID{0xdd, n, i + 1})
	}
	spans.At(1).Attributes().PutStr("large", strings.Repeat("x", 4_100_000))
	b, _ := (&ptrace.ProtoMarshaler{}).MarshalTraces(td)
	return b
}

// strangeLogs make a log record strange.
var strangeLogs = map[string]func(plog.LogRecord){
	"nothing":         func(plog.LogRecord) {},
	"latest time":     func(l plog.LogRecord) { l.SetTimestamp(math.MaxUint64); l.SetObservedTimestamp(math.MaxUint64) },
	"severity":        func(l plog.LogRecord) { l.SetSeverityNumber(math.MaxInt32); l.SetSeverityText("\xff\x00") },
	"low severity":    func(l plog.LogRecord) { l.SetSeverityNumber(math.MinInt32) },
	"flags":           func(l plog.LogRecord) { l.SetFlags(math.MaxUint32) },
	"trace ID only":   func(l plog.LogRecord) { l.SetTraceID(pcommon.TraceID{1}) },
	"span ID only":    func(l plog.LogRecord) { l.SetSpanID(pcommon.SpanID{1}) },
	"nested body":     func(l plog.LogRecord) { nested(l.Body(), 500) },
	"large body":      func(l plog.LogRecord) { l.Body().SetStr(strings.Repeat("x", 4_000_000)) },
	"bytes":           func(l plog.LogRecord) { l.Body().SetEmptyBytes().FromRaw(make([]byte, 1_000_000)) },
	"invalid UTF-8":   func(l plog.LogRecord) { l.Body().SetStr("a\xff\x00"); l.SetEventName("\xfe") },
	"NaN":             func(l plog.LogRecord) { l.Body().SetDouble(math.NaN()) },
	"dropped":         func(l plog.LogRecord) { l.SetDroppedAttributesCount(math.MaxUint32) },
	"empty attribute": func(l plog.LogRecord) { l.Attributes().PutEmpty("") },
	"GPU event": func(l plog.LogRecord) {
		l.SetEventName("gpu.xid")
		l.Attributes().PutStr("hw.id", "\xff")
		l.Attributes().PutDouble("gpu.xid.code", math.Inf(1))
	},
	"many attributes": func(l plog.LogRecord) {
		for i := range 20_000 {
			l.Attributes().PutInt(fmt.Sprint("k", i), int64(i))
		}
	},
	"two values of a key": func(l plog.LogRecord) {
		var b xpdata.MapBuilder
		b.AppendEmpty("hw.id").SetStr("GPU-strange")
		nested(b.AppendEmpty("hw.id"), 100)
		b.UnsafeIntoMap(l.Attributes())
	},
}

// strangeLog returns three records in a resource each, the second of which is strange.
func strangeLog(change func(plog.LogRecord)) plog.Logs {
	logs := plog.NewLogs()
	for i := range 3 {
		l := logs.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty().LogRecords().AppendEmpty()
		if i == 1 {
			change(l)
		} else {
			l.Body().SetStr("normal")
		}
	}
	return logs
}

// deep returns a request of a span with an attribute whose lists are nested. pdata cannot write it
// as deep.
func deep(levels int) []byte {
	// From the inside out, and backwards: each level is a field with the length of what it
	// contains.
	var b []byte
	field := func(number int) {
		n := binary.AppendUvarint(nil, uint64(len(b)))
		slices.Reverse(n)
		b = append(append(b, n...), byte(number<<3|2))
	}
	for range levels {
		field(1) // ArrayValue.values
		field(5) // AnyValue.array_value
	}
	field(2) // KeyValue.value
	b = append(b, 'k', 1, 1<<3|2)
	for _, n := range []int{9, 2, 2, 1} { // Span.attributes, ScopeSpans.spans, ResourceSpans.scope_spans, resource_spans
		field(n)
	}
	slices.Reverse(b)
	return b
}

// peakResident returns the peak resident memory of a process in bytes, on Linux.
func peakResident(t *testing.T, pid int) int64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(t, err)
	for line := range strings.Lines(string(status)) {
		if kb, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(kb), " kB"), 10, 64)
			require.NoError(t, err)
			return n << 10
		}
	}
	t.Fatal("no VmHWM")
	return 0
}

// largeQueue has space for requests of strange spans. Logs are accepted, and each of their values is
// printed.
const largeQueue = `
processors: {gpu_join: {queue: {size: 100000000}}}
exporters: {debug/logs: {verbosity: detailed}}
service: {pipelines: {logs: {receivers: [gpu, otlp], exporters: [debug/logs]}}}
`

// Whatever a client sends, the Collector runs on, and the normal spans in the same requests are
// joined and counted exactly. Spans with invalid times or without IDs are delivered and counted by
// reason.
func TestStrangeOTLPDoesNotAffectOtherSpans(t *testing.T) {
	if testing.Short() {
		t.Skip("the Collector is not built and run with -short")
	}
	t.Parallel()
	store, p := newStore(t), newPorts(t)
	store.open(t)
	ready, err := config.YAML("all-in-one")
	require.NoError(t, err)
	collector := startCollector(t, buildCollector(t), p.env, ready, device, faster, largeQueue, fmt.Sprintf(ownStore, store.address))
	t.Cleanup(func() {
		if _, trace, ok := strings.Cut(collector.Output(), "panic"); ok {
			t.Errorf("panic%.4000s", trace)
		}
	})
	const seed = 1
	x := &strange{rng: rand.New(rand.NewPCG(seed, 22)), reasons: map[string]int{}}
	x.worker = newWorker(t, p.otlp)
	x.worker.mix = x.mix

	x.work(2 * time.Second)
	for n := range 40 {
		request := pmetricotlp.NewExportRequestFromMetrics(strangeMetrics(x.rng, time.Now()))
		body, err := request.MarshalProto()
		require.NoError(t, err)
		status := post(t, p.http, "metrics", "x-protobuf", body, false)
		require.Contains(t, []int{200, 400, 500}, status, "metrics %d", n)
	}
	x.work(time.Second)
	for name, change := range strangeLogs {
		body, err := plogotlp.NewExportRequestFromLogs(strangeLog(change)).MarshalProto()
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, post(t, p.http, "logs", "x-protobuf", body, false), "log: %s", name)
	}
	for i, text := range []string{
		`{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"body":{"stringValue":7},"traceId":"zz"}]}]}]}`,
		`{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"severityNumber":"HIGH","timeUnixNano":-1}]}]}]}`,
		strings.Repeat(`{"resourceLogs":[`, 100_000),
	} {
		require.Contains(t, []int{200, 400}, post(t, p.http, "logs", "json", []byte(text), false), "JSON log %d", i)
	}
	for i, text := range []string{
		`{`, `[]`, `null`, `{"resourceSpans": 3}`, `{"resourceSpans": [null, {"scopeSpans": {"spans": []}}]}`,
		`{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":5,"spanId":"zz","startTimeUnixNano":"-1","kind":"x"}]}]}]}`,
		`{"resourceSpans":[{"scopeSpans":[{"spans":[{"attributes":[{"key":1,"value":{"intValue":"a"}}]}]}]}]}`,
		`{"resourceSpans":[{"scopeSpans":[{"spans":[{"attributes":[{"key":"gpu.operation.type","value":{}}]}]}]}]}`,
		strings.Repeat(`{"resourceSpans":[`, 100_000), strings.Repeat(`[`, 1_000_000),
		`{"resourceSpans":[{"resource":{"attributes":[{"key":"k","value":` + strings.Repeat(`{"arrayValue":{"values":[`, 50_000),
	} {
		require.Contains(t, []int{200, 400}, post(t, p.http, "traces", "json", []byte(text), false), "JSON %d", i)
	}
	// The largest requests arrive together with normal spans.
	var working sync.WaitGroup
	working.Go(func() { x.work(3 * time.Second) })
	send := func(body []byte, packed bool) { // repeats what is refused while memory is short, as senders do
		for range 100 {
			switch post(t, p.http, "traces", "x-protobuf", body, packed) {
			case http.StatusServiceUnavailable:
			case closed:
				require.NotEqual(t, closed, post(t, p.http, "traces", "x-protobuf", nil, false), "the next request is answered")
				return
			default:
				return
			}
			time.Sleep(200 * time.Millisecond)
		}
		t.Error("refused for 20 s")
	}
	// The device runs only the large span and those beside it before the first normal span, so their
	// energy does not depend on how far the worker is.
	before := x.zero.Add(leadIn - 1500*time.Millisecond)
	for _, body := range [][]byte{
		strangeSpanOf(0, func(s ptrace.Span) { s.Attributes().PutStr("large", strings.Repeat("x", 10_000_000)) }),
		strangeSpanOf(1, func(s ptrace.Span) { s.Attributes().PutStr("large", strings.Repeat("x", 4_000_000)) }),
		amongOthers(2, "GPU-strange", before), amongOthers(3, workedGPU, before),
		strangeSpanOf(4, func(s ptrace.Span) {
			var b xpdata.MapBuilder
			for i := range 100_000 {
				b.AppendEmpty(fmt.Sprint("k", i)).SetInt(int64(i))
			}
			b.UnsafeIntoMap(s.Attributes())
		}),
		deep(500), deep(400_000), deep(1_900_000), bytes.Repeat([]byte{0x0a, 0x7f}, 1_000_000), bytes.Repeat([]byte{0xff}, 1_000_000),
	} {
		send(body, false)
		send(zipped(t, body), true)
	}
	bomb := zipped(t, make([]byte, 200<<20))
	require.Contains(t, []int{http.StatusBadRequest, closed}, post(t, p.http, "traces", "x-protobuf", bomb, true))
	require.NotEqual(t, closed, post(t, p.http, "traces", "x-protobuf", nil, false), "the next request is answered")
	working.Wait()

	var normal, others int
	identified := x.sent - x.reasons["no_id"] // spans without an ID overwrite each other in the store
	if !assert.Eventually(t, func() bool {
		normal, others = x.delivered(store)
		return normal == x.accepted && others == identified
	}, time.Minute, 100*time.Millisecond) {
		t.Fatalf("delivered: %d of %d normal spans and %d of %d strange ones\n%s", normal, x.accepted, others, identified,
			collector.Output())
	}
	var joules float64
	expected := x.joules() + workWatts*time.Second.Seconds()
	if !assert.Eventually(t, func() bool { // waits for the last flush
		joules = scrape(t, p.metrics, "gpu_operation_energy_joules_total", workedGPU)
		return math.Abs(joules/expected-1) < 1e-9
	}, 3*time.Minute, 200*time.Millisecond) {
		t.Logf("counted %f J of %f J\n%s", joules, expected, joinState(t, p.telemetry))
	}
	assert.EqualValues(t, x.gpu, scrape(t, p.metrics, "gpu_operation_count_total", `job="worker"`))
	x.reasons["too_large"] = 6 // each was sent plain and compressed
	for _, id := range []pcommon.SpanID{{0xdd, 2}, {0xdd, 2, 2}, {0xdd, 3}, {0xdd, 3, 2}, {0xdd, 4}} {
		assert.Eventually(t, func() bool { // one of 100,000 attributes takes longer than those after it
			store.mu.Lock()
			defer store.mu.Unlock()
			_, ok := store.spans[id]
			return ok
		}, time.Minute, 100*time.Millisecond, "%s is beside a span that is too large", id)
	}
	if runtime.GOOS == "linux" {
		peak := peakResident(t, collector.PID())
		assert.Less(t, peak, int64(1280)<<20) // nested values take stack, which the limit of the heap excludes
		t.Logf("%d MiB resident at most", peak>>20)
	}
	for reason, n := range x.reasons {
		assert.EqualValues(t, n, scrape(t, p.telemetry, "otelcol_processor_gpu_join_bad_spans", `"`+reason+`"`), reason)
	}
	t.Logf("%d spans accepted and %d strange ones, %v", x.accepted, x.sent, x.reasons)
}
