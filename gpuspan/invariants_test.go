// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan_test

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
	"github.com/otelgpu/otelgpu/gpuspan/simgpu"
	"github.com/otelgpu/otelgpu/gpuspan/train"
	"github.com/otelgpu/otelgpu/semconv"
)

func semconvKey(k string) attribute.Key { return attribute.Key(k) }

// Package gpuspan imports the OpenTelemetry API and nothing else outside the standard library.
func TestThePackageImportsTheOTelAPIOnly(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}",
		".").CombinedOutput()
	if err != nil {
		t.Skipf("go list does not run here: %v", err)
	}
	n := 0
	for p := range strings.FieldsSeq(string(out)) {
		n++
		ok := strings.HasPrefix(p, "github.com/otelgpu/otelgpu/gpuspan") ||
			strings.HasPrefix(p, "github.com/otelgpu/otelgpu/semconv")
		switch p { // go.opentelemetry.io/otel, its API modules, and their dependencies
		case "github.com/go-logr/logr", "github.com/go-logr/logr/funcr", "github.com/go-logr/stdr",
			"github.com/cespare/xxhash/v2":
			ok = true
		}
		if strings.HasPrefix(p, "go.opentelemetry.io/") {
			ok = !strings.Contains(p, "/otel/sdk") && !strings.Contains(p, "/exporters/")
		}
		require.True(t, ok, "package gpuspan imports %s", p)
		require.NotContains(t, p, "/gpuspan/cuda")
		require.NotContains(t, p, "purego")
	}
	require.Greater(t, n, 10, "the list is plausible")
}

// All spans of the package's tests have registered names only.
func TestSpansUseRegisteredNamesOnly(t *testing.T) {
	set := settings.Default()
	set.MemoryUsage, set.CodeLocation, set.StackDepth = true, true, 3
	r := newRig(t, gpuspan.WithSettings(func(s *settings.Settings) { *s = set }))
	s, h := r.stream()
	op := gpuspan.NewOperation("op", gpuspan.Category("c"), gpuspan.Collective("all_reduce", 4),
		gpuspan.Attributes(semconv.GPUIOAccessPattern(semconv.GPUIOAccessPatternRandom), semconv.GPUZeroCopy(false),
			semconv.GPUOperationShapes("f32[1]"), semconv.GPUKernelModule("m")),
		gpuspan.ItemType("token"), gpuspan.Kernel("k"))
	for ctx, step := range train.NewLoop(r.p, "train", s, train.TotalSteps(2), train.Items("image"),
		train.ModelDevices(8, gpuspan.BF16), train.Phases(train.Data, train.Comm)).Steps(context.Background()) {
		f := step.Phase("custom")
		x := op.Start(ctx, s)
		r.busy(h, time.Millisecond)
		x.Chunk(0, 1)
		x.LinkItems(ctx, 3)
		x.AddCopied(gpuspan.HostToDevice, 4)
		x.SetAttributes(semconv.GPUCacheL2HitRatio(1))
		x.Checksum(3)
		x.EndWith(gpuspan.Work{Read: 1, Written: 1, Bytes: 1, Items: 1, FLOPs: 1, Precision: gpuspan.FP4})
		f.End()
		step.SetItems(3)
		step.SetModelFLOPs(3)
		r.clock.Advance(3 * time.Millisecond)
	}
	op.RecordMeasured(context.Background(), s, epoch, time.Second, gpuspan.Work{})
	r.flush()
	require.NotEmpty(t, r.spans.Ended())
	for _, span := range r.spans.Ended() {
		for _, kv := range span.Attributes() {
			reg, ok := semconv.LookupAttribute(string(kv.Key))
			require.True(t, ok, "%s on %s is not in the registry", kv.Key, span.Name())
			require.Equal(t, kv.Value.Type().String(), goType(string(reg.Type)), kv.Key)
		}
	}
}

func goType(t string) string {
	switch t {
	case "string":
		return "STRING"
	case "int":
		return "INT64"
	case "double":
		return "FLOAT64"
	case "boolean":
		return "BOOL"
	case "string[]":
		return "STRINGSLICE"
	case "int[]":
		return "INT64SLICE"
	}
	return t
}

