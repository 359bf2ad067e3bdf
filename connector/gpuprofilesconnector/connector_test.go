// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuprofilesconnector

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/connector"
	"go.opentelemetry.io/collector/connector/connectortest"
	"go.opentelemetry.io/collector/connector/xconnector"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/consumer/xconsumer"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pprofile"
	"go.opentelemetry.io/collector/pdata/pprofile/pprofileotlp"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/connector/gpuprofilesconnector/internal/metadata"
	"github.com/otelgpu/otelgpu/internal/configtest"
	"github.com/otelgpu/otelgpu/semconv"
)

func TestConfig(t *testing.T) {
	cfg, err := configtest.Load[Config](t, "gpu_profiles/full", createDefaultConfig)
	require.NoError(t, err)
	assert.Equal(t, &Config{
		Window: 10 * time.Second, Settle: time.Second, MaxWait: 20 * time.Second, MaxGap: 100 * time.Millisecond,
		MaxStacks: 1000, MaxSpans: 2000,
	}, cfg)
	_, err = configtest.Load[Config](t, "gpu_profiles/broken", createDefaultConfig)
	for _, key := range []string{"window", "settle", "max_wait", "max_gap", "max_stacks", "max_spans", "max_repeats"} {
		assert.ErrorContains(t, err, "`"+key+"` must")
	}
}

// traces returns a request with a section of 4 ms and 2 J that contains a kernel of 3 ms and 1 J.
func traces(now time.Time) ptrace.Traces {
	td := ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	rs.Resource().Attributes().PutStr("service.name", "inference")
	rs.Resource().Attributes().PutStr("service.version", "1.2")
	rs.Resource().Attributes().PutInt("gpu.job.rank", 3)
	ss := rs.ScopeSpans().AppendEmpty().Spans()
	add := func(id, parent byte, name, kind string, start, end time.Duration, energy float64) ptrace.Span {
		s := ss.AppendEmpty()
		s.SetTraceID(pcommon.TraceID{1})
		s.SetSpanID(pcommon.SpanID{id})
		if parent > 0 {
			s.SetParentSpanID(pcommon.SpanID{parent})
		}
		s.SetName(name)
		s.SetStartTimestamp(pcommon.NewTimestampFromTime(now.Add(start)))
		s.SetEndTimestamp(pcommon.NewTimestampFromTime(now.Add(end)))
		if kind != "" {
			s.Attributes().PutStr("gpu.operation.type", kind)
			s.Attributes().PutStr("hw.id", "GPU-a")
			s.Attributes().PutDouble("gpu.duration", (end - start).Seconds())
			s.Attributes().PutDouble("gpu.self_energy", energy)
		}
		return s
	}
	ms := time.Millisecond
	add(3, 2, "gemm", "kernel", 3*ms, 6*ms, 1).Attributes().PutStr("gpu.kernel.name", "void gemm<4>(int)")
	add(2, 1, "prefill", "section", 2*ms, 6*ms, 2).Attributes().PutStr("gpu.operation.category", "prefill")
	s := add(1, 0, "POST", "", 0, 10*ms, 0)
	s.SetKind(ptrace.SpanKindServer)
	s.Attributes().PutStr("http.route", "/v1/generate")
	s.Attributes().PutStr("http.request.method", "POST")
	return td
}

type refusing struct{ consumertest.ProfilesSink }

func (*refusing) ConsumeProfiles(context.Context, pprofile.Profiles) error { return errors.New("full") }

func start(t *testing.T, next xconsumer.Profiles) (connector.Traces, *componenttest.Telemetry) {
	tel := componenttest.NewTelemetry()
	t.Cleanup(func() { require.NoError(t, tel.Shutdown(context.Background())) })
	set := connectortest.NewNopSettings(metadata.Type)
	set.TelemetrySettings = tel.NewTelemetrySettings()
	f := NewFactory().(xconnector.Factory)
	c, err := f.CreateTracesToProfiles(context.Background(), set, f.CreateDefaultConfig(), next)
	require.NoError(t, err)
	require.NoError(t, c.Start(context.Background(), componenttest.NewNopHost()))
	return c, tel
}

