// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package stepcsv_test

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan/stepcsv"
	"github.com/otelgpu/otelgpu/semconv"
)

func exported(t *testing.T, rank int, opts ...stepcsv.ExporterOption) []string {
	path := filepath.Join(t.TempDir(), "steps.csv")
	e, err := stepcsv.NewExporter(path, append(opts, stepcsv.WithPhases("eval"))...)
	require.NoError(t, err)
	var res []attribute.KeyValue
	if rank >= 0 {
		res = append(res, semconv.GPUJobRankKey.String(strconv.Itoa(rank))) // as in OTEL_RESOURCE_ATTRIBUTES
	}
	tp := sdktrace.NewTracerProvider(sdktrace.WithBatcher(e), sdktrace.WithResource(resource.NewSchemaless(res...)))
	tracer := tp.Tracer("t")
	span := func(name string, attributes ...attribute.KeyValue) {
		_, s := tracer.Start(t.Context(), name, trace.WithAttributes(attributes...))
		s.End()
	}
	step := semconv.GPUOperationTypeKey.String(semconv.GPUOperationTypeStep)
	span("train", step, semconv.GPUStepIndexKey.Int(7), semconv.GPUStepEpochKey.Int(0), semconv.GPUStepItemsKey.Int(32),
		semconv.GPUStepDurationKey.Float64(.1), semconv.GPUStepOverlapDurationKey.Float64(.01),
		semconv.GPUStepOtherDurationKey.Float64(.000000001),
		semconv.GPUStepPhaseDurationKey("forward").Float64(.06), semconv.GPUStepPhaseDurationKey("backward").Float64(
			.049999999))
	span("validate", step, semconv.GPUStepIndexKey.Int(1), semconv.GPUStepDurationKey.Float64(.2),
		semconv.GPUStepPhaseDurationKey("eval").Float64(.2))
	span("no length", step, semconv.GPUStepIndexKey.Int(2))
	for i, impossible := range []float64{-.1, math.NaN(), math.Inf(1), 1e300} {
		span("impossible", step, semconv.GPUStepIndexKey.Int(3+i), semconv.GPUStepDurationKey.Float64(impossible))
	}
	span("section", semconv.GPUOperationTypeKey.String(semconv.GPUOperationTypeSection),
		semconv.GPUStepDurationKey.Float64(.2))
	require.NoError(t, tp.Shutdown(t.Context()))
	return strings.Split(strings.TrimSpace(content(t, path)), "\n")[1:]
}

func TestRowsOfABatchAreInTheOrderOfTheirSteps(t *testing.T) {
	path := filepath.Join(t.TempDir(), "steps.csv")
	e, err := stepcsv.NewExporter(path)
	require.NoError(t, err)
	start := time.Unix(1_700_000_000, 0)
	var spans tracetest.SpanStubs
	for _, step := range []int{2, 1, 3} {
		spans = append(spans, tracetest.SpanStub{
			Name: "train", StartTime: start.Add(time.Duration(step) * time.Second),
			Attributes: []attribute.KeyValue{
				semconv.GPUOperationTypeKey.String(semconv.GPUOperationTypeStep), semconv.GPUStepIndexKey.Int(step),
				semconv.GPUStepDurationKey.Float64(1),
			},
		})
	}
	require.NoError(t, e.ExportSpans(t.Context(), spans.Snapshots()))
	require.NoError(t, e.Shutdown(t.Context()))
	require.Regexp(t, `\n1,.*\n2,.*\n3,`, content(t, path))
}

func TestStepSpansBecomeRows(t *testing.T) {
	train := "7,0,,60.000000,49.999999,,,10.000000,0.000001,100.000000,320.000,"
	validate := "1,,,,,,,,,200.000000,,200.000000"
	require.Equal(t, []string{train, validate}, exported(t, -1), "a process without a rank is the main one")
	require.Equal(t, []string{train}, exported(t, 0, stepcsv.WithLoop("train")))
	require.Empty(t, exported(t, 3), "another rank writes nothing")
	require.Equal(t, []string{train, validate}, exported(t, 3, stepcsv.WithAllRanks()))

	t.Setenv("RANK", "3")
	require.Empty(t, exported(t, -1), "a resource that does not say, in a process of a job")
	require.Len(t, exported(t, -1, stepcsv.WithAllRanks()), 2)
	require.Len(t, exported(t, 0), 2, "the resource comes first")
}

// The phases of the first steps get columns, in their order, unless the file has rows: then their
// time is misc, and the error handler is called once.
func TestPhasesOfTheFirstStepsGetColumns(t *testing.T) {
	path := filepath.Join(t.TempDir(), "steps.csv")
	var errs []string
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { errs = append(errs, err.Error()) }))
	defer otel.SetErrorHandler(otel.ErrorHandlerFunc(func(error) {}))
	run := func(steps int64, phases ...string) {
		e, err := stepcsv.NewExporter(path)
		require.NoError(t, err)
		for i := range steps {
			kv := []attribute.KeyValue{
				attribute.String("gpu.operation.type", "step"), attribute.Int64("gpu.step.index", i+1),
				attribute.Float64("gpu.step.duration", 0.01), attribute.Float64("gpu.step.overlap.duration", 0),
				attribute.Float64("gpu.step.other.duration", 0.002),
			}
			for _, p := range phases {
				kv = append(kv, attribute.Float64("gpu.step.phase.duration."+p, 0.004))
			}
			span := tracetest.SpanStub{Name: "train", Attributes: kv}
			require.NoError(t, e.ExportSpans(context.Background(), []sdktrace.ReadOnlySpan{span.Snapshot()}))
		}
		require.NoError(t, e.Shutdown(context.Background()))
	}
	run(2, "topr", "misc", "assign", "forward")
	run(2, "topr", "late")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	require.Len(t, lines, 5)
	require.True(t, strings.HasSuffix(lines[0], "ips_step,t_topr_ms,t_assign_ms"), lines[0])
	require.Equal(t, "1,,,4.000000,,,,0.000000,6.000000,10.000000,,4.000000,4.000000", lines[1])
	require.Equal(t, "2,,,,,,,0.000000,6.000000,10.000000,,4.000000,", lines[4])
	require.Len(t, errs, 2, "of misc, and of late")
	require.Contains(t, errs[1], "late")
}