// Many goroutines use all features on shared and separate streams. Every section must be exported
// exactly once.
func TestConcurrentUse(t *testing.T) {
	gpu := simgpu.New(nil)
	var mu sync.Mutex
	names := map[string]int{}
	tp := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(
		sdktrace.NewSimpleSpanProcessor(exporterFunc(func(spans []sdktrace.ReadOnlySpan) {
			mu.Lock()
			defer mu.Unlock()
			for _, s := range spans {
				names[s.Name()]++
			}
		}))))
	p, err := gpuspan.New(gpu, gpuspan.WithTracerProvider(tp), gpuspan.WithErrorHandler(func(err error) {
		if !strings.Contains(err.Error(), "raise `slots`") { // a slow machine may lose the times of a burst
			t.Error(err)
		}
	}))
	require.NoError(t, err)
	shared := p.Stream(gpu.Stream(0), "shared")
	op, inner := gpuspan.NewOperation("op"), gpuspan.NewOperation("inner")
	const workers, runs = 6, 300
	var wg, ends sync.WaitGroup
	for i := range workers {
		own := p.Stream(gpu.Stream(0), fmt.Sprint(i))
		wg.Go(func() {
			for j := range runs {
				s := shared
				if j%2 == 0 {
					s = own
				}
				x := op.Start(context.Background(), s)
				y := x.StartOn(inner, own)
				x.Link(context.Background())
				ends.Go(func() { y.EndWith(gpuspan.Work{Items: 1}) })
				x.EndWith(gpuspan.Work{Items: 1})
				x.End()
				if j%50 == 0 {
					p.Snapshot()
					p.SetVerbosity(settings.VerbosityDefault)
				}
			}
		})
	}
	wg.Wait()
	ends.Wait()
	flush(t, p)
	sum := p.Snapshot()
	a, _ := sum.ByName("op")
	b, _ := sum.ByName("inner")
	require.EqualValues(t, workers*runs, a.Count)
	require.EqualValues(t, workers*runs, b.Count)
	require.EqualValues(t, workers*runs, a.Items)
	require.EqualValues(t, workers*runs, b.Items)
	require.NoError(t, p.Shutdown(context.Background()))
	mu.Lock()
	defer mu.Unlock()
	require.EqualValues(t, a.Duration.Count, names["op"], "a span for each timed section")
	require.EqualValues(t, b.Duration.Count, names["inner"])
	require.Positive(t, names["op"])
}

type exporterFunc func([]sdktrace.ReadOnlySpan)

func (f exporterFunc) ExportSpans(_ context.Context, s []sdktrace.ReadOnlySpan) error {
	f(s)
	return nil
}
func (f exporterFunc) Shutdown(context.Context) error { return nil }

// Enabling, disabling, closing streams and shutting down while sections run must neither race nor
// block.
func TestLifecycleUnderLoad(t *testing.T) {
	for range 5 {
		gpu := simgpu.New(nil)
		p, err := gpuspan.New(gpu, gpuspan.WithErrorHandler(func(error) {}), slots(16))
		require.NoError(t, err)
		op := gpuspan.NewOperation("op")
		stop := make(chan struct{})
		var wg sync.WaitGroup
		for i := range 3 {
			h := gpu.Stream(0)
			wg.Go(func() {
				s := p.Stream(h, fmt.Sprint(i))
				for n := 0; ; n++ {
					select {
					case <-stop:
						return
					default:
					}
					x := op.Start(context.Background(), s)
					x.Start(op).End()
					x.End()
					if n%100 == 99 {
						s.Close()
						s = p.Stream(h, fmt.Sprint(i))
					}
				}
			})
		}
		wg.Go(func() {
			for on := false; ; on = !on {
				select {
				case <-stop:
					return
				case <-time.After(time.Millisecond):
					p.SetEnabled(on)
				}
			}
		})
		time.Sleep(20 * time.Millisecond)
		_ = p.Shutdown(context.Background())
		close(stop)
		wg.Wait()
	}
}