func TestSpansBecomeProfiles(t *testing.T) {
	var sink consumertest.ProfilesSink
	c, tel := start(t, &sink)
	now := time.Now().Truncate(time.Minute)
	for range 2 { // sent twice
		require.NoError(t, c.ConsumeTraces(context.Background(), traces(now)))
	}
	require.NoError(t, c.Shutdown(context.Background()))
	require.Len(t, sink.AllProfiles(), 1)
	m, err := tel.GetMetric("otelcol_connector_gpu_profiles_repeated")
	require.NoError(t, err)
	require.NotEmpty(t, m)

	// The message survives encoding.
	b, err := pprofileotlp.NewExportRequestFromProfiles(sink.AllProfiles()[0]).MarshalProto()
	require.NoError(t, err)
	req := pprofileotlp.NewExportRequest()
	require.NoError(t, req.UnmarshalProto(b))
	out := req.Profiles()
	require.Equal(t, 1, out.ResourceProfiles().Len())
	rp := out.ResourceProfiles().At(0)
	require.Equal(t, map[string]any{"service.name": "inference", "service.version": "1.2"},
		rp.Resource().Attributes().AsRaw())
	d := out.Dictionary()
	got := map[string]int64{}
	for _, p := range rp.ScopeProfiles().At(0).Profiles().All() {
		require.EqualValues(t, time.Minute, p.DurationNano())
		require.Equal(t, pcommon.NewTimestampFromTime(now), p.Time())
		text := func(i int32) string { return d.StringTable().At(int(i)) }
		require.Equal(t, "gpu nanoseconds 1", fmt.Sprint(text(p.PeriodType().TypeStrindex()), " ",
			text(p.PeriodType().UnitStrindex()), " ", p.Period()), "Pyroscope rejects profiles without a period")
		for _, s := range p.Samples().All() {
			name := text(p.SampleType().TypeStrindex()) + " " + text(p.SampleType().UnitStrindex()) + ":"
			for _, at := range d.StackTable().At(int(s.StackIndex())).LocationIndices().AsRaw() {
				fn := d.FunctionTable().At(int(d.LocationTable().At(int(at)).Lines().At(0).FunctionIndex()))
				name += " " + text(fn.NameStrindex())
				if full := text(fn.SystemNameStrindex()); full != "" {
					name += " = " + full
				}
			}
			l := d.LinkTable().At(int(s.LinkIndex()))
			require.Equal(t, pcommon.TraceID{1}, l.TraceID())
			name += " span " + l.SpanID().String()[:2]
			for _, i := range s.AttributeIndices().AsRaw() {
				kv := d.AttributeTable().At(int(i))
				key := text(kv.KeyStrindex())
				_, known := semconv.LookupAttribute(key)
				require.True(t, known, key)
				name += " " + key + "=" + kv.Value().AsString()
			}
			got[name] = s.Values().At(0)
		}
	}
	kernel := " gemm = void gemm<4>(int) prefill POST /v1/generate inference span 03 hw.id=GPU-a gpu.job.rank=3"
	section := " prefill POST /v1/generate inference span 02 hw.id=GPU-a gpu.operation.category=prefill gpu.job.rank=3"
	require.Equal(t, map[string]int64{
		"gpu_time nanoseconds:" + kernel: 3_000_000, "gpu_time nanoseconds:" + section: 1_000_000,
		"gpu_energy microjoules:" + kernel: 1_000_000, "gpu_energy microjoules:" + section: 2_000_000,
	}, got)
}

// GPU time is scaled by the sampling threshold, as in gpu_metrics; energy is already divided among
// the spans that arrived.
func TestSampledTracesCountWithTheirThreshold(t *testing.T) {
	var sink consumertest.ProfilesSink
	c, _ := start(t, &sink)
	td := traces(time.Now().Truncate(time.Minute))
	for _, s := range td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().All() {
		s.TraceState().FromRaw("ot=th:c")
	}
	require.NoError(t, c.ConsumeTraces(context.Background(), td))
	require.NoError(t, c.Shutdown(context.Background()))
	require.Len(t, sink.AllProfiles(), 1)
	out := sink.AllProfiles()[0]
	sums := map[string]int64{}
	for _, p := range out.ResourceProfiles().At(0).ScopeProfiles().At(0).Profiles().All() {
		for _, s := range p.Samples().All() {
			sums[out.Dictionary().StringTable().At(int(p.SampleType().TypeStrindex()))] += s.Values().At(0)
		}
	}
	require.Equal(t, map[string]int64{"gpu_time": 16_000_000, "gpu_energy": 3_000_000}, sums)
}

func TestRefusedSamplesAreCounted(t *testing.T) {
	c, tel := start(t, &refusing{})
	require.NoError(t, c.ConsumeTraces(context.Background(), traces(time.Now())))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, c.Shutdown(ended))
	m, err := tel.GetMetric("otelcol_connector_gpu_profiles_dropped")
	require.NoError(t, err)
	require.NotEmpty(t, m)
	require.Equal(t, consumer.Capabilities{}, c.Capabilities())
}
