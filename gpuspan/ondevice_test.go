// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/simgpu"
)

// A program whose GPU work runs in another process receives the times from it and names the device.
func TestRecordedRunsCarryTheDeviceThatTheProgramNames(t *testing.T) {
	start := time.Unix(1_700_000_000, 5000)
	l40 := backend.Device{UUID: "GPU-1", Model: "NVIDIA L40S", Vendor: "NVIDIA"}
	second := backend.Device{UUID: "GPU-2", Model: "NVIDIA L40S", Vendor: "NVIDIA", Ordinal: 1}
	for name, b := range map[string]backend.Backend{"no backend": nil, "beside a backend": simgpu.New(nil)} {
		t.Run(name, func(t *testing.T) {
			spans := tracetest.NewSpanRecorder()
			p, err := gpuspan.New(b, gpuspan.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))))
			require.NoError(t, err)
			s := p.Stream(0, "llama-server", gpuspan.OnDevice(l40))
			require.Same(t, s, p.Stream(0, "llama-server", gpuspan.OnDevice(l40)))
			other := p.Stream(0, "llama-server", gpuspan.OnDevice(second))
			require.NotSame(t, s, other)
			require.False(t, s.DeviceTimed())

			decode := gpuspan.NewOperation("decode", gpuspan.ItemType("token"))
			decode.RecordMeasured(context.Background(), s, start, 250*time.Millisecond, gpuspan.Work{Items: 100, Bytes: 50e9})
			decode.RecordMeasured(context.Background(), other, start, 125*time.Millisecond, gpuspan.Work{Items: 100})
			require.NoError(t, p.Flush(context.Background()))

			require.Len(t, spans.Ended(), 2)
			for i, want := range []backend.Device{l40, second} {
				span := spans.Ended()[i]
				a := attrs(span)
				require.Equal(t, want.UUID, a["hw.id"].AsString())
				require.EqualValues(t, want.Ordinal, a["gpu.device.ordinal"].AsInt64())
				require.Equal(t, 0.25/float64(1+i), a["gpu.duration"].AsFloat64())
				require.NotContains(t, a, "gpu.timing.source")
				require.True(t, start.Equal(span.StartTime()), span.StartTime())
			}
			sum := p.Snapshot()
			require.Len(t, sum.Devices, 2)
			require.Equal(t, 864e9, sum.Devices[0].Peaks.Memory)
			require.InDelta(t, 200/0.375, sum.Operations[0].All.Rates().Items, 1e-9)
			require.NoError(t, p.Shutdown(context.Background()))
		})
	}
}
