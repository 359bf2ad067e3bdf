// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/conformance"
)

// totals sums the GPU work of spans: their own and the totals of omitted spans.
type totals struct {
	kernels, copies, memsets, copyBytes int64
	kernelTime                          float64
}

func totalsOf(spans []ptrace.Span) (t totals) {
	for _, s := range spans {
		a := s.Attributes().AsRaw()
		integer := func(k string) int64 { n, _ := a[k].(int64); return n }
		double := func(k string) float64 { f, _ := a[k].(float64); return f }
		t.kernels += integer("gpu.summary.kernel.count") + integer("gpu.summary.collective.count")
		t.kernelTime += double("gpu.summary.kernel.duration") + double("gpu.summary.collective.duration")
		t.copies += integer("gpu.summary.copy.count")
		t.copyBytes += integer("gpu.summary.copy.size")
		t.memsets += integer("gpu.summary.memset.count")
		switch a["gpu.operation.type"] {
		case "kernel", "collective":
			t.kernels++
			t.kernelTime += float64(s.EndTimestamp()-s.StartTimestamp()) / 1e9
		case "copy":
			t.copies++
			t.copyBytes += integer("gpu.io.size")
		case "memset":
			t.memsets++
		}
	}
	return t
}

func TestNoLevelOfDetailLosesWork(t *testing.T) {
	for path, ref := range references(t, "kineto") {
		if ref.Kineto != nil && !*ref.Kineto {
			continue
		}
		var want totals
		for _, d := range ref.Devices {
			want.kernels += d.Activities["kernel"]
			want.copies += d.Activities["memcpy"]
			want.memsets += d.Activities["memset"]
			want.kernelTime += float64(d.KernelSum) / 1e9
			for _, c := range d.Copies {
				want.copyBytes += c.Bytes
			}
		}
		for _, detail := range []Detail{DetailAuto, DetailSteps, DetailAnnotations, DetailOperators, DetailKernels} {
			t.Run(filepath.Base(filepath.Dir(path))+"/"+filepath.Base(path)+"/"+detail.String(), func(t *testing.T) {
				batches, st := read(t, path, Options{Detail: detail})
				spans := spansOf(batches)
				have := totalsOf(spans)
				assert.InDelta(t, want.kernelTime, have.kernelTime, 1e-9*float64(len(spans)+1))
				have.kernelTime = want.kernelTime
				assert.Equal(t, want, have)
				assert.Equal(t, st.Spans, int64(len(spans)))

				bytes := 0
				byTrace := map[pcommon.TraceID]int{}
				ids := map[pcommon.SpanID]bool{}
				for _, td := range batches {
					require.NoError(t, conformance.TracesFrom("kineto", td))
					bytes += (&ptrace.ProtoMarshaler{}).TracesSize(td)
				}
				for _, s := range spans {
					byTrace[s.TraceID()]++
					if ids[s.SpanID()] {
						t.Fatalf("%q: span id twice", s.Name())
					}
					ids[s.SpanID()] = true
				}
				for _, s := range spans {
					if p := s.ParentSpanID(); !p.IsEmpty() {
						if !ids[p] {
							t.Fatalf("parent of %q is missing", s.Name())
						}
					}
				}
				if detail != DetailOperators && detail != DetailKernels {
					assert.Len(t, byTrace, 1, "one trace per process")
					assert.LessOrEqual(t, len(spans), 2000)
					assert.LessOrEqual(t, bytes, 2_000_000)
				}
				t.Logf("%d spans in %d traces, %d bytes of OTLP, %d cut", len(spans), len(byTrace), bytes, st.Cut)
			})
		}
	}
}

func TestLimitsApplyToCounts(t *testing.T) {
	var parts []string
	for i := range int64(150) {
		parts = append(parts, step(i+1, 2000*(i+1)))
	}
	text := "[" + strings.Join(parts, ",") + "]"
	for _, detail := range []Detail{DetailSteps, DetailAnnotations} {
		_, st := convert(t, text, Options{Detail: detail, MaxSpans: 100})
		assert.Equal(t, int64(100), st.Spans)
		assert.Equal(t, int64(52), st.Cut, "the window and its device take two")
		_, st = convert(t, text, Options{Detail: detail, MaxBytes: 100_000})
		assert.Positive(t, st.Cut)
		_, st = convert(t, text, Options{Detail: detail})
		assert.Zero(t, st.Cut)
		assert.Equal(t, int64(152), st.Spans)
	}
}
