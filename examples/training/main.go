// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Command training is a training loop instrumented with gpuspan: steps with phases, a schedule, a
// loader that is sometimes late, a report, a CSV with one row per recorded step, and a Chrome trace
// of each active window.
//
//	go run ./training -steps 120 -csv steps.csv -traces traces
//	go run ./training -config train.yaml
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"

	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.37.0"

	"github.com/otelgpu/otelgpu/examples/internal/accel"
	"github.com/otelgpu/otelgpu/examples/internal/otlp"
	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/gpuspanyaml"
	"github.com/otelgpu/otelgpu/gpuspan/nvtx"
	"github.com/otelgpu/otelgpu/gpuspan/rank"
	"github.com/otelgpu/otelgpu/gpuspan/report"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
	"github.com/otelgpu/otelgpu/gpuspan/train"
)

type config struct {
	steps     int
	csv       string
	traces    string
	otlp      string
	file      string
	report    string // text, csv, json or dot
	sort      string // time, flops, bytes or name
	simulated bool
}

func main() {
	var c config
	flag.IntVar(&c.steps, "steps", 60, "batches to train on")
	flag.StringVar(&c.csv, "csv", "", "write a row for each recorded step to this file")
	flag.StringVar(&c.traces, "traces", "", "write Chrome traces, one for each active window, to this folder")
	flag.StringVar(&c.otlp, "otlp", "", "OTLP/gRPC endpoint for spans, as http://localhost:4317; empty: none")
	flag.StringVar(&c.file, "config", "", "YAML with nodes timing, nvtx and profiling (see package gpuspanyaml)")
	flag.StringVar(&c.report, "report", "text", "form of the report: text, csv, json or dot")
	flag.StringVar(&c.sort, "sort", "time", "order of operations in the report: time, flops, bytes or name")
	flag.BoolVar(&c.simulated, "simulated", false, "use a simulated GPU even where there is a real one")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, c, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		nvtx.Exit(1)
	}
	nvtx.Exit(0) // so that an attached profiler gets the last ranges, too
}

// run trains and prints the report. extra sees every span, for tests.
func run(ctx context.Context, c config, w io.Writer, extra ...sdktrace.SpanProcessor) (err error) {
	if c.steps < 1 {
		return fmt.Errorf("-steps must be at least 1, is %d", c.steps)
	}
	write, err := writer(cmp.Or(c.report, "text"), cmp.Or(c.sort, "time"))
	if err != nil {
		return err
	}
	out := w
	if c.report != "" && c.report != "text" { // its errors are not part of the table
		w = os.Stderr
	}
	// Without a file: warm up for 10 steps, then record 3 of every 10.
	var f gpuspanyaml.File
	if f.Settings, err = settings.FromEnv(); err != nil {
		fmt.Fprintln(w, err) // invalid ones have their defaults
	}
	f.Settings.Schedule = settings.Schedule{SkipFirst: 10, Warmup: 1, Active: 3, Every: 10}
	if c.file != "" {
		if f, err = gpuspanyaml.Load(c.file); err != nil {
			return err
		}
	}
	f.StepCSV = cmp.Or(c.csv, f.StepCSV)
	f.TraceDir = cmp.Or(c.traces, f.TraceDir)
	opts, err := otlp.To(ctx, c.otlp)
	if err != nil {
		return err
	}
	for _, sp := range extra {
		opts = append(opts, sdktrace.WithSpanProcessor(sp))
	}
	// With several processes, each states its rank: step tables are printed by the main one only,
	// and traces have a lane for each.
	res, err := resource.New(ctx, resource.WithAttributes(semconv.ServiceName("training")), resource.WithFromEnv(),
		resource.WithDetectors(rank.Detector{}))
	if err != nil {
		fmt.Fprintln(w, err) // the rest of the resource is valid
	}
	if f.NVTX.Enabled {
		f.NVTX.Domain = cmp.Or(f.NVTX.Domain, "training")
	}
	var profiling []gpuspan.Option
	if f.Settings.Report { // quantiles of the whole run, however long it is
		profiling = append(profiling, accel.Report("training"))
	}
	device := accel.Open(c.simulated, w)
	run, err := f.Setup(device.Backend(), gpuspanyaml.WithProfiler(profiling...),
		gpuspanyaml.WithSDK(append(opts, sdktrace.WithResource(res))...))
	if err != nil {
		fmt.Fprintln(w, err) // training continues
	}
	prof := run.Profiler
	stop := context.WithoutCancel(ctx)
	defer func() { err = errors.Join(err, device.Close(), run.Shutdown(stop)) }()

	t := &trainer{device: device, stream: prof.Stream(device.Stream(), "train"), loader: &loader{left: c.steps}}
	loop := train.NewLoop(prof, "train", t.stream, train.Items("image"), train.ModelDevices(1, gpuspan.FP16),
		train.Phases(train.Data, train.Forward, train.Backward, train.Optimizer))
	if err := t.train(ctx, loop); err != nil {
		return err
	}
	if err := prof.Flush(stop); err != nil {
		return err
	}
	if f.StepCSV != "" {
		fmt.Fprintf(w, "%s: a row for each recorded step\n", f.StepCSV)
	}
	if f.TraceDir != "" {
		fmt.Fprintf(w, "%s: a Chrome trace of each active window, for https://ui.perfetto.dev\n", f.TraceDir)
	}
	return write(prof.Snapshot(), out)
}

// writer returns the function that writes the report.
func writer(form, order string) (func(report.Summary, io.Writer) error, error) {
	by, err := report.ParseOrder(order)
	if err != nil {
		return nil, fmt.Errorf("-sort: %w", err)
	}
	write, ok := map[string]func(report.Summary, io.Writer) error{
		"text": report.Summary.WriteText, "csv": report.Summary.WriteCSV, "json": report.Summary.WriteJSON,
		"dot": report.Summary.WriteDOT,
	}[form]
	if !ok {
		return nil, fmt.Errorf("-report is %q, must be text, csv, json or dot", form)
	}
	return func(s report.Summary, w io.Writer) error { return write(s.Sorted(by), w) }, nil
}
