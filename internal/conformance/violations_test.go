// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/semconv"
)

const now = 1_764_000_000_000_000_000

// good returns spans without a violation: a section below a request, its device on the scope.
func good() (td ptrace.Traces, scope pcommon.InstrumentationScope, s ptrace.Span) {
	td = ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	rs.Resource().Attributes().PutStr("service.name", "inference")
	rs.Resource().Attributes().PutInt("gpu.job.rank", 3)
	ss := rs.ScopeSpans().AppendEmpty()
	scope = ss.Scope()
	scope.SetName("my.engine")
	scope.Attributes().PutStr("hw.id", "GPU-3b1c2f4e-8a67-4d1f-9b3c-5f0e9d7a6c21")
	scope.Attributes().PutStr("hw.model", "NVIDIA H100")
	s = ss.Spans().AppendEmpty()
	s.SetName("attention")
	s.SetTraceID([16]byte{1})
	s.SetSpanID([8]byte{2})
	s.SetStartTimestamp(now)
	s.SetEndTimestamp(now + 1_000_000)
	s.Attributes().PutStr("gpu.operation.type", "section")
	s.Attributes().PutStr("gpu.operation.name", "attention")
	s.Attributes().PutDouble("gpu.duration", 0.001)
	s.Attributes().PutStr("foreign.name", "")
	s.Attributes().PutStr("hw.serial_number", "17")
	return td, scope, s
}

func TestADurationIsInSecondsAndADeviceIsNoIndex(t *testing.T) {
	td, scope, s := good()
	require.Empty(t, strict(td))
	s.SetEndTimestamp(now + 500_000)
	require.Equal(t, []string{`span "attention": attribute gpu.duration: longer than the span (seconds, as a double; here 0.001 of 0.0005)`},
		strict(td))
	s.Attributes().PutStr("gpu.operation.type", "step") // which ends on the host before the device has finished
	require.Empty(t, strict(td))
	scope.Attributes().PutStr("hw.id", "0")
	require.Len(t, strict(td), 1)
	require.Contains(t, strict(td)[0], `attribute hw.id: an index`)
}

// Other receivers emit OpenTelemetry's metrics for fans and CPUs, too.
func TestOtherHardwareIsNoViolation(t *testing.T) {
	for _, name := range otherHardwareMetrics {
		_, ok := semconv.LookupMetric(name)
		require.False(t, ok, name)
	}
	md := pmetric.NewMetrics()
	list := md.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics()
	for name, unit := range map[string]string{"hw.fan.speed": "rpm", "hw.temperature": "Cel"} {
		m := list.AppendEmpty()
		m.SetName(name)
		m.SetUnit(unit)
		p := m.SetEmptyGauge().DataPoints().AppendEmpty()
		p.SetTimestamp(now)
		p.SetDoubleValue(50)
		p.Attributes().PutStr("hw.id", "sensor 3")
		p.Attributes().PutStr("hw.type", "fan")
		p.Attributes().PutStr("hw.sensor_location", "inlet")
	}
	r := Report{Strict: true}
	r.Metrics(md)
	require.Empty(t, texted(&r))
}

func strict(td ptrace.Traces) []string {
	r := Report{Strict: true}
	r.Traces(td)
	return texted(&r)
}

func texted(r *Report) (out []string) {
	for _, c := range r.Violations() {
		out = append(out, c.String())
	}
	return out
}

func TestConformingDataPasses(t *testing.T) {
	td, _, s := good()
	s.Attributes().PutDouble("gpu.step.phase.duration.forward", 0.001)
	s.Attributes().PutEmptySlice("gpu.kernel.grid").AppendEmpty().SetInt(141)
	s.Attributes().PutDouble("gpu.io.utilization", 1.7)
	s.Attributes().PutInt("gpu.memory.delta", -4)
	s.Attributes().PutDouble("gpu.end.delay", -4e-6)
	require.Empty(t, strict(td))
}

