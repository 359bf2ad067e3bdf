// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package spanfacts

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
	logsv1 "go.opentelemetry.io/proto/otlp/logs/v1"
	metricsv1 "go.opentelemetry.io/proto/otlp/metrics/v1"
	"go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// strict returns the error of a reader that enforces the rules of protocol buffers.
func strict(t testing.TB, td ptrace.Traces) error {
	b, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(td)
	require.NoError(t, err)
	return proto.UnmarshalOptions{RecursionLimit: 100}.Unmarshal(b, &v1.TracesData{})
}

// Each function puts a text at a different place.
var places = map[string]func(rs ptrace.ResourceSpans, text string){
	"resource":             func(rs ptrace.ResourceSpans, x string) { rs.Resource().Attributes().PutStr("k", x) },
	"schema of a resource": func(rs ptrace.ResourceSpans, x string) { rs.SetSchemaUrl(x) },
	"scope":                func(rs ptrace.ResourceSpans, x string) { rs.ScopeSpans().At(0).Scope().SetName(x) },
	"version":              func(rs ptrace.ResourceSpans, x string) { rs.ScopeSpans().At(0).Scope().SetVersion(x) },
	"scope's attribute": func(rs ptrace.ResourceSpans, x string) {
		rs.ScopeSpans().At(0).Scope().Attributes().PutStr("k", x)
	},
	"schema of a scope": func(rs ptrace.ResourceSpans, x string) { rs.ScopeSpans().At(0).SetSchemaUrl(x) },
	"name":              func(rs ptrace.ResourceSpans, x string) { spanOf(rs).SetName(x) },
	"trace state":       func(rs ptrace.ResourceSpans, x string) { spanOf(rs).TraceState().FromRaw(x) },
	"status":            func(rs ptrace.ResourceSpans, x string) { spanOf(rs).Status().SetMessage(x) },
	"attribute":         func(rs ptrace.ResourceSpans, x string) { spanOf(rs).Attributes().PutStr("k", x) },
	"attribute's name":  func(rs ptrace.ResourceSpans, x string) { spanOf(rs).Attributes().PutInt(x, 7) },
	"list": func(rs ptrace.ResourceSpans, x string) {
		spanOf(rs).Attributes().PutEmptySlice("k").AppendEmpty().SetStr(x)
	},
	"map": func(rs ptrace.ResourceSpans, x string) {
		spanOf(rs).Attributes().PutEmptyMap("k").PutEmptyMap("l").PutStr(x, x)
	},
	"event":             func(rs ptrace.ResourceSpans, x string) { spanOf(rs).Events().AppendEmpty().SetName(x) },
	"event's attribute": func(rs ptrace.ResourceSpans, x string) { spanOf(rs).Events().AppendEmpty().Attributes().PutStr("k", x) },
	"link":              func(rs ptrace.ResourceSpans, x string) { spanOf(rs).Links().AppendEmpty().TraceState().FromRaw(x) },
	"link's attribute":  func(rs ptrace.ResourceSpans, x string) { spanOf(rs).Links().AppendEmpty().Attributes().PutStr("k", x) },
}

func spanOf(rs ptrace.ResourceSpans) ptrace.Span { return rs.ScopeSpans().At(0).Spans().At(0) }

func TestValidTracesAreAcceptedByStrictReaders(t *testing.T) {
	for place, put := range places {
		with := func(text string) ptrace.Traces {
			td := ptrace.NewTraces()
			rs := td.ResourceSpans().AppendEmpty()
			rs.ScopeSpans().AppendEmpty().Spans().AppendEmpty().Attributes().PutStr("other", "kept")
			put(rs, text)
			return td
		}
		td := with("a\xff\xfeb")
		require.Error(t, strict(t, td), place)
		ValidTraces(td)
		assert.NoError(t, strict(t, td), place)
		assert.Equal(t, with("a\uFFFDb"), td, place)
		ValidTraces(td)
		assert.Equal(t, with("a\uFFFDb"), td, "%s: valid traces are unchanged", place)
	}
}

