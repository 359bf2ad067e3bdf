// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chrometraceexporter

import (
	"context"
	"errors"
	"slices"
	"sync"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"

	"github.com/otelgpu/otelgpu/exporter/chrometraceexporter/internal/metadata"
	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/sharedcomponent"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/internal/spanfiles/chrometrace"
)

const maxRepeats = 100_000 // spans that are remembered

// sink is the files of one exporter, used by its traces and its metrics exporter.
type sink struct {
	cfg    *Config
	log    *zap.Logger
	tel    *metadata.TelemetryBuilder
	forget func()

	writing sync.Mutex // precedes mu
	repeats spanfacts.Repeats

	mu      sync.Mutex
	users   int
	files   *chrometrace.Rotator
	pool    sync.Pool // *builder
	counter map[string]bool
	rings   *rings // nil: counters arrive as metrics
}

func newSink(cfg *Config, set exporter.Settings) (*sink, error) {
	tel, err := metadata.NewTelemetryBuilder(set.TelemetrySettings)
	if err != nil {
		return nil, err
	}
	s := &sink{cfg: cfg, log: set.Logger, tel: tel, counter: map[string]bool{}}
	s.repeats.Max = maxRepeats
	for _, name := range cfg.Counters {
		s.counter[name] = true
	}
	s.pool.New = func() any { return &builder{} }
	return s, nil
}

// use is one exporter's reference to the sink.
type use struct {
	*sink
	started bool
}

func (u *use) start(_ context.Context, host component.Host) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.files == nil {
		f := u.cfg.files()
		f.OnComplete = u.completed
		f.OnError = func(err error) {
			u.log.Error("A Chrome trace could not be completed", zap.Error(err))
			componentstatus.ReportStatus(host, componentstatus.NewRecoverableErrorEvent(err))
		}
		f.Compressor = compressor
		r, err := chrometrace.NewRotator(f)
		if err != nil {
			return err
		}
		if u.cfg.Samples != nil {
			samples, err := devicesamples.FindReader(host, *u.cfg.Samples)
			if err != nil {
				return errors.Join(err, r.Close())
			}
			u.rings = &rings{samples: samples, wanted: u.counter, drawn: map[ring]int64{}, latest: map[string]int64{}}
		}
		u.files = r
	}
	u.users++
	u.started = true
	return nil
}

// shutdown completes the files when the last exporter of the ID stops.
func (u *use) shutdown(ctx context.Context) error { return sharedcomponent.Within(ctx, u.close) }

func (u *use) close() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.started {
		return nil
	}
	u.started = false
	if u.users--; u.users > 0 {
		return nil
	}
	u.forget()
	var err error
	if u.rings != nil {
		err = u.files.WriteCounters(u.rings.rest())
	}
	err = errors.Join(err, u.files.Close())
	u.tel.Shutdown()
	return err
}

func (s *sink) completed(path string, st chrometrace.Stats) {
	ctx := context.Background()
	s.tel.ExporterChromeTraceFiles.Add(ctx, 1)
	s.tel.ExporterChromeTraceSpans.Add(ctx, st.Events)
	s.tel.ExporterChromeTraceFlows.Add(ctx, st.Flows)
	s.tel.ExporterChromeTraceCounterPoints.Add(ctx, st.Counters)
	for reason, n := range map[string]int64{"no_time": st.NoTime, "crowded": st.Crowded} {
		if n > 0 {
			s.tel.ExporterChromeTraceSpansDropped.Add(ctx, n, metric.WithAttributes(attribute.String("reason", reason)))
		}
	}
	level := zap.InfoLevel
	if st.NoTime+st.Crowded > 0 {
		level = zap.WarnLevel
	}
	s.log.Log(level, "Chrome trace complete", zap.String("path", path), zap.Int64("spans", st.Events),
		zap.Int64("spans_left_out", st.NoTime+st.Crowded))
}

var errNotRunning = errors.New("chrome_trace exporter is not running")

func (s *sink) rotator() *chrometrace.Rotator {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.files
}

func (s *sink) consumeTraces(ctx context.Context, td ptrace.Traces) error {
	r := s.rotator()
	if r == nil {
		return errNotRunning
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	b := s.pool.Get().(*builder)
	defer s.put(b)
	b.traces(td)
	repeated, err := s.write(r, b)
	if repeated > 0 {
		s.tel.ExporterChromeTraceSpansDropped.Add(ctx, repeated, repetition)
	}
	if s.rings != nil && err == nil {
		if b.counters = s.rings.spans(b.events, b.counters); len(b.counters) > 0 {
			err = r.WriteCounters(b.counters)
			if err != nil { // the spans are in the file: only the counters beside them are missing
				s.log.Warn("Counters could not be drawn", zap.Error(err))
				err = nil
			}
		}
	}
	return err
}

var repetition = metric.WithAttributeSet(attribute.NewSet(attribute.String("reason", "repeated")))

// write writes the spans that are not in the files yet, and returns the number of the others. A
// fan-out repeats a request that another exporter has rejected.
func (s *sink) write(r *chrometrace.Rotator, b *builder) (repeated int64, err error) {
	s.writing.Lock() // until the outcome is known, a repetition must not be taken for written
	defer s.writing.Unlock()
	all := len(b.events)
	b.events = slices.DeleteFunc(b.events, func(e chrometrace.Event) bool { return s.repeats.AgainKey(keyOf(&e)) })
	if err := r.Write(b.events); err != nil {
		for i := range b.events {
			s.repeats.Forget(keyOf(&b.events[i]))
		}
		return 0, err
	}
	return int64(all - len(b.events)), nil
}

func keyOf(e *chrometrace.Event) (k spanfacts.Key, start, end uint64) {
	return spanfacts.Key{Trace: e.Trace, Span: e.Span}, uint64(e.Start), uint64(e.End)
}

func (s *sink) consumeMetrics(_ context.Context, md pmetric.Metrics) error {
	if s.rings != nil {
		return nil // each sample is drawn already
	}
	r := s.rotator()
	if r == nil {
		return errNotRunning
	}
	// Also if the sender has gone: a point that arrives again is drawn at the same time.
	b := s.pool.Get().(*builder)
	defer s.put(b)
	b.metrics(md, s.counter)
	if len(b.counters) == 0 {
		return nil
	}
	return r.WriteCounters(b.counters)
}

// put returns a builder to the pool, unless one huge request made it huge.
func (s *sink) put(b *builder) {
	if cap(b.events) > 1<<16 || cap(b.args) > 1<<20 {
		return
	}
	b.reset()
	s.pool.Put(b)
}