// Each case has one error in an otherwise valid span.
func TestEveryViolationOfASpanIsNamed(t *testing.T) {
	at := func(m func(pcommon.Map)) func(pcommon.InstrumentationScope, ptrace.Span) {
		return func(_ pcommon.InstrumentationScope, s ptrace.Span) { m(s.Attributes()) }
	}
	for _, tt := range []struct {
		name string
		do   func(pcommon.InstrumentationScope, ptrace.Span)
		want string
	}{
		{
			"an unknown name", at(func(m pcommon.Map) { m.PutStr("gpu.nothing.at.all.like.it", "x") }),
			`attribute gpu.nothing.at.all.like.it: not in the registry (use your own namespace, or a name of docs/semconv)`,
		},
		{
			"misspelled", at(func(m pcommon.Map) { m.PutDouble("gpu.start.dleay", 1) }),
			`attribute gpu.start.dleay: not in the registry (did you mean gpu.start.delay?)`,
		},
		{
			"capitals", at(func(m pcommon.Map) { m.PutDouble("GPU.Start.delay", 1) }),
			`attribute GPU.Start.delay: not in the registry (did you mean gpu.start.delay?)`,
		},
		{
			"unknown hardware", at(func(m pcommon.Map) { m.PutStr("hw.something_else", "x") }),
			`attribute hw.something_else: not in the registry (names of OpenTelemetry's hardware conventions, or your own namespace)`,
		},
		{
			"a namespace", at(func(m pcommon.Map) { m.PutStr("gpu.operation", "x") }),
			`attribute gpu.operation: is a namespace, of gpu.operation.`,
		},
		{
			"a name as namespace", at(func(m pcommon.Map) { m.PutDouble("gpu.duration.max", 1) }),
			`attribute gpu.duration.max: has the name gpu.duration for a namespace (a name is never also a namespace)`,
		},
		{
			"the template before it was a template", at(func(m pcommon.Map) {
				m.PutDouble("gpu.step.phase.forward.duration",
					1)
			}),
			`attribute gpu.step.phase.forward.duration: not in the registry (did you mean gpu.step.covered.duration?)`,
		},
		{
			"not a word in a template", at(func(m pcommon.Map) { m.PutDouble("gpu.step.phase.duration.Forward", 1) }),
			`attribute gpu.step.phase.duration.Forward: not in the registry (the last part of gpu.step.phase.duration.<phase> must be one lower_snake word)`,
		},
		{
			"a template itself", at(func(m pcommon.Map) { m.PutDouble("gpu.step.phase.duration.<phase>", 1) }),
			`attribute gpu.step.phase.duration.<phase>: not in the registry (the last part of gpu.step.phase.duration.<phase> must be one lower_snake word)`,
		},
		{
			"int for double", at(func(m pcommon.Map) { m.PutInt("gpu.duration", 1) }),
			`attribute gpu.duration: Int, want double (the SDK's double, as 1.0, not 1)`,
		},
		{
			"text for a number", at(func(m pcommon.Map) { m.PutStr("gpu.io.size", "4096") }),
			`attribute gpu.io.size: Str, want int (not as text)`,
		},
		{
			"double for int", at(func(m pcommon.Map) { m.PutDouble("gpu.stream.id", 7) }),
			`attribute gpu.stream.id: Double, want int`,
		},
		{
			"text for a list", at(func(m pcommon.Map) { m.PutStr("gpu.throttle.reasons", "sw_power_cap") }),
			`attribute gpu.throttle.reasons: Str, want string[] (a list, of one element too)`,
		},
		{
			"wrong elements", at(func(m pcommon.Map) { m.PutEmptySlice("gpu.xid").AppendEmpty().SetStr("79") }),
			`attribute gpu.xid: an element is Str, want int[]`,
		},
		{
			"a list without elements", at(func(m pcommon.Map) { m.PutEmptySlice("gpu.xid") }),
			`attribute gpu.xid: empty (omit unknown values)`,
		},
		{
			"an empty text", at(func(m pcommon.Map) { m.PutStr("hw.name", "") }),
			`attribute hw.name: empty (omit unknown values)`,
		},
		{
			"NaN", at(func(m pcommon.Map) { m.PutDouble("gpu.energy", math.NaN()) }),
			`attribute gpu.energy: NaN is not finite (omit it if unknown)`,
		},
		{
			"an unknown value", at(func(m pcommon.Map) { m.PutStr("gpu.timing.source", "tsc") }),
			`attribute gpu.timing.source: "tsc" is not one of cuda_event, `,
		},
		{
			"an unknown value of another", at(func(m pcommon.Map) { m.PutStr("gpu.copy.direction", "up") }),
			`attribute gpu.copy.direction: "up" is not one of device_to_device, device_to_host, host_to_device, host_to_host, peer_to_peer`,
		},
		{
			"an unknown type", at(func(m pcommon.Map) { m.PutStr("gpu.operation.type", "gemm") }),
			`attribute gpu.operation.type: "gemm" is not one of collective, copy, graph, host, kernel, memset, request, section, share, step`,
		},
		{
			"per cent", at(func(m pcommon.Map) { m.PutDouble("gpu.sm.utilization", 88) }),
			`attribute gpu.sm.utilization: 88 is above 1 (ratios are 0 to 1, not per cent)`,
		},
		{
			"a negative duration", at(func(m pcommon.Map) { m.PutDouble("gpu.duration", -1) }),
			`attribute gpu.duration: -1 is negative`,
		},
		{"a negative size", at(func(m pcommon.Map) { m.PutInt("gpu.io.size", -1) }), `attribute gpu.io.size: -1 is negative`},
		{
			"what belongs on the resource", at(func(m pcommon.Map) { m.PutInt("gpu.job.local_rank", 0) }),
			`attribute gpu.job.local_rank: on a span (the registry allows resource, metric)`,
		},
		{
			"twice", func(_ pcommon.InstrumentationScope, s ptrace.Span) { twice(s) },
			`attribute gpu.duration: occurs twice (write each name once)`,
		},
		{
			"no GPU span", at(func(m pcommon.Map) { m.Remove("gpu.operation.type") }),
			`attribute gpu.duration: on a span without gpu.operation.type (its presence makes a span a GPU span)`,
		},
		{
			"GPU time of a request", at(func(m pcommon.Map) { m.PutStr("gpu.operation.type", "request") }),
			`attribute gpu.duration: on a span of type request, which is not GPU work (leave it out)`,
		},
		{"an account of nothing", at(func(m pcommon.Map) {
			m.PutStr("gpu.operation.type", "share")
			m.Remove("gpu.duration")
			m.Remove("gpu.operation.name")
		}), `a span of type share has no gpu.operation.name (the registry requires it)`},
		{
			"ends before its start", func(_ pcommon.InstrumentationScope, s ptrace.Span) { s.SetEndTimestamp(now - 8) },
			`ends before its start (by 8 ns here)`,
		},
		{
			"no time", func(_ pcommon.InstrumentationScope, s ptrace.Span) { s.SetStartTimestamp(0) },
			`has no start or no end (times are unix nanoseconds)`,
		},
		{
			"no kind of span", func(_ pcommon.InstrumentationScope, s ptrace.Span) { s.SetKind(6) },
			`kind 6 is not in OTLP (0 to 5; 1 is internal)`,
		},
		{
			"no span ID", func(_ pcommon.InstrumentationScope, s ptrace.Span) { s.SetSpanID([8]byte{}) },
			`has no trace ID or no span ID (it cannot be joined with samples of the device)`,
		},
		{
			"no device", func(sc pcommon.InstrumentationScope, _ ptrace.Span) { sc.Attributes().Remove("hw.id") },
			`names no device (set hw.id on the instrumentation scope, or on the span)`,
		},
	} {
		td, scope, s := good()
		tt.do(scope, s)
		got := strict(td)
		if assert.Len(t, got, 1, "%s: %s", tt.name, got) {
			assert.Contains(t, got[0], `span "attention": `+tt.want, tt.name)
		}
	}
}

