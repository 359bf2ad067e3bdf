// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package benchmarks

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/minio/simdjson-go"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/cputime"
	"github.com/otelgpu/otelgpu/receiver/kinetoreceiver"
)

// recorded returns the uncompressed text of a recorded trace of PyTorch's profiler.
func recorded(b *testing.B, name string) []byte {
	dir := os.Getenv("OTELGPU_TESTDATA")
	if dir == "" {
		dir = filepath.Join("..", "..", "shared", "data")
	}
	f, err := os.Open(filepath.Join(dir, "kineto", name))
	if err != nil {
		b.Skip("no recorded traces: set OTELGPU_TESTDATA to their folder")
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(b, err)
	text, err := io.ReadAll(z)
	require.NoError(b, err)
	return text
}

// BenchmarkKinetoAgainstSimdjson reads recorded traces alternately with the kineto receiver, into
// finished spans, and with simdjson-go, only into its tape: the limit of a general reader in Go,
// which keeps the whole document in memory. It reports MB of JSON per second of CPU time, and their
// ratio.
func BenchmarkKinetoAgainstSimdjson(b *testing.B) {
	if !simdjson.SupportedCPU() {
		b.Skip("simdjson-go needs AVX2")
	}
	for name, file := range map[string]string{
		"resnet50_v100_int": "pytorch/samples/resnet50_num_workers_0/worker0.1623143089861.pt.trace.json.gz",
		"resnet50_v100_ns":  "hta/ns_resolution_trace/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz",
		"trace_diff_v100":   "hta/trace_diff/test/test.json.gz",
		"b200_vllm":         "tracelens/b200/eager_trace.json.gz",
	} {
		text := recorded(b, file)
		for _, detail := range []kinetoreceiver.Detail{
			kinetoreceiver.DetailSteps, kinetoreceiver.DetailAuto,
			kinetoreceiver.DetailKernels,
		} {
			b.Run(name+"/"+detail.String(), func(b *testing.B) {
				var ours, theirs time.Duration
				var tape *simdjson.ParsedJson
				for b.Loop() {
					begin := cputime.Used()
					_, err := kinetoreceiver.Read(b.Context(), bytes.NewReader(text), kinetoreceiver.Options{Detail: detail},
						func(context.Context, ptrace.Traces) error { return nil })
					require.NoError(b, err)
					middle := cputime.Used()
					tape, err = simdjson.Parse(text, tape)
					require.NoError(b, err)
					ours += middle - begin
					theirs += cputime.Used() - middle
				}
				b.ReportMetric(float64(len(text))*float64(b.N)/1e6/ours.Seconds(), "MB/s")
				b.ReportMetric(float64(len(text))*float64(b.N)/1e6/theirs.Seconds(), "MB/s-simdjson")
				b.ReportMetric(theirs.Seconds()/ours.Seconds(), "of-simdjson")
			})
		}
	}
}
