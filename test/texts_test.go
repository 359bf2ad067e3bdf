// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/connector/connectortest"
	"go.opentelemetry.io/collector/connector/xconnector"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/exporter/exportertest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"go.opentelemetry.io/collector/processor/processortest"
	metricsv1 "go.opentelemetry.io/proto/otlp/metrics/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/otelgpu/otelgpu/config"
	"github.com/otelgpu/otelgpu/connector/gpumetricsconnector"
	"github.com/otelgpu/otelgpu/connector/gpuprofilesconnector"
	"github.com/otelgpu/otelgpu/connector/gpurequestsconnector"
	"github.com/otelgpu/otelgpu/exporter/chrometraceexporter"
	"github.com/otelgpu/otelgpu/exporter/stepcsvexporter"
	"github.com/otelgpu/otelgpu/internal/page"
	"github.com/otelgpu/otelgpu/processor/gpuderiveprocessor"
	"github.com/otelgpu/otelgpu/semconv"
)

// textPlaces returns functions that put a text at every place of a span, its scope and its resource
// where the registry or OTLP has one.
func textPlaces() map[string]func(rs ptrace.ResourceSpans, text string) {
	spans := func(change func(s ptrace.Span, text string)) func(ptrace.ResourceSpans, string) {
		return func(rs ptrace.ResourceSpans, text string) {
			for _, s := range rs.ScopeSpans().At(0).Spans().All() {
				change(s, text)
			}
		}
	}
	places := map[string]func(ptrace.ResourceSpans, string){
		"span name":        spans(func(s ptrace.Span, text string) { s.SetName(text) }),
		"attribute's name": spans(func(s ptrace.Span, text string) { s.Attributes().PutInt(text, 1) }),
		"trace state":      spans(func(s ptrace.Span, text string) { s.TraceState().FromRaw("ot=" + text) }),
		"status":           spans(func(s ptrace.Span, text string) { s.Status().SetMessage(text) }),
		"event":            spans(func(s ptrace.Span, text string) { s.Events().AppendEmpty().SetName(text) }),
		"link": spans(func(s ptrace.Span, text string) {
			for _, l := range s.Links().All() {
				l.TraceState().FromRaw("ot=" + text)
			}
		}),
		"scope":  func(rs ptrace.ResourceSpans, text string) { rs.ScopeSpans().At(0).Scope().SetName(text) },
		"schema": func(rs ptrace.ResourceSpans, text string) { rs.SetSchemaUrl(text) },
		"resource attribute's name": func(rs ptrace.ResourceSpans, text string) {
			rs.Resource().Attributes().PutStr(text, "v")
		},
		"nested": func(rs ptrace.ResourceSpans, text string) {
			rs.Resource().Attributes().PutEmptyMap("labels").PutEmptySlice("l").AppendEmpty().SetStr(text)
		},
	}
	names := []string{"service.namespace", "service.version", "service.instance.id", "deployment.environment.name"}
	for _, a := range semconv.Attributes() {
		if a.Type == "string" || a.Type == "string[]" {
			names = append(names, a.Name)
		}
		if prefix, _, ok := strings.Cut(a.Name, "<"); ok {
			places[a.Name] = spans(func(s ptrace.Span, text string) { s.Attributes().PutDouble(prefix+text, 0.001) })
		}
	}
	for _, name := range names {
		put := func(m pcommon.Map, text string) {
			if a, ok := semconv.LookupAttribute(name); ok && a.Type == "string[]" {
				m.PutEmptySlice(name).AppendEmpty().SetStr(text)
				return
			}
			m.PutStr(name, text)
		}
		places[name+" of the span"] = spans(func(s ptrace.Span, text string) { put(s.Attributes(), text) })
		places[name+" of the scope"] = func(rs ptrace.ResourceSpans, text string) {
			put(rs.ScopeSpans().At(0).Scope().Attributes(), text)
		}
		places[name+" of the resource"] = func(rs ptrace.ResourceSpans, text string) { put(rs.Resource().Attributes(), text) }
	}
	return places
}

