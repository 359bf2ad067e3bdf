// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chrometraceexporter

import (
	"context"
	"fmt"
	"maps"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/exporter/exportertest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/exporter/chrometraceexporter/internal/metadata"
	"github.com/otelgpu/otelgpu/gpuspan/chrometrace"
	"github.com/otelgpu/otelgpu/receiver/kinetoreceiver"
)

// dump returns a value with its type, independent of the order of keys.
func dump(v pcommon.Value) string {
	switch v.Type() {
	case pcommon.ValueTypeMap:
		return dumpMap(v.Map())
	case pcommon.ValueTypeSlice:
		var b strings.Builder
		for _, e := range v.Slice().All() {
			b.WriteString(dump(e) + ",")
		}
		return "[" + b.String() + "]"
	case pcommon.ValueTypeDouble:
		return fmt.Sprintf("double %x", math.Float64bits(v.Double()))
	}
	return v.Type().String() + " " + v.AsString()
}

func dumpMap(m pcommon.Map) string {
	var out []string
	for k, v := range m.All() {
		out = append(out, fmt.Sprintf("%q=%s", k, dump(v)))
	}
	slices.Sort(out)
	return "{" + strings.Join(out, " ") + "}"
}

// dumpSpans returns a line for each span with everything that a file keeps.
func dumpSpans(tds ...ptrace.Traces) []string {
	var out []string
	for _, td := range tds {
		for _, rs := range td.ResourceSpans().All() {
			for _, ss := range rs.ScopeSpans().All() {
				for _, s := range ss.Spans().All() {
					line := fmt.Sprintf("%s/%s<%s %q %v %d..%d %v %q %s", s.TraceID(), s.SpanID(), s.ParentSpanID(), s.Name(),
						s.Kind(),
						s.StartTimestamp(), s.EndTimestamp(), s.Status().Code(), s.Status().Message(), dumpMap(s.Attributes()))
					for _, e := range s.Events().All() {
						line += fmt.Sprintf(" event %q %d %s", e.Name(), e.Timestamp(), dumpMap(e.Attributes()))
					}
					for _, l := range s.Links().All() {
						line += fmt.Sprintf(" link %s/%s", l.TraceID(), l.SpanID())
					}
					line += fmt.Sprintf(" resource %s %q scope %q %q %s %q", dumpMap(rs.Resource().Attributes()), rs.SchemaUrl(),
						ss.Scope().Name(), ss.Scope().Version(), dumpMap(ss.Scope().Attributes()), ss.SchemaUrl())
					out = append(out, line)
				}
			}
		}
	}
	slices.Sort(out)
	return out
}

// exported writes spans to a file and returns its path.
func exported(t *testing.T, compression string, tds ...ptrace.Traces) string {
	cfg := config(t)
	cfg.Compression = chrometrace.Compression(compression)
	tr, _, stop := start(t, cfg, exportertest.NewNopSettings(metadata.Type))
	for _, td := range tds {
		twin := ptrace.NewTraces()
		td.CopyTo(twin)
		require.NoError(t, tr.ConsumeTraces(t.Context(), twin))
	}
	require.NoError(t, stop())
	return cfg.Path + cfg.Compression.Extension()
}

// restored reads the spans of a file.
func restored(t *testing.T, path string, o kinetoreceiver.Options) ([]ptrace.Traces, kinetoreceiver.Stats) {
	var out []ptrace.Traces
	st, err := kinetoreceiver.ReadFile(t.Context(), path, o, func(_ context.Context, td ptrace.Traces) error {
		out = append(out, td)
		return nil
	})
	require.NoError(t, err)
	return out, st
}

const restoreBase = int64(1_700_000_000_123_456_789)

type maker struct {
	td ptrace.Traces
	n  byte
}

