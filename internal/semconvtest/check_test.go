// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package semconvtest

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

func TestSpanThatFollowsTheRegistryPasses(t *testing.T) {
	td, s := span()
	td.ResourceSpans().At(0).Resource().Attributes().PutInt("gpu.job.rank", 3)
	td.ResourceSpans().At(0).ScopeSpans().At(0).Scope().Attributes().PutBool("gpu.metrics.emitted", true)
	a := s.Attributes()
	a.PutStr("gpu.operation.type", "section")
	a.PutDouble("gpu.duration", 0.001)
	a.PutDouble("gpu.step.phase.duration.forward", 0.001)
	a.PutEmptySlice("gpu.kernel.grid").AppendEmpty().SetInt(141)
	a.PutStr("foreign.name", "")
	require.NoError(t, CheckTraces(td))
}

func TestSpanThatDeviatesIsNamed(t *testing.T) {
	for _, c := range []struct {
		put  func(pcommon.Map)
		want string
	}{
		{func(m pcommon.Map) { m.PutStr("gpu.nothing", "x") }, `span "s": attribute gpu.nothing: not in the registry`},
		{func(m pcommon.Map) { m.PutInt("gpu.duration", 1) }, `span "s": attribute gpu.duration: Int, want double`},
		{func(m pcommon.Map) { m.PutDouble("gpu.duration", math.NaN()) }, `span "s": attribute gpu.duration: NaN is not finite`},
		{func(m pcommon.Map) { m.PutStr("gpu.operation.type", "gemm") }, `span "s": attribute gpu.operation.type: "gemm" is none of collective, copy, graph, host, kernel, memset, request, section, share, step`},
		{func(m pcommon.Map) { m.PutStr("hw.id", "") }, `span "s": attribute hw.id: empty (what is unknown is absent)`},
		{func(m pcommon.Map) { m.PutInt("gpu.job.local_rank", 0) }, `span "s": attribute gpu.job.local_rank: on a span (the registry allows resource, metric)`},
		{func(m pcommon.Map) { m.PutEmptySlice("gpu.xid").AppendEmpty().SetStr("79") }, `span "s": attribute gpu.xid: an element is Str, want int[]`},
		{func(m pcommon.Map) { m.PutEmptySlice("gpu.xid") }, `span "s": attribute gpu.xid: empty (what is unknown is absent)`},
	} {
		td, s := span()
		c.put(s.Attributes())
		require.EqualError(t, CheckTraces(td), c.want)

		td, s = span()
		c.put(s.Events().AppendEmpty().Attributes())
		require.ErrorContains(t, CheckTraces(td), "event")

		td, s = span()
		c.put(s.Links().AppendEmpty().Attributes())
		require.ErrorContains(t, CheckTraces(td), "link 0")
	}
}

func TestAWriterThatTheRegistryDoesNotNameIsNamed(t *testing.T) {
	td, s := span()
	td.ResourceSpans().At(0).Resource().Attributes().PutStr("service.name", "x")
	s.Attributes().PutDouble("gpu.join.coverage", 1)
	require.NoError(t, CheckTraces(td))
	require.EqualError(t, CheckTracesFrom("nsys", td), "attribute gpu.join.coverage: nsys is not among its writers (gpu_join)")
}

func TestIdentityOnAResourceIsRefused(t *testing.T) {
	td, _ := span()
	td.ResourceSpans().At(0).Resource().Attributes().PutStr("hw.id", "GPU-1")
	require.EqualError(t, CheckTraces(td), "resource 0: attribute hw.id: on a resource (the registry allows scope, span, metric, log)")
}

func TestGPUSpanThatEndsBeforeItsStartIsRefused(t *testing.T) {
	td, s := span()
	s.Attributes().PutStr("gpu.operation.type", "section")
	s.SetStartTimestamp(8)
	require.EqualError(t, CheckTraces(td), `span "s": ends 8 ns before its start`)
}

func TestMetricMustHaveTheRegistrysUnitAndInstrument(t *testing.T) {
	md, m := metric("hw.energy", "J")
	p := m.SetEmptySum()
	p.SetIsMonotonic(true)
	d := p.DataPoints().AppendEmpty()
	d.SetDoubleValue(1)
	d.Attributes().PutStr("hw.id", "GPU-1")
	require.NoError(t, CheckMetrics(md))

	d.Attributes().PutStr("gpu.pipe", "fp32")
	require.EqualError(t, CheckMetrics(md), "metric hw.energy: attribute gpu.pipe is not one of the metric's")
	d.Attributes().Remove("gpu.pipe")

	p.SetIsMonotonic(false)
	m.SetUnit("W.s")
	require.EqualError(t, CheckMetrics(md), "metric hw.energy: unit \"W.s\", want \"J\"\nmetric hw.energy: updowncounter, want counter")

	md, m = metric("gpu.operation.duration", "s")
	m.SetEmptyExponentialHistogram().DataPoints().AppendEmpty().SetSum(math.Inf(1))
	require.EqualError(t, CheckMetrics(md), "metric gpu.operation.duration: value +Inf is not finite")

	md, m = metric("gpu.nothing", "1")
	m.SetEmptyGauge()
	require.EqualError(t, CheckMetrics(md), "metric gpu.nothing: not in the registry")

	md, m = metric("otelcol_receiver_gpu_samples", "{sample}")
	m.SetEmptyGauge()
	require.NoError(t, CheckMetrics(md))
}

func TestLogRecordMustHaveARegisteredEventName(t *testing.T) {
	ld := plog.NewLogs()
	r := ld.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty().LogRecords().AppendEmpty()
	r.SetEventName("gpu.xid")
	r.Attributes().PutInt("gpu.event.code", 79)
	require.NoError(t, CheckLogs(ld))
	r.SetEventName("gpu.explosion")
	require.EqualError(t, CheckLogs(ld), `log record "gpu.explosion": the event name is not in the registry`)
}

func span() (ptrace.Traces, ptrace.Span) {
	td := ptrace.NewTraces()
	s := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans().AppendEmpty()
	s.SetName("s")
	return td, s
}

func metric(name, unit string) (pmetric.Metrics, pmetric.Metric) {
	md := pmetric.NewMetrics()
	m := md.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
	m.SetName(name)
	m.SetUnit(unit)
	return md, m
}