// everyKind returns a request with a span of every kind for each of two ranks, of which the second
// is late.
func everyKind(n int, service string) ptrace.Traces {
	td := ptrace.NewTraces()
	begin := time.Now().Add(-time.Second)
	for rank := range 2 {
		rs := td.ResourceSpans().AppendEmpty()
		of := rs.Resource().Attributes()
		of.PutStr("service.name", service)
		of.PutStr("gpu.job.id", "job")
		of.PutInt("gpu.job.rank", int64(rank))
		of.PutInt("gpu.job.world_size", 2)
		spans := rs.ScopeSpans().AppendEmpty().Spans()
		add := func(id, parent byte, kind string, length time.Duration) ptrace.Span {
			s := spans.AppendEmpty()
			s.SetTraceID(pcommon.TraceID{1, byte(rank), byte(n >> 8), byte(n)})
			s.SetSpanID(pcommon.SpanID{id, byte(rank), byte(n >> 8), byte(n)})
			if parent > 0 {
				s.SetParentSpanID(pcommon.SpanID{parent, byte(rank), byte(n >> 8), byte(n)})
			}
			s.SetName("work " + kind)
			s.SetStartTimestamp(pcommon.NewTimestampFromTime(begin))
			s.SetEndTimestamp(pcommon.NewTimestampFromTime(begin.Add(length)))
			if kind != "" {
				s.Attributes().PutStr("gpu.operation.type", kind)
				s.Attributes().PutStr("hw.id", "GPU-a")
				s.Attributes().PutDouble("gpu.energy", 1)
				s.Attributes().PutInt("gpu.operation.items", 8)
			}
			return s
		}
		root := add(1, 0, "", 100*time.Millisecond)
		root.SetKind(ptrace.SpanKindServer)
		step := add(2, 1, "step", time.Duration(50+20*rank)*time.Millisecond)
		step.Attributes().PutInt("gpu.step.index", int64(n))
		step.Attributes().PutInt("gpu.step.items", 8)
		step.Attributes().PutDouble("gpu.step.phase.duration.forward", 0.02*float64(1+rank))
		section := add(3, 2, "section", time.Duration(20+20*rank)*time.Millisecond)
		section.Attributes().PutDouble("gpu.duration", 0.02*float64(1+rank))
		l := section.Links().AppendEmpty()
		l.SetTraceID(root.TraceID())
		l.SetSpanID(root.SpanID())
		collective := add(4, 2, "collective", 5*time.Millisecond)
		collective.Attributes().PutStr("gpu.collective.group.id", "group")
		collective.Attributes().PutInt("gpu.collective.sequence", int64(n))
		for i, kind := range []string{"kernel", "copy", "memset", "graph", "share", "request", "host"} {
			add(byte(5+i), 3, kind, 3*time.Millisecond).Attributes().PutStr("gpu.timing.source", "cupti")
		}
	}
	return td
}

// components are the components that derive data from spans.
type components struct {
	t       *testing.T
	in      []consumer.Traces
	stop    []component.Component
	metrics consumertest.MetricsSink
	derived consumertest.TracesSink // by connectors
	passed  consumertest.TracesSink // by processors
	profile consumertest.ProfilesSink
	page    *page.Model
	folder  string
}

func newComponents(t *testing.T) *components {
	ctx, x := context.Background(), &components{t: t, folder: t.TempDir(), page: page.New()}
	start := func(c component.Component, err error) {
		require.NoError(t, err)
		require.NoError(t, c.Start(ctx, componenttest.NewNopHost()))
		x.in, x.stop = append(x.in, c.(consumer.Traces)), append(x.stop, c)
	}
	metrics := gpumetricsconnector.NewFactory()
	config := metrics.CreateDefaultConfig().(*gpumetricsconnector.Config)
	config.FlushInterval = time.Hour
	set := connectortest.NewNopSettings(metrics.Type())
	found, err := metrics.CreateTracesToTraces(ctx, set, config, &x.derived) // one instance with the next
	require.NoError(t, err)
	x.stop = append(x.stop, found)
	start(metrics.CreateTracesToMetrics(ctx, set, config, &x.metrics))

	requests := gpurequestsconnector.NewFactory()
	of := requests.CreateDefaultConfig().(*gpurequestsconnector.Config)
	of.FlushInterval = time.Hour
	set = connectortest.NewNopSettings(requests.Type())
	shares, err := requests.CreateTracesToTraces(ctx, set, of, &x.derived)
	require.NoError(t, err)
	x.stop = append(x.stop, shares)
	start(requests.CreateTracesToMetrics(ctx, set, of, &x.metrics))

	profiles := gpuprofilesconnector.NewFactory()
	start(profiles.(xconnector.Factory).CreateTracesToProfiles(ctx, connectortest.NewNopSettings(profiles.Type()),
		profiles.CreateDefaultConfig(), &x.profile))

	derive := gpuderiveprocessor.NewFactory()
	start(derive.CreateTraces(ctx, processortest.NewNopSettings(derive.Type()), derive.CreateDefaultConfig(), &x.passed))

	chrome := chrometraceexporter.NewFactory()
	files := chrome.CreateDefaultConfig().(*chrometraceexporter.Config)
	files.Path = filepath.Join(x.folder, "trace.json")

	start(chrome.CreateTraces(ctx, exportertest.NewNopSettings(chrome.Type()), files))
	csv := stepcsvexporter.NewFactory()
	rows := csv.CreateDefaultConfig().(*stepcsvexporter.Config)
	rows.Path = filepath.Join(x.folder, "steps.csv")
	start(csv.CreateTraces(ctx, exportertest.NewNopSettings(csv.Type()), rows))
	return x
}

