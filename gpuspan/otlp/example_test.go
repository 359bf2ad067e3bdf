// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package otlp_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/otlp"
	"github.com/otelgpu/otelgpu/gpuspan/simgpu"
)

// Spans of sections without an SDK: the program has no TracerProvider.
func ExampleSink() {
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Println(r.URL.Path, r.Header.Get("Content-Type"), len(body) > 0)
	}))
	defer collector.Close()

	sink, err := otlp.New(otlp.Endpoint(collector.URL), otlp.Client(collector.Client()),
		otlp.Resource(attribute.String("service.name", "inference")))
	if err != nil {
		fmt.Println(err)
	}
	clock := simgpu.NewManualClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	gpu := simgpu.New(clock)
	prof, err := gpuspan.New(gpu, gpuspan.WithSink(sink))
	if err != nil {
		fmt.Println(err)
	}
	ctx := context.Background()
	handle := gpu.Stream(0)
	stream := prof.Stream(handle, "compute")
	decode := gpuspan.NewOperation("decode", gpuspan.ItemType("token"))
	for range 3 {
		x := decode.Start(ctx, stream)
		gpu.Launch(handle, simgpu.Kernel{Duration: time.Millisecond})
		x.EndWith(gpuspan.Work{Items: 8})
		clock.Advance(2 * time.Millisecond)
	}
	_ = prof.Shutdown(ctx)
	_ = sink.Shutdown(ctx)
	fmt.Println(sink.Stats().Sent, "spans")
	// Output:
	// /v1/traces application/x-protobuf true
	// 3 spans
}