func (m *maker) scope(rank int64, attributes map[string]any, name, version string) ptrace.SpanSlice {
	rs := m.td.ResourceSpans().AppendEmpty()
	_ = rs.Resource().Attributes().FromRaw(attributes)
	rs.Resource().Attributes().PutStr("service.name", "llm")
	rs.Resource().Attributes().PutInt("gpu.job.rank", rank)
	rs.SetSchemaUrl("https://example.com/1")
	ss := rs.ScopeSpans().AppendEmpty()
	ss.Scope().SetName(name)
	ss.Scope().SetVersion(version)
	ss.Scope().Attributes().PutDouble("x", 2)
	ss.SetSchemaUrl("https://example.com/2")
	return ss.Spans()
}

func (m *maker) span(to ptrace.SpanSlice, parent pcommon.SpanID, name string, from, length int64,
	attributes map[string]any,
) ptrace.Span {
	m.n++
	s := to.AppendEmpty()
	s.SetTraceID(pcommon.TraceID{15: 1})
	s.SetSpanID(pcommon.SpanID{7: m.n})
	s.SetParentSpanID(parent)
	s.SetName(name)
	s.SetKind(ptrace.SpanKindInternal)
	s.SetStartTimestamp(pcommon.Timestamp(restoreBase + from))
	s.SetEndTimestamp(pcommon.Timestamp(restoreBase + from + length))
	_ = s.Attributes().FromRaw(attributes)
	return s
}