// send gives each component data of its own, as from the network: no two texts share memory.
func (x *components) send(td ptrace.Traces) {
	body, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(td)
	require.NoError(x.t, err)
	for _, c := range x.in {
		own, err := (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces(body)
		require.NoError(x.t, err)
		require.NoError(x.t, c.ConsumeTraces(context.Background(), own))
	}
	own, err := (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces(body)
	require.NoError(x.t, err)
	x.page.Traces(own)
	for _, td := range x.passed.AllTraces() {
		strict(x.t, td)
	}
	x.passed.Reset()
}

// strict reads spans as strict readers of protocol buffers do.
func strict(t *testing.T, td ptrace.Traces) {
	body, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(td)
	require.NoError(t, err)
	assert.NoError(t, proto.Unmarshal(body, &tracev1.TracesData{}))
}

func (x *components) shutdown() {
	for _, c := range x.stop {
		require.NoError(x.t, c.Shutdown(context.Background()))
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// longest returns the longest text in attributes.
func longest(m pcommon.Map) (n int) {
	for k, v := range m.All() {
		n = max(n, len(k), len(v.AsString()))
	}
	return n
}

// longestOfSpan is longest without hw.id, which may list 64 devices.
func longestOfSpan(m pcommon.Map) (n int) {
	for k, v := range m.All() {
		if limit := 64*64 + 3; k != "hw.id" || len(v.AsString()) > limit {
			n = max(n, len(k), len(v.AsString()))
		}
	}
	return n
}

// What a span states is kept and emitted in a bounded size, and accepted by strict readers of
// protocol buffers, wherever its sender puts a text. Each text would otherwise be in memory and in
// all output for as long as the Collector runs, and an invalid one would have whole requests
// rejected, with the data of others.
func TestEveryTextIsBoundedAndValid(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	places := textPlaces()
	for name, text := range map[string]func(n int) string{
		"long":    func(n int) string { return fmt.Sprintf("%03d%s", n, strings.Repeat("é", 1<<15)) },
		"invalid": func(n int) string { return fmt.Sprintf("%03d\xff\xc0\xaf", n) },
	} {
		t.Run(name, func(t *testing.T) {
			x := newComponents(t)
			before := heap()
			n := 0
			for _, place := range slices.Sorted(maps.Keys(places)) {
				n++
				td := everyKind(n, fmt.Sprint("service ", n%10))
				for _, rs := range td.ResourceSpans().All() {
					places[place](rs, text(n))
				}
				x.send(td)
			}
			assert.Less(t, heap()-before, int64(48<<20), "after %d places with %d spans", n, everyKind(0, "").SpanCount())
			x.check(10 * n)
			runtime.KeepAlive(x)
		})
	}
}

// check shuts the components down and checks what they wrote.
func (x *components) check(series int) {
	t := x.t
	state, err := json.Marshal(x.page.State(page.Query{}))
	require.NoError(t, err)
	assert.True(t, utf8.Valid(state))
	assert.Less(t, len(state), 16<<20)
	x.shutdown()

	size := 0
	require.NotEmpty(t, x.metrics.AllMetrics())
	for _, md := range x.metrics.AllMetrics() {
		body, err := (&pmetric.ProtoMarshaler{}).MarshalMetrics(md)
		require.NoError(t, err)
		assert.NoError(t, proto.Unmarshal(body, &metricsv1.MetricsData{}), "metrics")
		size += len(body)
		for _, rm := range md.ResourceMetrics().All() {
			assert.LessOrEqual(t, longest(rm.Resource().Attributes()), 1<<10+3)
		}
	}
	assert.Less(t, size, series*8<<10, "metrics")
	require.NotEmpty(t, x.derived.AllTraces())
	for _, td := range x.derived.AllTraces() {
		strict(t, td)
		for _, rs := range td.ResourceSpans().All() {
			assert.LessOrEqual(t, longest(rs.Resource().Attributes()), 1<<10+3)
			for _, ss := range rs.ScopeSpans().All() {
				for _, s := range ss.Spans().All() {
					assert.LessOrEqual(t, max(longestOfSpan(s.Attributes()), len(s.Name()), len(s.TraceState().AsRaw())), 1<<10+3)
				}
			}
		}
	}
	require.NotEmpty(t, x.profile.AllProfiles())
	for _, pd := range x.profile.AllProfiles() {
		for _, text := range pd.Dictionary().StringTable().All() {
			assert.True(t, utf8.ValidString(text))
			assert.LessOrEqual(t, len(text), 1<<10+20)
		}
		for _, rp := range pd.ResourceProfiles().All() {
			assert.LessOrEqual(t, longest(rp.Resource().Attributes()), 1<<10+3)
			for _, v := range rp.Resource().Attributes().All() {
				assert.True(t, utf8.ValidString(v.AsString()))
			}
		}
	}
	trace, err := os.ReadFile(filepath.Join(x.folder, "trace.json"))
	require.NoError(t, err)
	assert.True(t, json.Valid(trace) && utf8.Valid(trace))
	steps, err := os.ReadFile(filepath.Join(x.folder, "steps.csv"))
	require.NoError(t, err)
	assert.True(t, utf8.Valid(steps))
	assert.Less(t, len(steps), series<<10)
}

// A sender with megabytes in every text is bounded: others are served during and after its attack,
// and its names are neither kept nor written whole.
func TestAHostileSenderIsBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("the Collector is not built and run with -short")
	}
	t.Parallel()
	p := newPorts(t)
	ready, err := config.YAML("all-in-one")
	require.NoError(t, err)
	collector := startCollector(t, buildCollector(t), p.env, ready, device, faster)
	send := func(td ptrace.Traces) int {
		body, err := ptraceotlp.NewExportRequestFromTraces(td).MarshalProto()
		require.NoError(t, err)
		return post(t, p.http, "traces", "x-protobuf", body, false)
	}
	accepted, served := 0, 0
	for n := range 700 {
		name := fmt.Sprint(n, strings.Repeat("x", 1_000_000))
		td := ptrace.NewTraces()
		rs := td.ResourceSpans().AppendEmpty()
		rs.Resource().Attributes().PutStr("service.name", "hostile")
		rs.Resource().Attributes().PutStr("gpu.job.id", "job")
		rs.Resource().Attributes().PutInt("gpu.job.rank", int64(n%7))
		s := rs.ScopeSpans().AppendEmpty().Spans().AppendEmpty()
		s.SetTraceID(pcommon.TraceID{8, byte(n >> 8), byte(n)})
		s.SetSpanID(pcommon.SpanID{8, byte(n >> 8), byte(n)})
		s.SetName("step")
		s.SetStartTimestamp(pcommon.NewTimestampFromTime(time.Now().Add(-time.Second)))
		s.SetEndTimestamp(pcommon.NewTimestampFromTime(time.Now()))
		at := s.Attributes()
		at.PutStr("gpu.operation.type", "step")
		at.PutInt("gpu.step.index", int64(n))
		at.PutInt("gpu.step.items", 8)
		switch n % 7 {
		case 0:
			at.PutStr("gpu.step.item.type", name)
		case 1:
			at.PutDouble("gpu.step.phase.duration."+name, 0.1)
		case 2:
			s.TraceState().FromRaw("ot=" + name)
		case 3:
			rs.Resource().Attributes().PutStr("process.command_line", name)
		case 4:
			at.PutStr("gpu.operation.name", name)
		case 5:
			rs.Resource().Attributes().PutStr("service.instance.id", name)
		case 6:
			at.PutStr("gpu.operation.type", "collective")
			at.PutStr("gpu.collective.group.id", name)
			at.PutInt("gpu.collective.sequence", int64(n))
			s.SetParentSpanID(pcommon.SpanID{8, byte(n)})
		}
		if send(td) == http.StatusOK {
			accepted++
		}
		if n%10 == 0 && send(everyKind(n/10, "victim")) == http.StatusOK {
			served++
		}
	}
	t.Logf("accepted %d of 700 hostile requests and %d of 70 of others", accepted, served)
	require.Eventually(t, func() bool { return send(everyKind(100, "victim")) == http.StatusOK }, time.Minute, time.Second,
		"others are accepted again")
	require.Eventually(t, func() bool {
		return scrape(t, p.metrics, "gpu_step_duration_seconds_count", `job="victim"`) >= float64(2*served)
	}, time.Minute, 500*time.Millisecond, "others are counted")
	r, err := http.Get("http://" + p.metrics + "/metrics")
	require.NoError(t, err)
	page, err := io.ReadAll(r.Body)
	require.NoError(t, errors.Join(err, r.Body.Close()))
	kept := scrape(t, p.telemetry, "otelcol_process_runtime_heap_alloc_bytes", "")
	resident := peakResident(t, collector.PID())
	t.Logf("/metrics has %d bytes; heap %.0f MiB, at most %d MiB resident", len(page), kept/(1<<20), resident>>20)
	assert.Less(t, len(page), 8<<20)
	assert.Less(t, resident, int64(1024<<20), "the limit of the memory limiter")
	assert.Eventually(t, func() bool {
		return scrape(t, p.telemetry, "otelcol_process_runtime_heap_alloc_bytes", "") < 256<<20
	}, time.Minute, time.Second, "memory recovers")
}