// twice returns an attribute name that a span has two times, which pdata's own maps prevent.
func twice(s ptrace.Span) {
	s.Attributes().PutDouble("gpu.duratiom", 0.002)
	b, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(one(s))
	if err != nil {
		panic(err)
	}
	td, err := (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces([]byte(strings.ReplaceAll(string(b), "gpu.duratiom",
		"gpu.duration")))
	if err != nil {
		panic(err)
	}
	td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0).CopyTo(s)
}

func one(s ptrace.Span) ptrace.Traces {
	td := ptrace.NewTraces()
	s.CopyTo(td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans().AppendEmpty())
	return td
}

func TestResourcesScopesEventsAndLinksAreChecked(t *testing.T) {
	for want, m := range map[string]func(ptrace.Traces, ptrace.Span) pcommon.Map{
		`resource 0: attribute gpu.nothing`: func(td ptrace.Traces, _ ptrace.Span) pcommon.Map {
			return td.ResourceSpans().At(0).Resource().Attributes()
		},
		`scope "my.engine": attribute gpu.nothing`: func(td ptrace.Traces, _ ptrace.Span) pcommon.Map {
			return td.ResourceSpans().At(0).ScopeSpans().At(0).Scope().Attributes()
		},
		`span "attention", event "e": attribute gpu.nothing`: func(_ ptrace.Traces, s ptrace.Span) pcommon.Map {
			e := s.Events().AppendEmpty()
			e.SetName("e")
			return e.Attributes()
		},
		`span "attention", link 0: attribute gpu.nothing: not in`: func(_ ptrace.Traces,
			s ptrace.Span,
		) pcommon.Map {
			return s.Links().AppendEmpty().Attributes()
		},
	} {
		td, _, s := good()
		m(td, s).PutStr("gpu.nothing", "x")
		got := strict(td)
		require.Len(t, got, 1)
		require.Contains(t, got[0], want)
	}
	td, _, _ := good()
	td.ResourceSpans().At(0).Resource().Attributes().PutStr("hw.vendor", "NVIDIA")
	require.Equal(t,
		[]string{"resource 0: attribute hw.vendor: on a resource (the registry allows scope, span, metric, log)"}, strict(td))
}

