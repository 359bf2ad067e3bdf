// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chrometraceexporter

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/exportertest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/exporter/chrometraceexporter/internal/metadata"
	"github.com/otelgpu/otelgpu/internal/metrictest"
	"github.com/otelgpu/otelgpu/internal/spanfiles/chrometrace"
	"github.com/otelgpu/otelgpu/internal/spanfiles/chrometrace/chrometracetest"
)

const epoch = 1_700_000_000_123_456_789

func config(t *testing.T, change ...func(*Config)) *Config {
	cfg := createDefaultConfig().(*Config)
	cfg.Path = filepath.Join(t.TempDir(), "out", "trace.json")
	for _, c := range change {
		c(cfg)
	}
	require.NoError(t, cfg.Validate())
	return cfg
}

// service returns a handler span with one section and one kernel on two streams of one GPU.
func service(trace byte) ptrace.Traces {
	td := ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	r := rs.Resource().Attributes()
	r.PutStr("service.name", "llm")
	r.PutStr("gpu.job.rank", "3") // as in OTEL_RESOURCE_ATTRIBUTES
	r.PutInt("process.pid", 4711)
	ss := rs.ScopeSpans().AppendEmpty()
	span := func(name string, id, parent byte, start, end int64) ptrace.Span {
		s := ss.Spans().AppendEmpty()
		s.SetName(name)
		s.SetTraceID([16]byte{trace})
		s.SetSpanID([8]byte{id})
		if parent > 0 {
			s.SetParentSpanID([8]byte{parent})
		}
		s.SetStartTimestamp(pcommon.Timestamp(epoch + start))
		s.SetEndTimestamp(pcommon.Timestamp(epoch + end))
		return s
	}
	x := span("prefill", 2, 1, 400, 900)
	x.Attributes().PutStr("gpu.operation.type", "section")
	x.Attributes().PutInt("gpu.stream.id", 1)
	x.Attributes().PutInt("gpu.device.ordinal", 0)
	x.Attributes().PutStr("hw.id", "GPU-1")
	x.Attributes().PutDouble("gpu.start.delay", 300e-9)
	x.Attributes().PutDouble("gpu.flop.count", 1.5e12)
	x.Attributes().PutEmptySlice("gpu.operation.shapes").AppendEmpty().SetStr("f32[2,3]")
	x.Links().AppendEmpty().SetTraceID([16]byte{0xab})
	h := span("POST /generate", 1, 0, 0, 1000)
	h.SetKind(ptrace.SpanKindServer)
	h.Status().SetCode(ptrace.StatusCodeError)
	h.Status().SetMessage("too long")
	ev := h.Events().AppendEmpty()
	ev.SetName("exception")
	ev.SetTimestamp(epoch + 950)
	ev.Attributes().PutStr("exception.type", "E")
	k := span("gemm", 3, 1, 450, 600)
	k.Attributes().PutStr("gpu.operation.type", "kernel")
	k.Attributes().PutStr("gpu.kernel.name", "void gemm<float>(int)")
	k.Attributes().PutInt("gpu.stream.id", 7)
	k.Attributes().PutInt("gpu.correlation.id", 55)
	l := span("cudaLaunchKernel", 4, 1, 10, 20)
	l.Attributes().PutInt("gpu.correlation.id", 55)
	l.Attributes().PutStr("gpu.operation.category", "runtime")
	l.Attributes().PutInt("thread.id", 4712)
	return td
}

func power(watts float64) pmetric.Metrics {
	md := pmetric.NewMetrics()
	m := md.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics()
	add := func(name, unit string, v float64) pmetric.NumberDataPoint {
		g := m.AppendEmpty()
		g.SetName(name)
		g.SetUnit(unit)
		p := g.SetEmptyGauge().DataPoints().AppendEmpty()
		p.SetTimestamp(epoch + 500)
		p.SetDoubleValue(v)
		p.Attributes().PutStr("hw.id", "GPU-1")
		p.Attributes().PutStr("hw.name", "gpu0")
		return p
	}
	add("hw.power", "W", watts)
	add("gpu.clock.frequency", "Hz", 1.98e9).Attributes().PutStr("gpu.clock.type", "sm")
	add("hw.temperature", "Cel", 60)
	return md
}

