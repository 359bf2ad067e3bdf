// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"encoding/binary"
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"

	"github.com/otelgpu/otelgpu/config"
	"github.com/otelgpu/otelgpu/internal/page"
	"github.com/otelgpu/otelgpu/semconv"
)

// shortly overrides intervals of the all-in-one pipeline.
const shortly = `
processors:
  gpu_join: {settle: 400ms, max_wait: 700ms}
connectors:
  gpu_metrics: {flush_interval: 500ms}
  gpu_requests: {settle: 500ms, idle: 1s, flush_interval: 500ms}
`

// observedDevice sends the telemetry of one GPU and of the services that use it.
type observedDevice struct {
	t    *testing.T
	http string
	next uint64
}

const findingGPU = "GPU-99999999-0000-4000-8000-000000000000"

func (x *observedDevice) id() (id [8]byte) {
	x.next++
	binary.BigEndian.PutUint64(id[:], x.next)
	return id
}

// span adds a span of a service, in a separate trace.
func (x *observedDevice) span(td ptrace.Traces, service, name, kind string, start time.Time, length time.Duration,
	more map[string]any,
) ptrace.Span {
	rs := td.ResourceSpans().AppendEmpty()
	rs.Resource().Attributes().PutStr("service.name", service)
	s := rs.ScopeSpans().AppendEmpty().Spans().AppendEmpty()
	id := x.id()
	s.SetSpanID(id)
	s.SetTraceID(pcommon.TraceID(append(id[:], 0, 0, 0, 0, 0, 0, 0, 1)))
	s.SetName(name)
	s.SetStartTimestamp(pcommon.NewTimestampFromTime(start))
	s.SetEndTimestamp(pcommon.NewTimestampFromTime(start.Add(length)))
	a := s.Attributes()
	if kind == "server" {
		s.SetKind(ptrace.SpanKindServer)
		return s
	}
	require.NoError(x.t, a.FromRaw(more))
	a.PutStr(string(semconv.GPUOperationTypeKey), kind)
	a.PutStr(string(semconv.GPUOperationNameKey), name)
	a.PutStr(string(semconv.HWIDKey), findingGPU)
	a.PutDouble(string(semconv.GPUDurationKey), length.Seconds())
	a.PutStr(string(semconv.GPUTimingSourceKey), semconv.GPUTimingSourceCUDAEvent)
	return s
}

// request adds a request and the batch that answers it.
func (x *observedDevice) request(td ptrace.Traces, start time.Time, length time.Duration) {
	server := x.span(td, "api", "GET /generate", "server", start, length, nil)
	link := x.span(td, "api", "answer", "section", start, length/2, nil).Links().AppendEmpty()
	link.SetTraceID(server.TraceID())
	link.SetSpanID(server.SpanID())
}

func (x *observedDevice) send(td ptrace.Traces) {
	body, err := ptraceotlp.NewExportRequestFromTraces(td).MarshalProto()
	require.NoError(x.t, err)
	require.Equal(x.t, http.StatusOK, post(x.t, x.http, "traces", "x-protobuf", body, false))
}

// measure sends what the device and a training process on it measured.
func (x *observedDevice) measure(at time.Time, memory, xids, busy, starved float64) {
	md := pmetric.NewMetrics()
	rm := md.ResourceMetrics().AppendEmpty()
	rm.Resource().Attributes().PutStr("service.name", "train")
	metrics := rm.ScopeMetrics().AppendEmpty().Metrics()
	point := func(m pmetric.Metric, p pmetric.NumberDataPoint, name string, v float64, key, value string) {
		m.SetName(name)
		p.SetTimestamp(pcommon.NewTimestampFromTime(at))
		p.SetDoubleValue(v)
		p.Attributes().PutStr(string(semconv.HWIDKey), findingGPU)
		if key != "" {
			p.Attributes().PutStr(key, value)
		}
	}
	gauge := func(name string, v float64) {
		m := metrics.AppendEmpty()
		point(m, m.SetEmptyGauge().DataPoints().AppendEmpty(), name, v, "", "")
	}
	sum := func(name string, v float64, key, value string) {
		m := metrics.AppendEmpty()
		s := m.SetEmptySum()
		s.SetIsMonotonic(true)
		s.SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
		point(m, s.DataPoints().AppendEmpty(), name, v, key, value)
	}
	gauge(semconv.HWGPUMemoryLimitName, 100e9)
	gauge(semconv.HWGPUMemoryUsageName, memory*100e9)
	sum(semconv.HWErrorsName, xids, string(semconv.ErrorTypeKey), semconv.ErrorTypeXID)
	sum(semconv.GPUSectionTimeName, busy, string(semconv.GPUSectionStateKey), "busy")
	sum(semconv.GPUSectionTimeName, starved, string(semconv.GPUSectionStateKey), semconv.GPUSectionStateStarved)
	body, err := pmetricotlp.NewExportRequestFromMetrics(md).MarshalProto()
	require.NoError(x.t, err)
	require.Equal(x.t, http.StatusOK, post(x.t, x.http, "metrics", "x-protobuf", body, false))
}