func TestEventsOfASpanAreInTheRegistry(t *testing.T) {
	for want, do := range map[string]func(ptrace.Span){
		`event "gpu.xids": the event name is not in the registry (did you mean gpu.xid?)`: func(s ptrace.Span) {
			s.Events().AppendEmpty().SetName("gpu.xids")
		},
		`event "gpu.xid": has no gpu.event.code (the registry requires it)`: func(s ptrace.Span) {
			s.Events().AppendEmpty().SetName("gpu.xid")
		},
	} {
		td, _, s := good()
		do(s)
		require.Equal(t, []string{`span "attention", ` + want}, strict(td))
	}
}

func TestASchemaOfTheFamilyHasAVersionThatExists(t *testing.T) {
	const family = "https://raw.githubusercontent.com/otelgpu/otelgpu/main/semconv/schemas/"
	for url, want := range map[string]string{
		semconv.SchemaURL:                         "",
		"https://opentelemetry.io/schemas/1.37.0": "",
		family + "0.1":                            `"0.1" is not a version of the schema`,
		family + "0.1.0/":                         `"0.1.0/" is not a version of the schema`,
	} {
		td, _, _ := good()
		td.ResourceSpans().At(0).ScopeSpans().At(0).SetSchemaUrl(url)
		md, _ := counter(1)
		md.ResourceMetrics().At(0).ScopeMetrics().At(0).SetSchemaUrl(url)
		ld := plog.NewLogs()
		ld.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty().SetSchemaUrl(url)
		for _, err := range []error{Traces(td), Metrics(md), Logs(ld)} {
			if want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, want)
			}
		}
	}
}

func counter(value float64) (pmetric.Metrics, pmetric.Metric) {
	md := pmetric.NewMetrics()
	m := md.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
	m.SetName("hw.energy")
	m.SetUnit("J")
	p := m.SetEmptySum()
	p.SetIsMonotonic(true)
	p.SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
	d := p.DataPoints().AppendEmpty()
	d.SetDoubleValue(value)
	d.SetTimestamp(now)
	d.Attributes().PutStr("hw.id", "GPU-1")
	return md, m
}