func start(t *testing.T, cfg *Config, set exporter.Settings) (exporter.Traces, exporter.Metrics, func() error) {
	f := NewFactory()
	tr, err := f.CreateTraces(t.Context(), set, cfg)
	require.NoError(t, err)
	me, err := f.CreateMetrics(t.Context(), set, cfg)
	require.NoError(t, err)
	require.NoError(t, tr.Start(t.Context(), componenttest.NewNopHost()))
	require.NoError(t, me.Start(t.Context(), componenttest.NewNopHost()))
	return tr, me, func() error {
		if err := tr.Shutdown(context.Background()); err != nil {
			return err
		}
		return me.Shutdown(context.Background())
	}
}

func read(t *testing.T, path string) chrometracetest.File {
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	f, faults := chrometracetest.Read(data)
	require.Empty(t, faults, string(data))
	return f
}

func files(t *testing.T, dir string) []string {
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestTracesAndMetricsOfOneExporterMakeOneFile(t *testing.T) {
	cfg := config(t)
	tel := componenttest.NewTelemetry()
	defer func() { require.NoError(t, tel.Shutdown(context.Background())) }()
	set := exportertest.NewNopSettings(metadata.Type)
	set.TelemetrySettings = tel.NewTelemetrySettings()
	tr, me, stop := start(t, cfg, set)
	require.NoError(t, me.ConsumeMetrics(t.Context(), power(300)))
	require.NoError(t, tr.ConsumeTraces(t.Context(), service(1)))
	dir := filepath.Dir(cfg.Path)
	require.Len(t, files(t, dir), 1)
	assert.Contains(t, files(t, dir)[0], ".partial", "no file has its name before it is complete")
	require.NoError(t, tr.Shutdown(t.Context()))
	assert.NoFileExists(t, cfg.Path, "the metrics exporter still writes")
	require.NoError(t, me.ConsumeMetrics(t.Context(), power(310)))
	require.NoError(t, me.Shutdown(t.Context()))
	require.NoError(t, stop(), "a second shutdown does nothing")
	assert.Equal(t, []string{"trace.json"}, files(t, dir))

	f := read(t, cfg.Path)
	s := f.Slices()
	require.Len(t, s, 4)
	section := s["prefill"]
	assert.Equal(t, "gpu_user_annotation", section.Cat)
	assert.EqualValues(t, epoch+400, f.Base+section.Time)
	assert.EqualValues(t, 500, section.Dur)
	assert.EqualValues(t, 4711, section.PID)
	assert.Equal(t, map[string]any{
		"device": 0., "stream": 1., "gpu.operation.type": "section", "hw.id": "GPU-1", "gpu.start.delay": 300e-9,
		"gpu.flop.count":       1.5e12,
		"gpu.operation.shapes": []any{"f32[2,3]"}, "links": []any{"ab000000000000000000000000000000:0000000000000000"},
		"trace_id": "01000000000000000000000000000000", "span_id": "0200000000000000", "parent_span_id": "0100000000000000",
		"span.kind": "unspecified",
	}, section.Args)
	kernel := s["void gemm<float>(int)"]
	assert.Equal(t, "kernel", kernel.Cat)
	assert.NotContains(t, kernel.Args, "gpu.kernel.name", "it is the name")
	assert.Equal(t, "cuda_runtime", s["cudaLaunchKernel"].Cat)
	assert.EqualValues(t, 4712, s["cudaLaunchKernel"].TID)
	assert.Equal(t, "too long", s["POST /generate"].Args["otel.status_description"])
	assert.Equal(t, "server", s["POST /generate"].Args["span.kind"])

	tracks := f.Tracks()
	assert.Equal(t, "GPU 0 stream 1", tracks[[2]int64{section.PID, section.TID}])
	assert.Equal(t, "GPU 0 stream 7", tracks[[2]int64{kernel.PID, kernel.TID}])
	require.Len(t, f.Of("s"), 2, "one arrow by correlation, one by the section's launch delay")
	assert.Len(t, f.Of("i"), 1)
	var watts []any
	for _, c := range f.Of("C") {
		assert.NotEqual(t, int64(4711), c.PID, "the device has a separate process")
		if c.Name == "hw.power" {
			watts = append(watts, c.Args["W"])
		}
		assert.NotContains(t, c.Name, "temperature", "not among the default counters")
	}
	assert.Equal(t, []any{300., 310.}, watts)
	for _, m := range f.Of("M") {
		if m.Name == "process_name" {
			want := "device gpu0 GPU-1"
			if m.PID == 4711 {
				want = "llm rank 3"
			}
			assert.Equal(t, want, m.Args["name"])
		}
	}
	for name, want := range map[string]float64{"files": 1, "spans": 4, "flows": 2, "counter_points": 4} {
		assert.Equal(t, map[string]float64{"": want}, metrictest.Sum(t, tel, "otelcol_exporter_chrome_trace_"+name), name)
	}
}

func TestTakenNames(t *testing.T) {
	for _, c := range []struct {
		existing chrometrace.Existing
		want     []string
	}{
		{chrometrace.Number, []string{"trace-1.json", "trace-2.json", "trace.json"}},
		{chrometrace.Replace, []string{"trace.json"}},
	} {
		cfg := config(t, func(cfg *Config) { cfg.Existing = c.existing })
		for range 3 {
			tr, _, stop := start(t, cfg, exportertest.NewNopSettings(metadata.Type))
			require.NoError(t, tr.ConsumeTraces(t.Context(), service(1)))
			require.NoError(t, stop())
		}
		assert.Equal(t, c.want, files(t, filepath.Dir(cfg.Path)))
	}
}

func TestPathsThatCannotBeWrittenFailAtStart(t *testing.T) {
	dir := t.TempDir()
	blocked := filepath.Join(dir, "blocked")
	require.NoError(t, os.WriteFile(blocked, nil, 0o644))
	for path, want := range map[string]string{
		filepath.Join(blocked, "trace.json"): "not a directory",
		dir:                                  "it is a folder",
	} {
		cfg := config(t, func(cfg *Config) { cfg.Path = path })
		tr, err := NewFactory().CreateTraces(t.Context(), exportertest.NewNopSettings(metadata.Type), cfg)
		require.NoError(t, err)
		err = tr.Start(t.Context(), componenttest.NewNopHost())
		require.ErrorContains(t, err, want)
		assert.ErrorContains(t, err, path[:len(dir)])
		require.NoError(t, tr.Shutdown(t.Context()))
	}
}

func TestCompressedFilesUnpackToValidTraces(t *testing.T) {
	for _, c := range []struct {
		how  chrometrace.Compression
		ext  string
		open func(io.Reader) (io.Reader, error)
	}{
		{chrometrace.Gzip, ".gz", func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) }},
		{chrometrace.Zstd, ".zst", func(r io.Reader) (io.Reader, error) { return zstd.NewReader(r) }},
	} {
		cfg := config(t, func(cfg *Config) { cfg.Compression = c.how })
		tr, _, stop := start(t, cfg, exportertest.NewNopSettings(metadata.Type))
		require.NoError(t, tr.ConsumeTraces(t.Context(), service(1)))
		require.NoError(t, tr.ConsumeTraces(t.Context(), service(2)))
		require.NoError(t, stop())
		f, err := os.Open(cfg.Path + c.ext)
		require.NoError(t, err)
		r, err := c.open(f)
		require.NoError(t, err)
		data, err := io.ReadAll(r)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		trace, faults := chrometracetest.Read(data)
		require.Empty(t, faults)
		assert.Len(t, trace.Of("X"), 8)
	}
}

