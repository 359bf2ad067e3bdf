// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"context"
	"encoding/binary"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/extension/extensiontest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/processor"
	"go.opentelemetry.io/collector/processor/processortest"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/otelgpu/otelgpu/extension/gpusamplesextension"
	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/processor/gpujoinprocessor/internal/metadata"
	"github.com/otelgpu/otelgpu/semconv"
)

var (
	samplesID = component.MustNewID("gpu_samples")
	writerID  = component.MustNewID("gpu")
)

type host struct {
	ext map[component.ID]component.Component
}

func (h host) GetExtensions() map[component.ID]component.Component { return h.ext }

// rig is a gpu_samples extension, a device that writes into it, and a gpu_join with a source and a
// sink.
type rig struct {
	t     testing.TB
	host  host
	tel   *componenttest.Telemetry
	store devicesamples.Writer
	sink  *consumertest.TracesSink
	proc  processor.Traces
	stop  chan struct{}
	wg    sync.WaitGroup

	logger *zap.Logger                // nil: none
	w      devicesamples.DeviceWriter // of a bubble's device

	warnings *observer.ObservedLogs // of a rig created by node
}

func newRig(t testing.TB, edit ...func(*gpusamplesextension.Config)) *rig {
	f := gpusamplesextension.NewFactory()
	cfg := f.CreateDefaultConfig().(*gpusamplesextension.Config)
	for _, e := range edit {
		e(cfg)
	}
	ext, err := f.Create(context.Background(), extensiontest.NewNopSettings(f.Type()), cfg)
	require.NoError(t, err)
	require.NoError(t, ext.Start(context.Background(), componenttest.NewNopHost()))
	return &rig{
		t:     t,
		host:  host{map[component.ID]component.Component{samplesID: ext}},
		tel:   componenttest.NewTelemetry(),
		store: ext.(devicesamples.Writer),
		sink:  new(consumertest.TracesSink),
		stop:  make(chan struct{}),
	}
}

// join starts the processor.
func (r *rig) join(edit ...func(*Config)) *rig { return r.joinTo(r.sink, edit...) }

func (r *rig) joinTo(next consumer.Traces, edit ...func(*Config)) *rig {
	cfg := createDefaultConfig().(*Config)
	cfg.Samples = &samplesID
	cfg.Attributes = spanfacts.Full // tests of level lean change it
	for _, e := range edit {
		e(cfg)
	}
	require.NoError(r.t, cfg.Validate())
	set := processortest.NewNopSettings(metadata.Type)
	set.ID = component.MustNewID("gpu_join")
	set.TelemetrySettings = r.tel.NewTelemetrySettings()
	if r.logger != nil {
		set.Logger = r.logger
	}
	p, err := NewFactory().CreateTraces(context.Background(), set, cfg, next)
	require.NoError(r.t, err)
	require.NoError(r.t, p.Start(context.Background(), r.host))
	r.proc = p
	return r
}

func (r *rig) close() {
	close(r.stop)
	r.wg.Wait()
	require.NoError(r.t, r.proc.Shutdown(context.Background()))
	require.GreaterOrEqual(r.t, r.proc.(*joinProcessor).stats.held.Load(), int64(0), "no span leaves twice")
	for _, e := range r.host.ext {
		require.NoError(r.t, e.Shutdown(context.Background()))
	}
	require.NoError(r.t, r.tel.Shutdown(context.Background()))
}

func (r *rig) consume(td ptrace.Traces) {
	r.t.Helper()
	require.NoError(r.t, r.proc.ConsumeTraces(context.Background(), td))
}

func (r *rig) maxWait() time.Duration { return r.proc.(*joinProcessor).cfg.MaxWait }

func (r *rig) device(d devicesamples.Device) devicesamples.DeviceWriter {
	r.t.Helper()
	w, err := r.store.Register(writerID, d)
	require.NoError(r.t, err)
	return w
}

// run writes the result of value every 100 ms, from now until the rig is closed.
func (r *rig) run(w devicesamples.DeviceWriter, value func(t time.Time, s *devicesamples.Sample)) {
	write := func(now time.Time) {
		s := devicesamples.Sample{Time: now.UnixNano()}
		value(now, &s)
		if s.Known != 0 {
			w.Write([]devicesamples.Sample{s})
		}
	}
	write(time.Now())
	r.wg.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case now := <-tick.C:
				write(now)
			case <-r.stop:
				return
			}
		}
	})
}

const gpu0 = "GPU-5fd4f087-86f3-7a43-b711-4771313afc50"

