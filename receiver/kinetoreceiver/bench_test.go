// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"bytes"
	"context"
	"io"
	"os"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/recorded"
	"github.com/otelgpu/otelgpu/receiver/kinetoreceiver/internal/chromejson"
)

var benchFiles = map[string]string{
	"resnet50_v100_int": "kineto/pytorch/samples/resnet50_num_workers_0/worker0.1623143089861.pt.trace.json.gz",
	"resnet50_v100_ns":  "kineto/hta/ns_resolution_trace/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz",
	"trace_diff_v100":   "kineto/hta/trace_diff/test/test.json.gz",
	"b200_vllm":         "kineto/tracelens/b200/eager_trace.json.gz",
	"bert_h100":         "kineto/tracelens/h100/gaunernst_bert-small-uncased__1016001.json.gz",
}

func plain(b *testing.B, name string) []byte {
	f, err := os.Open(recorded.Path(b, name))
	require.NoError(b, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(b, err)
	text, err := io.ReadAll(z)
	require.NoError(b, err)
	return text
}

type nothing struct{ n int }

func (n *nothing) Event(*chromejson.Event) error { n.n++; return nil }
func (*nothing) Wants(byte) bool                 { return true }
func (*nothing) Meta(_, _ []byte) error          { return nil }

// BenchmarkScan measures only the tokenizer.
func BenchmarkScan(b *testing.B) {
	for name, file := range benchFiles {
		b.Run(name, func(b *testing.B) {
			text := plain(b, file)
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			var events int64
			for b.Loop() {
				st, err := chromejson.Read(bytes.NewReader(text), &nothing{})
				require.NoError(b, err)
				events += st.Events
			}
			b.ReportMetric(float64(events)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

// BenchmarkRead measures reading uncompressed JSON into finished spans.
func BenchmarkRead(b *testing.B) {
	for name, file := range benchFiles {
		for _, detail := range []Detail{DetailSteps, DetailAuto, DetailAnnotations, DetailOperators, DetailKernels} {
			b.Run(name+"/"+detail.String(), func(b *testing.B) {
				text := plain(b, file)
				b.SetBytes(int64(len(text)))
				b.ReportAllocs()
				var events, spans int64
				for b.Loop() {
					st, err := Read(b.Context(), bytes.NewReader(text), Options{Detail: detail},
						func(context.Context, ptrace.Traces) error { return nil })
					require.NoError(b, err)
					events += st.Records
					spans = st.Spans
				}
				b.ReportMetric(float64(events)/b.Elapsed().Seconds(), "events/s")
				b.ReportMetric(float64(spans), "spans")
			})
		}
	}
}