// spansOfEveryKind returns steps, phases, sections, copies, kernels, collectives and host spans of two ranks, with
// every type of attribute, and attributes named like the format's own arguments.
func spansOfEveryKind() ptrace.Traces {
	m := &maker{td: ptrace.NewTraces()}
	for rank := range int64(2) {
		to := m.scope(rank, map[string]any{
			"host.name": "n1", "process.pid": int64(7), "odd": math.Inf(1),
			"list": []any{"a", int64(1), 1.0},
		}, "gpuspan", "1.2")
		device := func(kind string, more map[string]any) map[string]any {
			a := map[string]any{
				"gpu.operation.type": kind, "gpu.device.ordinal": rank, "gpu.stream.id": int64(7),
				"gpu.duration": 1.0,
			}
			maps.Copy(a, more)
			return a
		}
		var step ptrace.Span
		for i := range int64(3) {
			step = m.span(to, pcommon.SpanID{}, "train", i*1000, 1900, map[string]any{
				"gpu.operation.type": "step", "gpu.step.index": i, "gpu.device.ordinal": rank, "gpu.start.delay": 500e-9,
				"gpu.step.duration": 1000e-9, "gpu.step.host.duration": 1050e-9, "gpu.step.items": int64(32),
			})
		}
		m.span(to, pcommon.SpanID{}, "ProfilerStep#3", 4000, 100, map[string]any{
			"gpu.operation.type": "step",
			"gpu.step.index":     int64(3), "thread.id": int64(4),
		})
		phase := m.span(to, step.SpanID(), "forward", 2500, 400, device("section",
			map[string]any{"gpu.start.delay": 100e-9, "gpu.end.delay": -20e-9}))
		m.span(to, phase.SpanID(), "attention", 2550, 100, device("section",
			map[string]any{"gpu.start.delay": -30e-9, "gpu.energy": 0.25}))
		m.span(to, phase.SpanID(), "no device", 9550, 100, map[string]any{"gpu.operation.type": "section"})
		m.span(to, phase.SpanID(), "odd device", 19550, 100, map[string]any{
			"gpu.operation.type": "section",
			"gpu.device.ordinal": 3.0, "gpu.stream.id": "main", "thread.id": int64(5),
		})
		m.span(to, phase.SpanID(), "Memcpy HtoD", 2700, 10, device("copy",
			map[string]any{"gpu.io.size": int64(4096), "gpu.correlation.id": int64(11)}))
		m.span(to, phase.SpanID(), "Memset", 2710, 0, device("memset",
			map[string]any{"gpu.io.size": int64(1), "gpu.correlation.id": int64(0)}))
		m.span(to, phase.SpanID(), "gemm", 2720, 33, device("kernel", map[string]any{
			"gpu.kernel.name": "void gemm<float>(int)", "gpu.kernel.grid": []any{int64(1), int64(2), int64(3)},
			"gpu.kernel.occupancy.estimate": 0.29, "gpu.kernel.blocks_per_sm": 1.0,
		}))
		m.span(to, phase.SpanID(), "gemm", 2760, 3, device("kernel",
			map[string]any{"gpu.kernel.occupancy.estimate": 0.123456789012345, "gpu.kernel.name": "_Z4gemm"}))
		m.span(to, phase.SpanID(), "all_reduce", 2770, 3, device("collective",
			map[string]any{
				"gpu.collective.name": "all_reduce", "gpu.io.size": int64(400),
				"gpu.collective.element_type": "Float",
			}))
		m.span(to, phase.SpanID(), "cudaLaunchKernel", 2600, 5, map[string]any{
			"gpu.correlation.id": int64(11),
			"thread.id":          int64(41), "thread.name": "main", "gpu.device.ordinal": rank, "gpu.stream.id": int64(7),
		})
		m.span(to, phase.SpanID(), "aten::mm", 2590, 25, map[string]any{"gpu.flop.count": 1e9, "thread.id": int64(41)})
		host := m.span(to, pcommon.SpanID{}, "POST \"/générer\"\n\u2028", 1, 5000, map[string]any{
			"string": "3.0", "number": "12", "nan": "NaN", "empty": "", "bool": true, "int": int64(math.MaxInt64),
			"least": int64(math.MinInt64), "double": 3.0,
			"zero": math.Copysign(0, -1), "large": 1e20, "larger": 1e300, "small": 5e-324, "not a number": math.NaN(),
			"inf": math.Inf(-1), "none": nil,
			"bytes!": []byte{0, 255}, "map": map[string]any{"a": []any{1.5, math.NaN()}, "double": "x"},
			"list": []any{"a", int64(1), 1.0, true, nil}, "no elements": []any{},
			"device": "cuda:0", "stream": int64(3), "bytes": 1.0, "trace_id": "x", "span_id": int64(1), "otel": "again",
			"loop": "l", "links": "l", "span.kind": "k",
			"grid": "g", "In msg nelems": int64(1), "otel.status_code": "OK", "": "no key", "thread.id": "t-1",
		})
		host.SetKind(ptrace.SpanKindServer)
		host.Status().SetCode(ptrace.StatusCodeError)
		host.Status().SetMessage("out of memory")
		e := host.Events().AppendEmpty()
		e.SetName("finding")
		e.SetTimestamp(pcommon.Timestamp(restoreBase + 77))
		_ = e.Attributes().FromRaw(map[string]any{"x": math.NaN(), "y": 1.0, "span_id": "mine", "otel": int64(1)})
		l := host.Links().AppendEmpty()
		l.SetTraceID(pcommon.TraceID{1})
		l.SetSpanID(pcommon.SpanID{2})
		m.span(to, host.SpanID(), "ok", 40, 5, nil).Status().SetCode(ptrace.StatusCodeOk)
		m.span(to, host.SpanID(), "unspecified", 50, 5, nil).SetKind(ptrace.SpanKindUnspecified)
		m.span(to, host.SpanID(), "backwards", 60, -5, nil)
	}
	m.span(m.scope(1, nil, "another", ""), pcommon.SpanID{}, "of another scope", 100_000, 5, nil)
	return m.td
}

