// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package stepcsv writes one CSV row for each recorded step of a training loop.
//
// # Format
//
// A header, then one line for each step. Times are milliseconds with six decimals, exact to the
// nanosecond.
//
//	step          number of the step, from 1
//	epoch         empty when not stated
//	t_data_ms     waiting for the loader and copying to the device (phase data)
//	t_fwd_ms      forward pass (phase forward)
//	t_bwd_ms      backward pass (phase backward)
//	t_opt_ms      weight update (phase optimizer)
//	t_comm_ms     communication between ranks (phase comm)
//	t_overlap_ms  sum of the phases minus their union
//	t_misc_ms     what belongs to no phase
//	t_step_ms     boundary to boundary on the device
//	ips_step      items of the step divided by t_step; empty when no items are stated
//	t_<phase>_ms  one column for each further declared phase, even if it is empty
//
// If the phases of a step are known, t_step = sum of the phases − t_overlap + t_misc exactly.
// Phases that a step did not have and unknown values are empty. A phase that was not declared has
// no column: its time is part of t_misc, which is reported once. An [Exporter] declares the phases
// of the first steps that it receives.
//
// # Appending
//
// Rows are appended to an existing file if its header has the same columns. An incomplete last
// line, as after a crash, is removed first. A file with other columns is an error and is not
// changed.
package stepcsv

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/otelgpu/otelgpu/gpuspan/internal/options"
	"github.com/otelgpu/otelgpu/gpuspan/rank"
	"github.com/otelgpu/otelgpu/internal/spanfiles/stepcsv"
	"github.com/otelgpu/otelgpu/semconv"
)

// ErrClosed is returned by exports after Shutdown.
var ErrClosed = stepcsv.ErrClosed

// Exporter is an sdktrace.SpanExporter for programs without a Collector that writes a row for each
// step span. Register it with a batching span processor.
type Exporter struct {
	w        *stepcsv.Writer
	cfg      stepcsv.Config
	allRanks bool
	loop     string
	rank     int64 // of this process, where its spans do not say; 0 outside of a job
	reported atomic.Bool
}

var _ sdktrace.SpanExporter = (*Exporter)(nil)

// ExporterOption configures an Exporter.
type ExporterOption interface{ apply(*Exporter) }

type exporterOption func(*Exporter)

func (f exporterOption) apply(e *Exporter) { f(e) }

// WithAllRanks writes rows on every rank. By default only rank 0 and processes without a rank write
// rows. The rank is read from the spans' resource, otherwise from the launcher's environment
// variables (see package rank).
func WithAllRanks() ExporterOption {
	return exporterOption(func(e *Exporter) { e.allRanks = true })
}

// WithLoop writes only steps of the loop with this name; by default of all.
func WithLoop(name string) ExporterOption {
	return exporterOption(func(e *Exporter) { e.loop = name })
}

// WithPhases declares further phases, each with a column, even if it never runs. The standard ones
// need not be declared.
func WithPhases(names ...string) ExporterOption {
	return exporterOption(func(e *Exporter) { e.cfg.Phases = append(e.cfg.Phases, names...) })
}

// NewExporter returns an Exporter that writes to a file, such as "logs/steps.csv", whose folder it
// creates. It returns an error if the file cannot be opened or has other columns. Shutdown closes
// the file.
func NewExporter(path string, opts ...ExporterOption) (*Exporter, error) {
	e := &Exporter{}
	// Errors report contradictions to the code that makes the resource; the remaining attributes
	// are valid.
	if r, _ := (rank.Detector{}).Detect(context.Background()); r != nil {
		if v, ok := r.Set().Value(semconv.GPUJobRankKey); ok {
			e.rank = v.AsInt64()
		}
	}
	options.All(opts, ExporterOption.apply)(e)
	e.cfg.Path = path
	var err error
	if e.w, err = stepcsv.Open(e.cfg); err != nil {
		return nil, err
	}
	return e, nil
}

// rankOf returns a rank, which is a text in OTEL_RESOURCE_ATTRIBUTES; 0 if it is not a number.
func rankOf(v attribute.Value) int64 {
	n, _ := strconv.ParseInt(v.String(), 10, 64)
	return n
}

// ExportSpans implements sdktrace.SpanExporter. It returns an error if rows cannot be
// written, which are then lost.
func (e *Exporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	// Steps end as they are read back: one with work on another stream may end after the next.
	spans = slices.Clone(spans)
	slices.SortStableFunc(spans, func(a, b sdktrace.ReadOnlySpan) int { return a.StartTime().Compare(b.StartTime()) })
	var rows []stepcsv.Row
	var phases []string
	for _, s := range spans {
		if e.loop != "" && s.Name() != e.loop {
			continue
		}
		rank := e.rank
		if v, ok := s.Resource().Set().Value(semconv.GPUJobRankKey); ok {
			rank = rankOf(v)
		}
		if rank != 0 && !e.allRanks {
			continue
		}
		var b stepcsv.Builder
		for _, a := range s.Attributes() {
			switch a.Value.Type() {
			case attribute.STRING:
				b.String(string(a.Key), a.Value.AsString())
			case attribute.INT64:
				b.Int(string(a.Key), a.Value.AsInt64())
			case attribute.FLOAT64:
				b.Float(string(a.Key), a.Value.AsFloat64())
				if name, ok := semconv.GPUStepPhaseDurationOf(string(a.Key)); ok {
					phases = append(phases, name) // in the order of their declaration
				}
			}
		}
		if row, ok := b.Row(); ok {
			rows = append(rows, row)
		}
	}
	if len(rows) == 0 {
		return nil
	}
	if err := e.w.Declare(phases...); err != nil {
		return err
	}
	err := e.w.Write(rows...)
	if d := e.w.Stats().Undeclared; d > 0 && !e.reported.Swap(true) {
		otel.Handle(fmt.Errorf("step CSV: %s of phases without a column is in t_misc_ms: one of %q (a file keeps the "+
			"columns of its first rows: move it away, or declare the phases)", d, phases))
	}
	return err
}

// Shutdown implements sdktrace.SpanExporter. It closes the writer and returns its error.
func (e *Exporter) Shutdown(context.Context) error { return e.w.Close() }