func TestRotatedFilesAreCompleteAndOldOnesAreDeleted(t *testing.T) {
	cfg := config(t, func(cfg *Config) {
		cfg.Rotation = configoptional.Some(Rotation{MaxAge: 10 * time.Millisecond, MaxFiles: 2})
	})
	tr, _, stop := start(t, cfg, exportertest.NewNopSettings(metadata.Type))
	dir := filepath.Dir(cfg.Path)
	complete := func() (n int) {
		for _, f := range files(t, dir) {
			if filepath.Ext(f) == ".json" {
				n++
			}
		}
		return n
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "trace-mine.json"), nil, 0o644))
	for i := range 4 {
		require.NoError(t, tr.ConsumeTraces(t.Context(), service(byte(i))))
		// An idle exporter completes its file, too.
		want := min(i+1, 2) + 1
		require.Eventually(t, func() bool { return complete() == want && len(files(t, dir)) == want }, time.Minute,
			time.Millisecond)
	}
	require.NoError(t, stop())
	assert.Len(t, files(t, dir), 3, "two traces and what is not ours")
	for _, f := range files(t, dir) {
		if f != "trace-mine.json" {
			assert.Len(t, read(t, filepath.Join(dir, f)).Of("X"), 4)
		}
	}
}

func TestExportersOfDifferentIDsDoNotShareFiles(t *testing.T) {
	f := NewFactory()
	a, b := config(t), config(t)
	for _, c := range []struct {
		name string
		cfg  *Config
	}{{"a", a}, {"b", b}} {
		set := exportertest.NewNopSettings(metadata.Type)
		set.ID = component.NewIDWithName(metadata.Type, c.name)
		tr, err := f.CreateTraces(t.Context(), set, c.cfg)
		require.NoError(t, err)
		require.NoError(t, tr.Start(t.Context(), componenttest.NewNopHost()))
		require.NoError(t, tr.ConsumeTraces(t.Context(), service(1)))
		require.NoError(t, tr.Shutdown(t.Context()))
	}
	read(t, a.Path)
	read(t, b.Path)
}

