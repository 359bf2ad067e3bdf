// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package cuda_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/cuda"
	"github.com/otelgpu/otelgpu/gpuspan/internal/ctest"
	"github.com/otelgpu/otelgpu/gpuspan/internal/dl"
)

// hollow calls an empty C function in place of record and capture check on one stream, so that what is measured is gpuspan
// and the way into C, not the stub.
type hollow struct {
	*cuda.Backend
	stream uintptr
	empty  dl.Func
}

func (h *hollow) Record(c *gpuspan.Call) gpuspan.Status {
	if c.Args[1] == h.stream {
		return gpuspan.Status(h.empty.Call(c.Args[:]))
	}
	return h.Backend.Record(c)
}

func (h *hollow) Capturing(s gpuspan.StreamHandle) (bool, gpuspan.Status) {
	if uintptr(s) == h.stream {
		return false, gpuspan.Status(h.empty.Call2(uintptr(s), 0))
	}
	return h.Backend.Capturing(s)
}

// BenchmarkSectionDriver is Start and EndWith with two driver calls (records), and with four (capture checks too); Stub is
// the same with the stub's own work, which emulates a clock and a queue.
func BenchmarkSectionDriver(b *testing.B) {
	for _, c := range []struct {
		name string
		stub bool
		opts []gpuspan.StreamOption
	}{
		{name: "Records", opts: []gpuspan.StreamOption{gpuspan.NeverCaptured()}},
		{name: "RecordsAndCaptureChecks"},
		{name: "StubRecords", stub: true, opts: []gpuspan.StreamOption{gpuspan.NeverCaptured()}},
		{name: "StubRecordsAndCaptureChecks", stub: true},
	} {
		b.Run(c.name, func(b *testing.B) {
			stub := ctest.CUDA(b)
			back, err := cuda.Open(cuda.WithLibrary(stub.Path))
			require.NoError(b, err)
			lib, err := dl.Open(stub.Path)
			require.NoError(b, err)
			h := &hollow{Backend: back, empty: lib.Lookup("stub_empty")}
			const slots = 4096
			prof, err := gpuspan.New(h, gpuspan.WithSlots(slots), gpuspan.WithTracerProvider(sdktrace.NewTracerProvider()), gpuspan.WithErrorHandler(func(error) {}))
			require.NoError(b, err)
			ctx := context.Background()
			defer func() { _ = prof.Shutdown(ctx) }()
			handle := appStream(b, back, 0)
			s := prof.Stream(uintptr(handle), "s", c.opts...)
			if !c.stub {
				h.stream = uintptr(handle)
			}
			op := gpuspan.NewOperation("op")
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				op.Start(ctx, s).EndWith(gpuspan.Work{Bytes: 1 << 20, FLOPs: 1e9, Precision: gpuspan.FP32})
				if i%(slots/2) == slots/2-1 { // let the polling thread keep up: what is measured is the caller
					b.StopTimer()
					_ = prof.Flush(ctx)
					b.StartTimer()
				}
			}
		})
	}
}