func TestEveryViolationOfAMetricIsNamed(t *testing.T) {
	point := func(do func(pmetric.NumberDataPoint)) func(pmetric.Metric) {
		return func(m pmetric.Metric) { do(m.Sum().DataPoints().At(0)) }
	}
	histogram := func(counts []uint64, bounds []float64, n uint64) func(pmetric.Metric) {
		return func(m pmetric.Metric) {
			m.SetName("gpu.operation.duration")
			m.SetUnit("s")
			h := m.SetEmptyHistogram()
			h.SetAggregationTemporality(pmetric.AggregationTemporalityDelta)
			p := h.DataPoints().AppendEmpty()
			p.SetTimestamp(now)
			p.Attributes().PutStr("gpu.operation.type", "section")
			p.Attributes().PutStr("gpu.operation.name", "a")
			p.BucketCounts().FromRaw(counts)
			p.ExplicitBounds().FromRaw(bounds)
			p.SetCount(n)
		}
	}
	gauge := func(name, unit string, value float64) func(pmetric.Metric) {
		return func(m pmetric.Metric) {
			m.SetName(name)
			m.SetUnit(unit)
			p := m.SetEmptyGauge().DataPoints().AppendEmpty()
			p.SetTimestamp(now)
			p.SetDoubleValue(value)
			p.Attributes().PutStr("hw.id", "GPU-1")
		}
	}
	for _, tt := range []struct {
		name string
		do   func(pmetric.Metric)
		want string
	}{
		{"a ratio", gauge("hw.gpu.utilization", "1", 1), ""},
		{"a drift", gauge("gpuspan.clock.drift", "1", -2e-6), ""},
		{"a cold device", gauge("hw.temperature", "Cel", -3), ""},
		{
			"per cent", gauge("hw.gpu.utilization", "1", 88),
			"metric hw.gpu.utilization: value 88 is above 1 (ratios are 0 to 1, not per cent)",
		},
		{"negative power", gauge("hw.power", "W", -3), "metric hw.power: value -3 is negative"},
		{"negative memory", func(m pmetric.Metric) {
			gauge("gpu.process.memory.usage", "By", -1)(m)
			m.Gauge().DataPoints().At(0).Attributes().PutInt("process.pid", 1)
		}, "metric gpu.process.memory.usage: value -1 is negative"},
		{
			"a negative difference", func(m pmetric.Metric) {
				m.SetName("hw.gpu.memory.usage")
				m.SetUnit("By")
				m.Sum().SetIsMonotonic(false)
				m.Sum().SetAggregationTemporality(pmetric.AggregationTemporalityDelta)
				m.Sum().DataPoints().At(0).SetDoubleValue(-4)
			}, "",
		},
		{
			"temporality", func(m pmetric.Metric) {
				m.Sum().SetAggregationTemporality(pmetric.AggregationTemporalityUnspecified)
			},
			"metric hw.energy: temporality Unspecified, want Delta or Cumulative",
		},
		{
			"another's temporality", func(m pmetric.Metric) {
				m.SetName("my.energy")
				m.Sum().SetAggregationTemporality(pmetric.AggregationTemporalityUnspecified)
			}, "",
		},
		{
			"no time", point(func(p pmetric.NumberDataPoint) { p.SetTimestamp(0) }),
			"metric hw.energy: a point has no time (times are unix nanoseconds)",
		},
		{"no value", func(m pmetric.Metric) {
			m.Sum().DataPoints().At(0).Attributes().CopyTo(m.SetEmptyGauge().DataPoints().AppendEmpty().Attributes())
			m.SetName("hw.power")
			m.SetUnit("W")
			m.Gauge().DataPoints().At(0).SetTimestamp(now)
		}, "metric hw.power: a point has no value (leave the point out)"},
		{"the end of a series", func(m pmetric.Metric) {
			gauge("hw.power", "W", 1)(m)
			p := pmetric.NewNumberDataPoint()
			p.SetTimestamp(now)
			p.Attributes().PutStr("hw.id", "GPU-1")
			p.SetFlags(pmetric.DefaultDataPointFlags.WithNoRecordedValue(true))
			p.CopyTo(m.Gauge().DataPoints().At(0))
		}, ""},
		{"nothing", func(pmetric.Metric) {}, ""},
		{"a histogram", histogram([]uint64{1, 2}, []float64{1}, 3), ""},
		{
			"nobody's name", func(m pmetric.Metric) { m.SetName("gpu.operation.durations") },
			"metric gpu.operation.durations: not in the registry (did you mean gpu.operation.duration?)",
		},
		{
			"a namespace", func(m pmetric.Metric) { m.SetName("gpu.operation") },
			"metric gpu.operation: is a namespace, of gpu.operation.count (a name is never also a namespace; use one of the names below it)",
		},
		{"another's name", func(m pmetric.Metric) { m.SetName("otelcol_receiver_gpu_samples") }, ""},
		{"unit", func(m pmetric.Metric) { m.SetUnit("W.s") }, `metric hw.energy: unit "W.s", want "J"`},
		{
			"instrument", func(m pmetric.Metric) { m.Sum().SetIsMonotonic(false) },
			"metric hw.energy: updowncounter, want counter",
		},
		{
			"infinite", point(func(p pmetric.NumberDataPoint) { p.SetDoubleValue(math.Inf(1)) }),
			"metric hw.energy: value +Inf is not finite (leave the point out)",
		},
		{
			"below 0", point(func(p pmetric.NumberDataPoint) { p.SetDoubleValue(-3) }),
			"metric hw.energy: a counter is -3 (counters do not fall below 0)",
		},
		{
			"without device", point(func(p pmetric.NumberDataPoint) { p.Attributes().Remove("hw.id") }),
			"metric hw.energy: a point has no hw.id (the registry requires it)",
		},
		{
			"another metric's attribute", point(func(p pmetric.NumberDataPoint) { p.Attributes().PutStr("gpu.pipe", "fp32") }),
			"metric hw.energy: attribute gpu.pipe is not one of the metric's",
		},
		{
			"a value of none", point(func(p pmetric.NumberDataPoint) {
				p.Attributes().PutStr("gpu.measurement.source",
					"guess")
			}),
			`metric hw.energy: attribute gpu.measurement.source: "guess" is not one of dcgm, `,
		},
		{
			"time before start", point(func(p pmetric.NumberDataPoint) { p.SetStartTimestamp(now + 1) }),
			"metric hw.energy: a point's start is after its time",
		},
		{
			"too few buckets", histogram([]uint64{1, 2}, []float64{1, 2}, 3),
			"metric gpu.operation.duration: 2 buckets for 2 bounds, want one more than bounds",
		},
		{
			"buckets that do not sum", histogram([]uint64{1, 2}, []float64{1}, 4),
			"metric gpu.operation.duration: the buckets do not sum to the count",
		},
		{
			"bounds", histogram([]uint64{1, 2, 0}, []float64{2, 1}, 3),
			"metric gpu.operation.duration: the bounds are not in order",
		},
	} {
		md, m := counter(1)
		tt.do(m)
		r := Report{Strict: true}
		r.Metrics(md)
		if tt.want == "" {
			assert.Empty(t, texted(&r), tt.name)
			continue
		}
		if got := texted(&r); assert.Len(t, got, 1, tt.name) {
			assert.Contains(t, got[0], tt.want, tt.name)
		}
	}
}

