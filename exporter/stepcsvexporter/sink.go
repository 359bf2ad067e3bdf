// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package stepcsvexporter

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"

	"github.com/otelgpu/otelgpu/exporter/stepcsvexporter/internal/metadata"
	"github.com/otelgpu/otelgpu/internal/sharedcomponent"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/internal/spanfiles/stepcsv"
	"github.com/otelgpu/otelgpu/semconv"
)

const (
	maxRanks   = 4096   // files that are open at once
	maxRepeats = 20_000 // steps that are remembered
)

// sink is one file, or one for each rank.
type sink struct {
	cfg *Config
	log *zap.Logger
	tel *metadata.TelemetryBuilder

	mu         sync.Mutex
	files      map[int64]*stepcsv.Writer // by rank; 0 is the main rank, and spans without a rank
	repeats    spanfacts.Repeats         // a fan-out repeats a request that another exporter has rejected
	running    bool
	undeclared bool
}

func newSink(cfg *Config, set exporter.Settings) (*sink, error) {
	tel, err := metadata.NewTelemetryBuilder(set.TelemetrySettings)
	if err != nil {
		return nil, err
	}
	return &sink{
		cfg: cfg, log: set.Logger, tel: tel, files: map[int64]*stepcsv.Writer{},
		repeats: spanfacts.Repeats{Max: maxRepeats},
	}, nil
}

// start opens the main rank's file, so that a mistake is reported at once.
func (s *sink) start(context.Context, component.Host) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.file(0); err != nil {
		return err
	}
	s.running = true
	return nil
}

func (s *sink) shutdown(ctx context.Context) error { return sharedcomponent.Within(ctx, s.close) }

func (s *sink) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running = false
	var errs error
	for rank, f := range s.files {
		errs = errors.Join(errs, f.Close())
		delete(s.files, rank)
	}
	s.tel.Shutdown()
	return errs
}

func (s *sink) file(rank int64) (*stepcsv.Writer, error) {
	if f, ok := s.files[rank]; ok {
		return f, nil
	}
	if len(s.files) == maxRanks {
		return nil, consumererror.NewPermanent(fmt.Errorf("step_csv has %d files open already, none for rank %d", maxRanks,
			rank))
	}
	cfg := stepcsv.Config{Path: s.cfg.Path, Phases: s.cfg.Phases}
	if rank != 0 {
		ext := filepath.Ext(cfg.Path)
		cfg.Path = fmt.Sprintf("%s-rank%d%s", strings.TrimSuffix(cfg.Path, ext), rank, ext)
	}
	f, err := stepcsv.Open(cfg)
	if err != nil {
		return nil, err
	}
	if f.Stats().Repaired > 0 {
		s.log.Warn("Removed an incomplete last line from a step CSV", zap.String("path", cfg.Path))
	}
	s.files[rank] = f
	return f, nil
}

func (s *sink) consume(ctx context.Context, td ptrace.Traces) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.running {
		return errors.New("step_csv exporter is not running")
	}
	// A retry must not write data twice, and data that can never be written must not keep the rest
	// from being written: the error carries only the data that is worth another attempt.
	failed := ptrace.NewTraces()
	var again, never error
	for _, rs := range td.ResourceSpans().All() {
		switch err := s.resource(ctx, rs); {
		case err == nil:
		case consumererror.IsPermanent(err):
			never = errors.Join(never, err)
		default:
			again = errors.Join(again, err)
			rs.CopyTo(failed.ResourceSpans().AppendEmpty())
		}
	}
	if again == nil {
		return never
	}
	if never != nil {
		s.log.Error("Steps are omitted", zap.Error(never))
	}
	return consumererror.NewTraces(again, failed)
}

// resource writes the steps of one resource in one call, so that all or none are in the file.
// Skipped steps are counted when no retry follows.
func (s *sink) resource(ctx context.Context, rs ptrace.ResourceSpans) error {
	var rank int64
	if v, ok := rs.Resource().Attributes().Get(string(semconv.GPUJobRankKey)); ok {
		rank = max(0, spanfacts.Whole(v))
	}
	var rows []stepcsv.Row
	var written []ptrace.Span
	skipped := map[string]int64{}
	for _, ss := range rs.ScopeSpans().All() {
		for _, span := range ss.Spans().All() {
			if v, ok := span.Attributes().Get(string(semconv.GPUOperationTypeKey)); !ok ||
				v.Str() != semconv.GPUOperationTypeStep {
				continue
			}
			switch row, ok := build(span.Attributes()); {
			case rank != 0 && !s.cfg.AllRanks:
				skipped["rank"]++
			case s.cfg.Loop != "" && span.Name() != s.cfg.Loop:
				skipped["loop"]++
			case !ok:
				skipped["no_duration"]++
			case s.repeats.AgainKey(identity(span)):
				skipped["repeated"]++
			default:
				rows, written = append(rows, row), append(written, span)
			}
		}
	}
	err := s.write(ctx, rank, rows)
	if err != nil {
		for _, span := range written {
			s.repeats.Forget(identity(span))
		}
	}
	if err == nil || consumererror.IsPermanent(err) {
		for reason, n := range skipped {
			s.tel.ExporterStepCsvStepsSkipped.Add(ctx, n, metric.WithAttributes(attribute.String("reason", reason)))
		}
	}
	return err
}

// identity returns what recognizes a span that arrives again.
func identity(s ptrace.Span) (k spanfacts.Key, start, end uint64) {
	return spanfacts.Key{Trace: s.TraceID(), Span: s.SpanID()}, uint64(s.StartTimestamp()), uint64(s.EndTimestamp())
}

// write appends rows to the file of a rank.
func (s *sink) write(ctx context.Context, rank int64, rows []stepcsv.Row) error {
	if len(rows) == 0 {
		return nil
	}
	f, err := s.file(rank)
	if err != nil {
		return err
	}
	before := f.Stats()
	err = f.Write(rows...)
	after := f.Stats()
	s.tel.ExporterStepCsvRows.Add(ctx, after.Rows-before.Rows)
	if d := after.Undeclared - before.Undeclared; d > 0 {
		s.tel.ExporterStepCsvUndeclaredTime.Add(ctx, d.Seconds())
		if !s.undeclared {
			s.undeclared = true
			s.log.Warn("Steps have phases without a column, whose time is in t_misc_ms (name them in `phases`)",
				zap.Strings("phases", s.cfg.Phases))
		}
	}
	return err
}

func build(attributes pcommon.Map) (stepcsv.Row, bool) {
	var b stepcsv.Builder
	for k, v := range attributes.All() {
		switch v.Type() {
		case pcommon.ValueTypeStr:
			b.String(k, v.Str())
		case pcommon.ValueTypeInt:
			b.Int(k, v.Int())
		case pcommon.ValueTypeDouble:
			b.Float(k, v.Double())
		}
	}
	return b.Row()
}
