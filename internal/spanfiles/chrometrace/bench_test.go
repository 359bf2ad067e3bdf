// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chrometrace_test

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/otelgpu/otelgpu/internal/spanfiles/chrometrace"
)

// kernels returns a batch as read from a profiler's file: launches on the host, and kernels on a
// stream with their usual attributes.
func kernels(n int, from int64) []chrometrace.Event {
	events := make([]chrometrace.Event, 0, n)
	for i := range int64(n / 2) {
		k := from + i
		start := epoch + k*10_000
		events = append(events,
			chrometrace.Event{
				Name: "cudaLaunchKernel", Category: "cuda_runtime", Track: host(100), Start: start, End: start + 4_000,
				Correlation: k + 1, Trace: [16]byte{1}, Span: [8]byte{1, byte(k)}, Parent: [8]byte{9},
			},
			chrometrace.Event{
				Name:     "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>>(int, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>)",
				Category: "kernel", Track: stream(7), Start: start + 5_000, End: start + 14_000,
				Correlation: k + 1, Trace: [16]byte{1}, Span: [8]byte{2, byte(k)}, Parent: [8]byte{1, byte(k)},
				Args: []chrometrace.Arg{
					{Key: "gpu.operation.type", Value: chrometrace.String("kernel")},
					{Key: "gpu.duration", Value: chrometrace.Float(9e-6)},
					{Key: "grid", Value: chrometrace.List([]chrometrace.Value{
						chrometrace.Int(1024), chrometrace.Int(1),
						chrometrace.Int(1),
					})},
					{Key: "block", Value: chrometrace.List([]chrometrace.Value{
						chrometrace.Int(128), chrometrace.Int(1),
						chrometrace.Int(1),
					})},
					{Key: "registers per thread", Value: chrometrace.Int(32)},
					{Key: "hw.model", Value: chrometrace.String("NVIDIA H200")},
				},
			})
	}
	return events
}

// BenchmarkWriter measures one span, without disk I/O.
func BenchmarkWriter(b *testing.B) {
	const batch = 1000
	w := chrometrace.NewWriter(io.Discard)
	b.ReportAllocs()
	var made int64
	events := kernels(batch, 0)
	for b.Loop() {
		for i := range events { // reuse the memory for the next interval
			events[i].Start += batch / 2 * 10_000
			events[i].End += batch / 2 * 10_000
			events[i].Correlation += batch / 2
		}
		if err := w.Write(events); err != nil {
			b.Fatal(err)
		}
		made += batch
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(made), "ns/span")
}

// BenchmarkEncodingJSON is the baseline: encoding/json writes the same events as structs, without
// tracks and flows.
func BenchmarkEncodingJSON(b *testing.B) {
	type event struct {
		Ph   string         `json:"ph"`
		Cat  string         `json:"cat"`
		Name string         `json:"name"`
		PID  int64          `json:"pid"`
		TID  int64          `json:"tid"`
		TS   float64        `json:"ts"`
		Dur  float64        `json:"dur"`
		Args map[string]any `json:"args"`
	}
	const batch = 1000
	events := kernels(batch, 0)
	b.ReportAllocs()
	var made int64
	e := json.NewEncoder(io.Discard)
	for b.Loop() {
		for i := range events {
			v := event{
				"X", events[i].Category, events[i].Name, 1, events[i].Track.ID, float64(events[i].Start) / 1e3,
				float64(events[i].End-events[i].Start) / 1e3,
				map[string]any{},
			}
			for _, a := range events[i].Args {
				if s, ok := a.Value.AsString(); ok {
					v.Args[a.Key] = s
				} else if n, ok := a.Value.AsFloat(); ok {
					v.Args[a.Key] = n
				} else {
					v.Args[a.Key] = []int{1024, 1, 1}
				}
			}
			if err := e.Encode(v); err != nil {
				b.Fatal(err)
			}
		}
		made += batch
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(made), "ns/span")
}

// BenchmarkMillionSpans writes a complete file of 10⁶ spans to disk, and reports its size as
// B/span.
func BenchmarkMillionSpans(b *testing.B) {
	for _, c := range []chrometrace.Compression{chrometrace.None, chrometrace.Gzip} {
		name := string(c)
		if c == chrometrace.None {
			name = "plain"
		}
		b.Run(name, func(b *testing.B) {
			const spans, batch = 1_000_000, 2000
			var size int64
			for b.Loop() {
				path := filepath.Join(b.TempDir(), "trace.json")
				r, err := chrometrace.NewRotator(chrometrace.Files{
					Path: path, Compression: c,
					OnComplete: func(p string, _ chrometrace.Stats) { path = p },
				})
				if err != nil {
					b.Fatal(err)
				}
				for from := int64(0); from < spans/2; from += batch / 2 {
					if err := r.Write(kernels(batch, from)); err != nil {
						b.Fatal(err)
					}
				}
				if err := r.Close(); err != nil {
					b.Fatal(err)
				}
				size = fileSize(b, path)
			}
			b.ReportMetric(float64(size)/spans, "B/span")
			b.ReportMetric(float64(spans)*float64(b.N)/b.Elapsed().Seconds(), "spans/s")
		})
	}
}

func fileSize(b *testing.B, path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		b.Fatal(err)
	}
	return info.Size()
}
