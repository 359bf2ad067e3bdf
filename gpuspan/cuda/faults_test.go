// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package cuda_test

import (
	"context"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/cuda"
	"github.com/otelgpu/otelgpu/gpuspan/internal/ctest"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
	"github.com/otelgpu/otelgpu/gpuspan/train"
)

// If any driver function fails at any time, every section still becomes a span, and no destroyed
// object is used.
func TestAnyFunctionOfTheDriverMayFail(t *testing.T) {
	set := settings.Default()
	set.Slots, set.MemoryUsage = 8, true
	op := gpuspan.NewOperation("op")
	for _, fn := range []string{
		"cuDeviceGetName", "cuDeviceGetUuid", "cuDeviceGetUuid_v2", "cuDeviceGetPCIBusId", "cuDeviceTotalMem_v2",
		"cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxGetState", "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2",
		"cuCtxGetCurrent", "cuCtxGetDevice", "cuCtxGetStreamPriorityRange", "cuStreamCreateWithPriority",
		"cuStreamDestroy_v2", "cuStreamGetCtx", "cuStreamIsCapturing", "cuThreadExchangeStreamCaptureMode",
		"cuEventCreate", "cuEventDestroy_v2", "cuEventRecord", "cuEventQuery", "cuEventSynchronize",
		"cuEventElapsedTime_v2", "cuMemGetInfo_v2",
	} {
		for _, code := range []int32{1, 201, 700, 900, 901} {
			for _, after := range []int64{0, 1, 5, 40} {
				stub := ctest.CUDA(t)
				b, err := cuda.Open(cuda.WithLibrary(stub.Path))
				require.NoError(t, err)
				h := appStream(t, b, 0)
				stub.Fail(fn, code, after, 1+after%2*1000)
				spans := tracetest.NewSpanRecorder()
				p, _ := gpuspan.New(b, gpuspan.WithSettings(func(s *settings.Settings) { *s = set }), gpuspan.WithErrorHandler(func(error) {}),
					gpuspan.WithLogger(slog.New(slog.DiscardHandler)),
					gpuspan.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))))
				s := p.Stream(h, "s")
				for range 2 {
					x := op.Start(context.Background(), s)
					x.Start(op).End()
					x.End()
				}
				for _, st := range train.NewLoop(p, "l", s, train.TotalSteps(1)).Steps(context.Background()) {
					st.Phase(train.Forward).End()
				}
				_ = p.Flush(context.Background())
				_ = p.Shutdown(context.Background())
				require.Len(t, spans.Ended(), 6, "%s %d after %d", fn, code, after)
				require.Zero(t, stub.Count("dead_uses"), "%s %d after %d", fn, code, after)
			}
		}
	}
}
