// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chrometrace_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan/chrometrace"
	"github.com/otelgpu/otelgpu/internal/spanfiles/chrometrace/chrometracetest"
	"github.com/otelgpu/otelgpu/semconv"
)

const epoch = int64(1_700_000_000_123_456_789)

func at(ms int64) trace.SpanEventOption {
	return trace.WithTimestamp(time.Unix(0, epoch+ms*1_000_000))
}

// trainingRun creates the spans of the numbered steps, each 10 ms long with a section of 4 ms.
// Sections end before their steps, and steps end late, as in gpuspan.
func trainingRun(tracer trace.Tracer, numbers ...int64) {
	for _, n := range numbers {
		ctx, step := tracer.Start(context.Background(), "train", at(n*10), trace.WithAttributes(
			semconv.GPUOperationTypeKey.String("step"), semconv.GPUStepIndexKey.Int64(n)))
		_, x := tracer.Start(ctx, "forward", at(n*10+2), trace.WithAttributes(
			semconv.GPUOperationTypeKey.String("section"), semconv.GPUStreamIDKey.Int(1), semconv.GPUStartDelayKey.Float64(.001),
			attribute.IntSlice("shape", []int{1, 2})))
		x.SetStatus(codes.Error, "late")
		x.AddEvent("mark", at(n*10+3))
		x.End(at(n*10 + 6))
		step.End(at(n*10 + 10))
	}
}

func TestEachActiveWindowIsOneFile(t *testing.T) {
	for _, batch := range []int{1, 3, 1000} { // windows do not depend on batch size
		dir := t.TempDir()
		var complete []string
		e, err := chrometrace.NewExporter(dir, chrometrace.WithWorker("rank 0"),
			chrometrace.WithOnComplete(func(p string, _ chrometrace.Stats) {
				complete = append(complete, filepath.Base(p))
			}))
		require.NoError(t, err)
		tp := sdktrace.NewTracerProvider(sdktrace.WithBatcher(e, sdktrace.WithMaxExportBatchSize(batch),
			sdktrace.WithMaxQueueSize(1000), sdktrace.WithBlocking()))
		trainingRun(tp.Tracer("t"), 4, 5, 6, 14, 15, 16)
		require.NoError(t, tp.Shutdown(t.Context()))
		require.NoError(t, e.Shutdown(t.Context()), "a second shutdown does nothing")
		got := chrometracetest.Folder(t, dir)
		first, second := "rank_0.1700000000163.pt.trace.json", "rank_0.1700000000263.pt.trace.json"
		require.Equal(t, []string{first, second}, complete)
		require.Len(t, got, 2)
		for name, numbers := range map[string][]int64{first: {4, 5, 6}, second: {14, 15, 16}} {
			s := got[name].Slices()
			require.Len(t, got[name].Of("X"), 6, name)
			require.Len(t, got[name].Of("s"), 3, "arrows from step to section")
			for _, n := range numbers {
				step := s[fmt.Sprintf("ProfilerStep#%d", n)]
				require.EqualValues(t, 10_000_000, step.Dur)
				require.Equal(t, "train", step.Args["loop"])
			}
			x := s["forward"]
			require.Equal(t, []any{1., 2.}, x.Args["shape"])
			require.Equal(t, "late", x.Args["otel.status_description"])
			require.Contains(t, slices.Collect(maps.Values(got[name].Tracks())), "steps of train")
		}
	}
}

func TestWithoutStepsThereIsOneFile(t *testing.T) {
	dir := t.TempDir()
	e, err := chrometrace.NewExporter(dir, chrometrace.WithWorker("w"), chrometrace.WithGzip())
	require.NoError(t, err)
	tp := sdktrace.NewTracerProvider(sdktrace.WithSyncer(e))
	for i := range int64(5) {
		_, s := tp.Tracer("t").Start(t.Context(), "handler", at(i*10))
		s.End(at(i*10 + 5))
	}
	require.NoError(t, tp.Shutdown(t.Context()))
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1)
	require.Equal(t, "w.1700000000123.pt.trace.json.gz", entries[0].Name())
	require.ErrorIs(t, e.ExportSpans(t.Context(), nil), chrometrace.ErrClosed)
}

func TestUnwritableFolderFailsImmediately(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	_, err := chrometrace.NewExporter(filepath.Join(file, "traces"))
	require.ErrorContains(t, err, "cannot create folder for trace file")
	require.ErrorContains(t, err, "not a directory")
}

// The scope identifies the first stream of a device, as for gpuspan's spans.
func TestAStreamOnTheScopeIsThatOfItsSpans(t *testing.T) {
	var tracks []any
	for _, onScope := range []bool{false, true} {
		dir := t.TempDir()
		e, err := chrometrace.NewExporter(dir, chrometrace.WithWorker("w"))
		require.NoError(t, err)
		tp := sdktrace.NewTracerProvider(sdktrace.WithSyncer(e))
		stream, own := semconv.GPUStreamIDKey.Int(7), []attribute.KeyValue{semconv.GPUOperationTypeKey.String("section")}
		var scope []attribute.KeyValue
		if onScope {
			scope = append(scope, stream)
		} else {
			own = append(own, stream)
		}
		_, s := tp.Tracer("t", trace.WithInstrumentationAttributes(scope...)).Start(t.Context(), "forward", at(0),
			trace.WithAttributes(own...))
		s.End(at(5))
		require.NoError(t, tp.Shutdown(t.Context()))
		for _, f := range chrometracetest.Folder(t, dir) {
			x := f.Slices()["forward"]
			tracks = append(tracks, []any{x.PID, x.TID, f.Tracks()})
		}
	}
	require.Len(t, tracks, 2)
	require.Equal(t, tracks[0], tracks[1])
	require.Contains(t, fmt.Sprint(tracks[1]), "stream 7")
}