func TestSpansAreRestoredUnchanged(t *testing.T) {
	want := spansOfEveryKind()
	for _, compression := range []string{"", "gzip", "zstd"} {
		for name, o := range map[string]kinetoreceiver.Options{
			"default": {}, "caps": {Detail: kinetoreceiver.DetailSteps, MaxSpans: 1, MaxBytes: 1},
			"spilled": {BatchSpans: 3, MemoryMiB: 1e-6, TempDir: t.TempDir()},
		} {
			t.Run(compression+name, func(t *testing.T) {
				path := exported(t, compression, want)
				got, st := restored(t, path, o)
				assert.Equal(t, dumpSpans(want), dumpSpans(got...))
				assert.Empty(t, st.Skipped)
				assert.Empty(t, st.Faults)
				assert.EqualValues(t, want.SpanCount(), st.Restored)
				assert.EqualValues(t, want.SpanCount(), st.Spans)
				if compression != "" {
					return
				}
				a, err := os.ReadFile(path)
				require.NoError(t, err)
				b, err := os.ReadFile(exported(t, "", got...))
				require.NoError(t, err)
				if name != "spilled" {
					assert.Equal(t, string(a), string(b), "the file, byte by byte")
				}
				read(t, path)
			})
		}
	}
}

// With batches of one span, a file has different rows and numbers, but the same spans.
func TestSpansInSmallBatchesReturn(t *testing.T) {
	want := spansOfEveryKind()
	all, _ := restored(t, exported(t, "", want), kinetoreceiver.Options{BatchSpans: 1})
	slices.Reverse(all)
	got, st := restored(t, exported(t, "", all...), kinetoreceiver.Options{})
	assert.Equal(t, dumpSpans(want), dumpSpans(got...))
	assert.Empty(t, st.Skipped)
}

// With batches of several processes in any time order, the second file has the same order, and so the same numbers of
// processes, tracks and flows, as the first.
func TestAFileOfSeveralBatchesIsTheSameAgain(t *testing.T) {
	var batches []ptrace.Traces
	for i := range int64(5) {
		m := &maker{td: ptrace.NewTraces(), n: byte(i * 50)}
		for rank := range int64(2) {
			to := m.scope((rank+i)%2, nil, "s", "")
			for k := range int64(25) {
				m.span(to, pcommon.SpanID{}, "work", k*10+rank+(4-i)*7, 8,
					map[string]any{"gpu.operation.type": "section", "gpu.device.ordinal": rank, "gpu.stream.id": k % 3})
			}
		}
		batches = append(batches, m.td)
	}
	path := exported(t, "", batches...)
	got, _ := restored(t, path, kinetoreceiver.Options{})
	a, err := os.ReadFile(path)
	require.NoError(t, err)
	b, err := os.ReadFile(exported(t, "", got...))
	require.NoError(t, err)
	assert.Equal(t, string(a), string(b))
	assert.Equal(t, dumpSpans(batches...), dumpSpans(got...))
}

func TestResourceOfTheConfigurationOverridesTheFile(t *testing.T) {
	got, _ := restored(t, exported(t, "", spansOfEveryKind()),
		kinetoreceiver.Options{Resource: map[string]string{"host.name": "n2"}, ServiceName: "x", JobID: "j"})
	a := got[0].ResourceSpans().At(0).Resource().Attributes().AsRaw()
	assert.Equal(t, "n2", a["host.name"])
	assert.Equal(t, "llm", a["service.name"])
	assert.NotContains(t, a, "gpu.job.id")
}

// An invalid identifier is omitted and counted; nothing panics, and everything else is restored.
func TestBrokenIdentifiersAreCounted(t *testing.T) {
	path := exported(t, "", spansOfEveryKind())
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	total := spansOfEveryKind().SpanCount()
	for _, id := range []string{
		`""`, `"0"`, `"zzzzzzzzzzzzzzzz"`, `"0000000000000000"`, `1`, `null`, `{}`,
		`"\u0030000000000000001"`, `"00000000000000010"`,
	} {
		broken := regexp.MustCompile(`"span_id":"0000000000000001"`).ReplaceAll(text,
			[]byte(`"span_id":`+strings.ReplaceAll(id, `\`, `\\`)))
		require.NotEqual(t, text, broken)
		require.NoError(t, os.WriteFile(path, broken, 0o600))
		_, st := restored(t, path, kinetoreceiver.Options{})
		assert.EqualValues(t, total-1, st.Restored, id)
		assert.Equal(t, map[string]int64{"trace_id, span_id or parent_span_id is not an identifier": 1}, st.Skipped, id)
	}
}