// Every live finding, through the pipeline that runs without a configuration: first just below the
// threshold of each, then just above it. Late ranks have tests of their own.
func TestLiveFindingsOfTheReadyPipelineAppearAtTheirThresholds(t *testing.T) {
	if testing.Short() {
		t.Skip("the Collector is not built and run with -short")
	}
	t.Parallel()
	p := newPorts(t)
	address := freeAddress(t)
	ready, err := config.YAML("all-in-one")
	require.NoError(t, err)
	startCollector(t, buildCollector(t), append(p.env, "OTELGPU_SOURCE=auto", "OTELGPU_PAGE="+address), ready, shortly)
	state := func() (s page.State) {
		r, err := http.Get("http://" + address + "/api/state?range=300")
		require.NoError(t, err)
		defer r.Body.Close()
		require.NoError(t, json.NewDecoder(r.Body).Decode(&s))
		return s
	}
	x := &observedDevice{t: t, http: p.http}
	held := map[string]any{string(semconv.GPUThrottleReasonsKey): []any{semconv.GPUThrottleReasonsSwPowerCap}}
	copied := map[string]any{
		string(semconv.GPUCopyHostMemoryKey): semconv.GPUCopyHostMemoryPageable, string(semconv.GPUIOSizeKey): 1 << 20,
		string(semconv.GPUCopyDirectionKey): semconv.GPUCopyDirectionHostToDevice,
	}
	now := time.Now().Add(-time.Minute)
	x.measure(now, semconv.FindingMemoryLimitThreshold-0.01, 3, 0, 0)
	x.measure(now.Add(10*time.Second), semconv.FindingMemoryLimitThreshold-0.01, 3, 100*(1.02-semconv.FindingStarvedThreshold),
		100*(semconv.FindingStarvedThreshold-0.02))
	td := ptrace.NewTraces()
	for i := range 10 {
		x.span(td, "train", "work", "section", now.Add(time.Duration(i)*time.Second), time.Second, nil)
	}
	x.span(td, "train", "epoch", "step", now, 10*time.Second, nil)
	x.span(td, "train", "upload", "copy", now, 90*time.Millisecond, copied)                 // of 13.5 s
	x.span(td, "train", "gemm", "section", now, 490*time.Millisecond, nil)                  //
	x.span(td, "train", "gemm", "section", now.Add(time.Second), 10*time.Millisecond, held) // 2 %
	for i, length := range []time.Duration{90, 95, 100, 105, 110, 190} {
		x.request(td, now.Add(time.Duration(i)*time.Second), length*time.Millisecond)
	}
	x.send(td)
	var s page.State
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		s = state()
		var operations []string
		for _, o := range s.Operations {
			operations = append(operations, o.Name)
		}
		assert.Equal(c, []string{"work", "gemm", "answer", "upload"}, operations, "by GPU time")
		assert.Len(c, s.Requests, 6)
		assert.NotEmpty(c, s.Steps)
	}, time.Minute, 100*time.Millisecond)
	time.Sleep(time.Second) // two flushes
	assert.Empty(t, state().Findings)

	x.measure(now.Add(20*time.Second), semconv.FindingMemoryLimitThreshold+0.01, 4, 100*(1.02-semconv.FindingStarvedThreshold),
		100*(semconv.FindingStarvedThreshold-0.02)+10)
	td = ptrace.NewTraces()
	x.span(td, "train", "upload", "copy", now.Add(time.Second), 90*time.Millisecond, copied)
	x.span(td, "train", "gemm", "section", now.Add(2*time.Second), 40*time.Millisecond, held) // 9 %
	x.request(td, now.Add(7*time.Second), 250*time.Millisecond)
	x.send(td)
	want := []string{
		semconv.GPUFindingKindDeviceError, semconv.GPUFindingKindSlowRequest,
		semconv.GPUFindingKindThrottle, semconv.GPUFindingKindMemoryLimit, semconv.GPUFindingKindStarved,
		semconv.GPUFindingKindPageableCopies,
	}
	kinds := func() (kinds []string) {
		s = state()
		for _, f := range s.Findings {
			kinds = append(kinds, f.Kind)
		}
		return kinds
	}
	if !assert.Eventually(t, func() bool { return len(kinds()) == len(want) }, time.Minute, 100*time.Millisecond) {
		t.Log(kinds())
	}
	assert.Equal(t, want, kinds())
	for _, f := range s.Findings {
		t.Log(f.String())
	}
}