func TestEveryViolationOfALogRecordIsNamed(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(plog.LogRecord)
		want string
	}{
		{"nothing", func(plog.LogRecord) {}, ""},
		{"another's event", func(l plog.LogRecord) { l.SetEventName("my.event") }, ""},
		{
			"nobody's event", func(l plog.LogRecord) { l.SetEventName("gpu.explosion") },
			`log record "gpu.explosion": the event name is not in the registry (use your own namespace, or a name of docs/semconv)`,
		},
		{
			"without code", func(l plog.LogRecord) { l.Attributes().Remove("gpu.event.code") },
			`log record "gpu.xid": has no gpu.event.code (the registry requires it)`,
		},
		{
			"type", func(l plog.LogRecord) { l.Attributes().PutStr("gpu.event.code", "79") },
			`log record "gpu.xid": attribute gpu.event.code: Str, want int (not as text)`,
		},
	} {
		ld := plog.NewLogs()
		l := ld.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty().LogRecords().AppendEmpty()
		l.SetEventName("gpu.xid")
		l.Attributes().PutInt("gpu.event.code", 79)
		l.Attributes().PutStr("hw.id", "GPU-1")
		tt.do(l)
		var want []string
		if tt.want != "" {
			want = []string{tt.want}
		}
		var r Report
		r.Logs(ld)
		assert.Equal(t, want, texted(&r), tt.name)
	}
}

func TestAWriterThatTheRegistryDoesNotNameIsNamed(t *testing.T) {
	td, _, s := good()
	s.Attributes().Remove("gpu.operation.type")
	s.Attributes().Remove("gpu.duration")
	s.Attributes().PutStr("gpu.rate.status", "ok")
	require.NoError(t, Traces(td))
	err := TracesFrom("nsys", td)
	require.ErrorContains(t, err, "attribute gpu.rate.status: nsys is not among its writers (gpu_derive)")
	require.ErrorContains(t, err, `schema URL "" is not https://`)
}

// The examples in the registry conform to it.
func TestEveryExampleOfTheRegistryPasses(t *testing.T) {
	for _, a := range semconv.Attributes() {
		for _, m := range a.Members {
			v := pcommon.NewValueStr(m)
			if a.Type == semconv.TypeStrings {
				v = pcommon.NewValueSlice()
				v.Slice().AppendEmpty().SetStr(m)
			}
			what, _ := attribute(a.Name, v, a.On[0])
			assert.Empty(t, what, "%s=%s", a.Name, m)
		}
	}
}