func TestValuesThatAreNestedTooDeepAreReplaced(t *testing.T) {
	nested := func(depth int) (td ptrace.Traces, inner func() pcommon.Value) {
		td = ptrace.NewTraces()
		e := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans().AppendEmpty().Events().AppendEmpty()
		v := e.Attributes().PutEmpty("k")
		for range depth {
			v = v.SetEmptyMap().PutEmpty("k")
		}
		v.SetStr("inner")
		return td, func() pcommon.Value {
			v, _ := e.Attributes().Get("k")
			for v.Type() == pcommon.ValueTypeMap {
				v, _ = v.Map().Get("k")
			}
			return v
		}
	}
	td, inner := nested(24)
	require.NoError(t, strict(t, td))
	ValidTraces(td)
	assert.Equal(t, "inner", inner().Str())

	td, inner = nested(25)
	ValidTraces(td)
	assert.Equal(t, "…", inner().Str())

	td, _ = nested(100_000)
	require.Error(t, strict(t, td))
	ValidTraces(td)
	assert.NoError(t, strict(t, td))
}

// The texts of a span are valid and bounded wherever they are.
func TestFactsAreValidAndBounded(t *testing.T) {
	long := strings.Repeat("x", 1<<20) + "\xff"
	f := load(t, map[string]any{
		"gpu.operation.type": "step", "gpu.operation.name": long, "gpu.step.item.type": "\xff",
		"gpu.step.phase.duration." + long: 1.0,
	})
	assert.Equal(t, strings.Repeat("x", 256)+"…", f.Name)
	assert.Equal(t, long, f.FullName())
	assert.Equal(t, "\uFFFD", f.StepItemType)
	assert.Equal(t, []Phase{{strings.Repeat("x", 256) + "…", 1}}, f.Phases())
}

// Each function puts a text at a different place of metrics.
var metricPlaces = map[string]func(rm pmetric.ResourceMetrics, text string){
	"resource":             func(rm pmetric.ResourceMetrics, x string) { rm.Resource().Attributes().PutStr("k", x) },
	"schema of a resource": func(rm pmetric.ResourceMetrics, x string) { rm.SetSchemaUrl(x) },
	"scope":                func(rm pmetric.ResourceMetrics, x string) { rm.ScopeMetrics().At(0).Scope().SetName(x) },
	"schema of a scope":    func(rm pmetric.ResourceMetrics, x string) { rm.ScopeMetrics().At(0).SetSchemaUrl(x) },
	"name":                 func(rm pmetric.ResourceMetrics, x string) { metricOf(rm).SetName(x) },
	"description":          func(rm pmetric.ResourceMetrics, x string) { metricOf(rm).SetDescription(x) },
	"unit":                 func(rm pmetric.ResourceMetrics, x string) { metricOf(rm).SetUnit(x) },
	"metadata":             func(rm pmetric.ResourceMetrics, x string) { metricOf(rm).Metadata().PutStr("k", x) },
	"gauge": func(rm pmetric.ResourceMetrics, x string) {
		metricOf(rm).SetEmptyGauge().DataPoints().AppendEmpty().Attributes().PutStr(x, x)
	},
	"sum": func(rm pmetric.ResourceMetrics, x string) {
		metricOf(rm).SetEmptySum().DataPoints().AppendEmpty().Attributes().PutStr("k", x)
	},
	"histogram": func(rm pmetric.ResourceMetrics, x string) {
		metricOf(rm).SetEmptyHistogram().DataPoints().AppendEmpty().Attributes().PutStr("k", x)
	},
	"exponential histogram": func(rm pmetric.ResourceMetrics, x string) {
		metricOf(rm).SetEmptyExponentialHistogram().DataPoints().AppendEmpty().Attributes().PutStr("k", x)
	},
	"summary": func(rm pmetric.ResourceMetrics, x string) {
		metricOf(rm).SetEmptySummary().DataPoints().AppendEmpty().Attributes().PutStr("k", x)
	},
	"exemplar": func(rm pmetric.ResourceMetrics, x string) {
		metricOf(rm).SetEmptyGauge().DataPoints().AppendEmpty().Exemplars().AppendEmpty().FilteredAttributes().PutStr("k", x)
	},
	"exemplar of a histogram": func(rm pmetric.ResourceMetrics, x string) {
		metricOf(rm).SetEmptyHistogram().DataPoints().AppendEmpty().Exemplars().AppendEmpty().FilteredAttributes().PutStr("k", x)
	},
	"exemplar of an exponential histogram": func(rm pmetric.ResourceMetrics, x string) {
		p := metricOf(rm).SetEmptyExponentialHistogram().DataPoints().AppendEmpty()
		p.Exemplars().AppendEmpty().FilteredAttributes().PutStr("k", x)
	},
}

