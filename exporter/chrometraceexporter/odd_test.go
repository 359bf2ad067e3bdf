// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chrometraceexporter

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/exporter/exportertest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/exporter/chrometraceexporter/internal/metadata"
	"github.com/otelgpu/otelgpu/internal/spanfiles/chrometrace/chrometracetest"
)

// oddTexts are names and values that often break JSON encoders and viewers.
var oddTexts = []string{
	"", " ", "a", "POST /größe", "矩阵乘法", "👩‍👩‍👧 e\u0301", "right \u202e left", "line\nfeed\ttab\r\x00\x1f\x7f",
	"\u2028\u2029", "\ufeff", "\"quoted\\\"", "</script>",
	"\xff\xfe", "cut \xe2\x82", "\xed\xa0\x80", "_ZN2at6nativeE", "__Z", "_RNvC", "void f<4, at::add<float>>(int)",
	"aten::mm", "nn.Module: A", "ProfilerStep#7",
	"ProfilerStep#-1", "ph", "X", "otel", "span_id", "links", "device", "stream", "args", "%s%n", "1e999",
	strings.Repeat("long ", 20_000),
}

// oddNumbers are possible values of streams, devices, threads, correlations and steps.
var oddNumbers = []int64{0, 1, 2, 7, 7, 7, -1, 1 << 31, 1<<32 - 1, 1 << 32, 1 << 53, math.MaxInt64, math.MinInt64}

// oddSpans creates unusual spans: services with the same name, tracks with partial overlaps,
// instants, equal times, spans that end before they start, missing times, and times years apart.
func oddSpans(r *rand.Rand, n int) ptrace.Traces {
	text := func() string { return oddTexts[r.IntN(len(oddTexts))] }
	number := func() int64 { return oddNumbers[r.IntN(len(oddNumbers))] }
	value := func(v pcommon.Value) {
		switch r.IntN(8) {
		case 0:
			v.SetInt(number())
		case 1:
			v.SetDouble([]float64{0, -0.5, 1e-9, 1e300, math.NaN(), math.Inf(-1), 5e-324, 12}[r.IntN(8)])
		case 2:
			v.SetBool(true)
		case 3:
			v.SetEmptyBytes().FromRaw([]byte{0, 255})
		case 4:
			v.SetEmptySlice().AppendEmpty().SetStr(text())
		case 5:
			v.SetEmptyMap().PutStr(text(), text())
		case 6: // empty
		default:
			v.SetStr(text())
		}
	}
	td := ptrace.NewTraces()
	for range n {
		rs := td.ResourceSpans().AppendEmpty()
		a := rs.Resource().Attributes()
		a.PutStr("service.name", []string{"train", "train", "", "größe \xff"}[r.IntN(4)])
		if r.IntN(2) == 0 {
			a.PutInt("process.pid", number())
		}
		if r.IntN(3) == 0 {
			a.PutStr("service.instance.id", fmt.Sprint(r.IntN(3)))
		}
		if r.IntN(3) == 0 {
			a.PutInt("gpu.job.rank", number())
		}
		if r.IntN(4) == 0 {
			a.PutStr("gpu.trace.detail", "kernels")
		}
		ss := rs.ScopeSpans().AppendEmpty()
		for range 1 + r.IntN(8) {
			s := ss.Spans().AppendEmpty()
			s.SetName(text())
			s.SetTraceID([16]byte{byte(r.IntN(3))})
			s.SetSpanID([8]byte{byte(r.IntN(4)), byte(r.IntN(256)), byte(r.IntN(256))})
			s.SetParentSpanID([8]byte{byte(r.IntN(4)), byte(r.IntN(256))})
			at := uint64(epoch + r.Int64N(2000)*[]int64{1, 10, 1000}[r.IntN(3)])
			switch r.IntN(60) {
			case 0:
				at = 0
			case 1:
				at = uint64(number())
			case 2:
				at += uint64(r.IntN(9)) << 55 // years
			}
			s.SetStartTimestamp(pcommon.Timestamp(at))
			s.SetEndTimestamp(pcommon.Timestamp(at + uint64([]int64{
				0, 0, 1, 10, 1000, 5000, 1_000_000, -3,
				math.MaxInt64,
			}[r.IntN(9)])))
			m := s.Attributes()
			m.PutStr("gpu.operation.type", []string{
				"", "kernel", "kernel", "copy", "memset", "collective", "section", "step",
				"graph", "x",
			}[r.IntN(10)])
			if r.IntN(3) == 0 {
				m.Remove("gpu.operation.type")
			}
			for _, k := range []string{
				"gpu.stream.id", "gpu.device.ordinal", "thread.id", "gpu.correlation.id", "gpu.step.index", "gpu.io.size", "hw.id",
				"hw.model", "thread.name",
				"gpu.kernel.name", "gpu.start.delay", "gpu.step.duration", "gpu.step.host.duration", "gpu.kernel.grid",
				"gpu.kernel.occupancy.estimate", "otel", "links", "trace_id",
			} {
				switch r.IntN(6) {
				case 0, 1:
					m.PutInt(k, number())
				case 2:
					value(m.PutEmpty(k))
				case 3:
					m.PutDouble(k, r.Float64()*1e-5)
				}
			}
			for range r.IntN(3) {
				value(m.PutEmpty(text()))
			}
			for range r.IntN(3) {
				l := s.Links().AppendEmpty()
				l.SetTraceID([16]byte{byte(r.IntN(9))})
				l.SetSpanID([8]byte{byte(r.IntN(9))})
			}
			for range r.IntN(2) {
				e := s.Events().AppendEmpty()
				e.SetName(text())
				e.SetTimestamp(pcommon.Timestamp(at + uint64(number())))
				value(e.Attributes().PutEmpty(text()))
			}
		}
	}
	return td
}

func oddPoints(r *rand.Rand) pmetric.Metrics {
	md := pmetric.NewMetrics()
	m := md.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
	m.SetName("hw.power")
	m.SetUnit(oddTexts[r.IntN(len(oddTexts))])
	p := m.SetEmptyGauge().DataPoints().AppendEmpty()
	p.SetTimestamp(pcommon.Timestamp(epoch + r.Int64N(10_000)))
	p.SetDoubleValue([]float64{1, -1, 0.1, math.NaN(), math.Inf(1), 1e300}[r.IntN(6)])
	for _, k := range []string{"hw.id", "hw.name", "x"} {
		p.Attributes().PutStr(k, oddTexts[r.IntN(len(oddTexts))])
	}
	return md
}

// For any input, viewers report no errors in the files: the strict reader, and Perfetto if it is
// installed.
func TestOddSpansMakeFilesWithoutFaults(t *testing.T) {
	seeds := uint64(20)
	if testing.Short() {
		seeds = 5
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 1))
		cfg := config(t)
		tr, me, stop := start(t, cfg, exportertest.NewNopSettings(metadata.Type))
		for range 1 + r.IntN(6) {
			require.NoError(t, tr.ConsumeTraces(t.Context(), oddSpans(r, r.IntN(40))))
			require.NoError(t, me.ConsumeMetrics(t.Context(), oddPoints(r)))
		}
		require.NoError(t, stop())
		for _, name := range files(t, filepath.Dir(cfg.Path)) {
			path := filepath.Join(filepath.Dir(cfg.Path), name)
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			_, faults := chrometracetest.Read(data)
			assert.Empty(t, faults, "seed %d, %s", seed, name)
			if seed < 2 && os.Getenv("TRACE_PROCESSOR") != "" {
				agrees(t, path, data)
			}
		}
	}
}
