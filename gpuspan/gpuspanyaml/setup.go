// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspanyaml

import (
	"context"
	"errors"
	"fmt"
	"io"

	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/chrometrace"
	"github.com/otelgpu/otelgpu/gpuspan/nvtx"
	"github.com/otelgpu/otelgpu/gpuspan/rank"
	"github.com/otelgpu/otelgpu/gpuspan/stepcsv"
)

// Runtime holds a profiler and everything else that a file configures.
type Runtime struct {
	Profiler       *gpuspan.Profiler        // never nil
	TracerProvider *sdktrace.TracerProvider // shut down by Shutdown
	File           File                     // what was read
}

// SetupOption configures [Setup] and [File.Setup].
type SetupOption interface{ apply(*setup) }

type setup struct {
	below    []string
	profiler []gpuspan.Option
	sdk      []sdktrace.TracerProviderOption
}

type setupOption func(*setup)

func (f setupOption) apply(s *setup) { f(s) }

// Below names the node that has timing, nvtx and profiling, outermost first, as in [Load].
func Below(node ...string) SetupOption {
	return setupOption(func(s *setup) { s.below = node })
}

// WithSDK adds options of the TracerProvider, such as sdktrace.WithBatcher(exporter). They are
// applied after the options of the file.
func WithSDK(opts ...sdktrace.TracerProviderOption) SetupOption {
	return setupOption(func(s *setup) { s.sdk = append(s.sdk, opts...) })
}

// WithProfiler adds options of the profiler. They are applied after the options of the file.
func WithProfiler(opts ...gpuspan.Option) SetupOption {
	return setupOption(func(s *setup) { s.profiler = append(s.profiler, opts...) })
}

// Setup reads a file and creates the profiler, with its TracerProvider, that the file describes:
// settings and schedule, NVTX ranges, Chrome traces, a row for each step, the report. The resource
// has the job and rank of the process (package rank). b may be nil, as for gpuspan.New.
//
// The error joins the errors of [Load], gpuspan.New and outputs that cannot be opened. The result
// is never nil and usable even with an error: invalid values keep their defaults, and those outputs
// are missing. Call [Runtime.Shutdown] at the end.
func Setup(path string, b backend.Backend, opts ...SetupOption) (*Runtime, error) {
	f, err := Load(path, collect(opts).below...)
	if f == (File{}) { // not opened: the environment applies
		f, _ = Read(nothing{})
	}
	r, problems := f.Setup(b, opts...)
	return r, errors.Join(err, problems)
}

type nothing struct{}

func (nothing) Read([]byte) (int, error) { return 0, io.EOF }

func collect(opts []SetupOption) *setup {
	s := &setup{}
	for _, o := range opts {
		if o != nil {
			o.apply(s)
		}
	}
	return s
}

// Setup is like the function [Setup] for a file that has been read and possibly changed, for
// example by flags.
func (f File) Setup(b backend.Backend, opts ...SetupOption) (*Runtime, error) {
	var problems []error
	problem := func(doing string, err error) {
		if err != nil {
			problems = append(problems, fmt.Errorf("cannot %s: %w", doing, err))
		}
	}
	res, err := resource.New(context.Background(), resource.WithDetectors(rank.Detector{}))
	problem("detect job and rank", err)
	sdk := []sdktrace.TracerProviderOption{sdktrace.WithResource(res)}
	profiler := []gpuspan.Option{f.Option()}
	if f.StepCSV != "" {
		rows, err := stepcsv.NewExporter(f.StepCSV)
		if problem("write `profiling.step_csv`", err); err == nil {
			sdk = append(sdk, sdktrace.WithBatcher(rows))
		}
	}
	if f.TraceDir != "" {
		traces, err := chrometrace.NewExporter(f.TraceDir)
		if problem("write to `profiling.trace_dir`", err); err == nil {
			sdk = append(sdk, sdktrace.WithBatcher(traces))
		}
	}
	if f.NVTX.Enabled {
		var domain []nvtx.Option
		if f.NVTX.Domain != "" {
			domain = append(domain, nvtx.WithDomain(f.NVTX.Domain))
		}
		ranges, err := nvtx.Open(domain...)
		problem("open NVTX", err)
		ids := gpuspan.NewIDGenerator(nil) // so that a range has the IDs of its own span
		sdk = append(sdk, sdktrace.WithIDGenerator(ids))
		profiler = append(profiler, gpuspan.WithAnnotator(ranges), gpuspan.WithIDGenerator(ids))
	}
	more := collect(opts)
	r := &Runtime{File: f, TracerProvider: sdktrace.NewTracerProvider(append(sdk, more.sdk...)...)}
	profiler = append(append(profiler, gpuspan.WithTracerProvider(r.TracerProvider)), more.profiler...)
	r.Profiler, err = gpuspan.New(b, profiler...)
	return r, errors.Join(append(problems, err)...)
}

// Shutdown shuts down the profiler and then the TracerProvider, which receives the profiler's last
// spans, and returns their joined errors. With `nvtx.enabled`, end the program by nvtx.Exit
// afterwards, or a tool misses the last ranges.
func (r *Runtime) Shutdown(ctx context.Context) error {
	return errors.Join(r.Profiler.Shutdown(ctx), r.TracerProvider.Shutdown(ctx))
}