func metricOf(rm pmetric.ResourceMetrics) pmetric.Metric {
	return rm.ScopeMetrics().At(0).Metrics().At(0)
}

func TestValidMetricsAreAcceptedByStrictReaders(t *testing.T) {
	strict := func(md pmetric.Metrics) error {
		b, err := (&pmetric.ProtoMarshaler{}).MarshalMetrics(md)
		require.NoError(t, err)
		return proto.Unmarshal(b, &metricsv1.MetricsData{})
	}
	for place, put := range metricPlaces {
		with := func(text string) pmetric.Metrics {
			md := pmetric.NewMetrics()
			rm := md.ResourceMetrics().AppendEmpty()
			rm.ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
			put(rm, text)
			return md
		}
		md := with("a\xff\xfeb")
		require.Error(t, strict(md), place)
		ValidMetrics(md)
		assert.NoError(t, strict(md), place)
		assert.Equal(t, with("a\uFFFDb"), md, place)
	}
}

// Each function puts a text at a different place of logs.
var logPlaces = map[string]func(rl plog.ResourceLogs, text string){
	"resource":             func(rl plog.ResourceLogs, x string) { rl.Resource().Attributes().PutStr("k", x) },
	"schema of a resource": func(rl plog.ResourceLogs, x string) { rl.SetSchemaUrl(x) },
	"scope":                func(rl plog.ResourceLogs, x string) { rl.ScopeLogs().At(0).Scope().SetName(x) },
	"schema of a scope":    func(rl plog.ResourceLogs, x string) { rl.ScopeLogs().At(0).SetSchemaUrl(x) },
	"severity":             func(rl plog.ResourceLogs, x string) { recordOf(rl).SetSeverityText(x) },
	"event":                func(rl plog.ResourceLogs, x string) { recordOf(rl).SetEventName(x) },
	"body":                 func(rl plog.ResourceLogs, x string) { recordOf(rl).Body().SetStr(x) },
	"list":                 func(rl plog.ResourceLogs, x string) { recordOf(rl).Body().SetEmptySlice().AppendEmpty().SetStr(x) },
	"attribute":            func(rl plog.ResourceLogs, x string) { recordOf(rl).Attributes().PutStr(x, x) },
}

func recordOf(rl plog.ResourceLogs) plog.LogRecord { return rl.ScopeLogs().At(0).LogRecords().At(0) }

func TestValidLogsAreAcceptedByStrictReaders(t *testing.T) {
	strict := func(ld plog.Logs) error {
		b, err := (&plog.ProtoMarshaler{}).MarshalLogs(ld)
		require.NoError(t, err)
		return proto.Unmarshal(b, &logsv1.LogsData{})
	}
	for place, put := range logPlaces {
		with := func(text string) plog.Logs {
			ld := plog.NewLogs()
			rl := ld.ResourceLogs().AppendEmpty()
			rl.ScopeLogs().AppendEmpty().LogRecords().AppendEmpty()
			put(rl, text)
			return ld
		}
		ld := with("a\xff\xfeb")
		require.Error(t, strict(ld), place)
		ValidLogs(ld)
		assert.NoError(t, strict(ld), place)
		assert.Equal(t, with("a\uFFFDb"), ld, place)
	}
}