// steady returns samples of a device with constant power from the time zero on, and otherwise
// constant values.
func steady(zero time.Time, watts float64) func(time.Time, *devicesamples.Sample) {
	return func(t time.Time, s *devicesamples.Sample) {
		s.Set(devicesamples.Energy, watts*t.Sub(zero).Seconds())
		s.Set(devicesamples.Power, watts)
		s.Set(devicesamples.Utilization, 0.75)
		s.Set(devicesamples.Temperature, 60)
		s.Set(devicesamples.Throttle, 0)
	}
}

// traces builds requests.
type traces struct {
	ptrace.Traces
	rs ptrace.ResourceSpans
	ss ptrace.ScopeSpans
}

func newTraces(instance string) *traces {
	t := &traces{Traces: ptrace.NewTraces()}
	t.resource(instance)
	return t
}

func (t *traces) resource(instance string) *traces {
	t.rs = t.ResourceSpans().AppendEmpty()
	t.rs.Resource().Attributes().PutStr("service.name", "test")
	t.rs.Resource().Attributes().PutStr("service.instance.id", instance)
	return t.scope("gpuspan")
}

func (t *traces) scope(name string) *traces {
	t.ss = t.rs.ScopeSpans().AppendEmpty()
	t.ss.Scope().SetName(name)
	return t
}

func (t *traces) host(id, parent uint64, start, end time.Time) ptrace.Span {
	s := t.ss.Spans().AppendEmpty()
	s.SetName("span")
	s.SetTraceID(pcommon.TraceID{1})
	s.SetSpanID(spanID(id))
	s.SetParentSpanID(spanID(parent))
	s.SetStartTimestamp(pcommon.NewTimestampFromTime(start))
	s.SetEndTimestamp(pcommon.NewTimestampFromTime(end))
	return s
}

func (t *traces) gpu(id, parent uint64, start, end time.Time) ptrace.Span {
	s := t.host(id, parent, start, end)
	s.Attributes().PutStr(string(semconv.GPUOperationTypeKey), semconv.GPUOperationTypeSection)
	s.Attributes().PutStr(string(semconv.HWIDKey), gpu0)
	return s
}

func spanID(id uint64) (s pcommon.SpanID) {
	binary.BigEndian.PutUint64(s[:], id)
	return s
}

// spans returns all spans of the output by ID.
func (r *rig) spans() map[uint64]ptrace.Span {
	all := map[uint64]ptrace.Span{}
	for _, td := range r.sink.AllTraces() {
		for s := range spansOf(td) {
			id := s.SpanID()
			all[binary.BigEndian.Uint64(id[:])] = s
		}
	}
	return all
}

func spansOf(td ptrace.Traces) func(func(ptrace.Span) bool) {
	return func(yield func(ptrace.Span) bool) {
		for _, rs := range td.ResourceSpans().All() {
			for _, ss := range rs.ScopeSpans().All() {
				for _, s := range ss.Spans().All() {
					if !yield(s) {
						return
					}
				}
			}
		}
	}
}

// count reads one of the processor's own counters; reason may be empty.
func (r *rig) count(name, reason string) (n int64) {
	r.t.Helper()
	m, err := r.tel.GetMetric("otelcol_processor_gpu_join_" + name)
	require.NoError(r.t, err)
	for _, p := range m.Data.(metricdata.Sum[int64]).DataPoints {
		if v, ok := p.Attributes.Value("reason"); reason == "" || ok && v.AsString() == reason {
			n += p.Value
		}
	}
	return n
}

// energy reads the energy of a state over all devices.
func (r *rig) energy(state string) (joules float64) {
	r.t.Helper()
	m, err := r.tel.GetMetric("otelcol_processor_gpu_join_energy")
	require.NoError(r.t, err)
	for _, p := range m.Data.(metricdata.Sum[float64]).DataPoints {
		if v, _ := p.Attributes.Value("state"); v.AsString() == state {
			joules += p.Value
		}
	}
	return joules
}

// withheld reads the energy that spans do not show.
func (r *rig) withheld() (joules float64) {
	r.t.Helper()
	if m, err := r.tel.GetMetric("otelcol_processor_gpu_join_withheld_energy"); err == nil {
		for _, p := range m.Data.(metricdata.Sum[float64]).DataPoints {
			joules += p.Value
		}
	}
	return joules
}

// gauge reads one of the processor's own gauges.
func (r *rig) gauge(name string) int64 {
	r.t.Helper()
	m, err := r.tel.GetMetric("otelcol_processor_gpu_join_" + name)
	require.NoError(r.t, err)
	return m.Data.(metricdata.Gauge[int64]).DataPoints[0].Value
}

// one returns a sample of a device with 300 W from zero on.
func one(now, zero time.Time) []devicesamples.Sample {
	s := devicesamples.Sample{Time: now.UnixNano()}
	steady(zero, 300)(now, &s)
	return []devicesamples.Sample{s}
}