func TestNothingIsLeftBehindWithoutSpans(t *testing.T) {
	cfg := config(t)
	_, _, stop := start(t, cfg, exportertest.NewNopSettings(metadata.Type))
	require.NoError(t, stop())
	assert.Empty(t, files(t, filepath.Dir(cfg.Path)))
}

// Viewers show mangled names as they are, and speedscope's demangler fails on many of them.
func TestMangledKernelNamesAreArguments(t *testing.T) {
	cfg := config(t)
	tr, _, stop := start(t, cfg, exportertest.NewNopSettings(metadata.Type))
	td := ptrace.NewTraces()
	ss := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty()
	for short, full := range map[string]string{
		"act_and_mul": "_ZN3sgl11act_and_mulEv",
		"gemm":        "void ns::gemm<float>(float*)",
	} {
		s := ss.Spans().AppendEmpty()
		s.SetName(short)
		s.SetStartTimestamp(epoch)
		s.SetEndTimestamp(epoch + 10)
		s.Attributes().PutStr("gpu.operation.type", "kernel")
		s.Attributes().PutStr("gpu.kernel.name", full)
	}
	require.NoError(t, tr.ConsumeTraces(t.Context(), td))
	require.NoError(t, stop())
	slices := read(t, cfg.Path).Slices()
	assert.Equal(t, "_ZN3sgl11act_and_mulEv", slices["act_and_mul"].Args["gpu.kernel.name"])
	assert.NotContains(t, slices["void ns::gemm<float>(float*)"].Args, "gpu.kernel.name")
	assert.Len(t, slices, 2)
}
