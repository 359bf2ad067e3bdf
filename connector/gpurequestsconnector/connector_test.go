// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpurequestsconnector

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/connector"
	"go.opentelemetry.io/collector/connector/connectortest"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.uber.org/zap"

	"github.com/otelgpu/otelgpu/connector/gpurequestsconnector/internal/metadata"
	"github.com/otelgpu/otelgpu/internal/configtest"
	"github.com/otelgpu/otelgpu/internal/conformance"
	"github.com/otelgpu/otelgpu/semconv"
)

// outputs are the two outputs of a connector as the Collector creates them: with one configuration,
// started and stopped separately, and each receiving every payload.
type outputs struct {
	all    []connector.Traces
	metric func(name, reason string) float64
}

func start(t *testing.T, edit func(*Config), metrics consumer.Metrics, traces consumer.Traces) *outputs {
	t.Helper()
	cfg := createDefaultConfig().(*Config)
	cfg.InstanceID, cfg.Settle, cfg.Idle = "me", 10*time.Millisecond, 20*time.Millisecond
	if edit != nil {
		edit(cfg)
	}
	require.NoError(t, confmap.Validate(cfg))
	tel := componenttest.NewTelemetry()
	t.Cleanup(func() { require.NoError(t, tel.Shutdown(context.Background())) })
	set := connectortest.NewNopSettings(metadata.Type)
	set.TelemetrySettings = tel.NewTelemetrySettings()
	f := NewFactory()
	x := &outputs{metric: func(name, reason string) float64 {
		m, err := tel.GetMetric("otelcol_connector_gpu_requests_" + name)
		if err != nil {
			return 0
		}
		sum := 0.0
		switch data := m.Data.(type) {
		case metricdata.Sum[int64]:
			for _, p := range data.DataPoints {
				if v, _ := p.Attributes.Value("reason"); reason == "" || v.AsString() == reason {
					sum += float64(p.Value)
				}
			}
		case metricdata.Sum[float64]:
			for _, p := range data.DataPoints {
				sum += p.Value
			}
		}
		return sum
	}}
	if metrics != nil {
		c, err := f.CreateTracesToMetrics(t.Context(), set, cfg, metrics)
		require.NoError(t, err)
		x.all = append(x.all, c)
	}
	if traces != nil {
		c, err := f.CreateTracesToTraces(t.Context(), set, cfg, traces)
		require.NoError(t, err)
		x.all = append(x.all, c)
	}
	for _, c := range x.all {
		require.NoError(t, c.Start(t.Context(), componenttest.NewNopHost()))
	}
	return x
}

func (x *outputs) take(t *testing.T, td ptrace.Traces) {
	td.MarkReadOnly()
	for _, c := range x.all {
		require.NoError(t, c.ConsumeTraces(t.Context(), td))
	}
}

func (x *outputs) stop(t *testing.T) { x.stopBy(t.Context(), t) }

func (x *outputs) stopBy(ctx context.Context, t *testing.T) {
	for _, c := range x.all {
		require.NoError(t, c.Shutdown(ctx))
	}
}

// stopNow stops at the end of the time for it.
func (x *outputs) stopNow(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	x.stopBy(ended, t)
}

// Prometheus stores milliseconds, and at shutdown the last output immediately follows the previous
// one.
func TestNoTwoOutputsAreOfOneMillisecond(t *testing.T) {
	for range 20 {
		metrics := &consumertest.MetricsSink{}
		x := start(t, func(c *Config) { c.FlushInterval = 50 * time.Microsecond }, metrics, nil)
		x.take(t, served(t, 1))
		require.Eventually(t, func() bool { return len(metrics.AllMetrics()) > 3 }, time.Minute, time.Millisecond)
		x.stop(t)
		last := map[string]int64{}
		for _, md := range metrics.AllMetrics() {
			for _, m := range md.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().All() {
				for _, p := range m.Histogram().DataPoints().All() {
					key := fmt.Sprint(m.Name(), p.Attributes().AsRaw())
					at := p.Timestamp().AsTime().UnixMilli()
					require.Greater(t, at, last[key], key)
					last[key] = at
				}
			}
		}
	}
}

// served returns a request with a prefill of 2 J for 100 tokens and decoding of 3 J for 4, both of
// this request alone.
func served(t *testing.T, trace byte) ptrace.Traces {
	return payload(t, service,
		in{name: "POST", trace: trace, id: 1, start: 0, end: 60, kind: server, a: attrs{"gen_ai.request.model": "m"}},
		in{
			name: "prefill", trace: 9, id: trace, start: 10, end: 14, a: gpu("prefill", 0.004, 2, nil),
			links: []linked{{trace, 1, items(100), 0}},
		},
		in{
			name: "decode", trace: 9, id: 100 + trace, start: 20, end: 28, a: gpu("decode", 0.008, 3, nil),
			links: []linked{{trace, 1, items(4), 0}},
		},
	)
}

// values returns the points as "name{attributes}" to count and sum, and the exemplars' span IDs.
func values(t *testing.T, md pmetric.Metrics) (points map[string]string, exemplars map[string]pcommon.SpanID) {
	t.Helper()
	require.NoError(t, conformance.Metrics(md))
	points, exemplars = map[string]string{}, map[string]pcommon.SpanID{}
	for _, rm := range md.ResourceMetrics().All() {
		for _, m := range rm.ScopeMetrics().At(0).Metrics().All() {
			put := func(attrs pcommon.Map, count uint64, sum float64, e pmetric.ExemplarSlice) {
				raw := attrs.AsRaw()
				require.Equal(t, "me", raw["collector.instance.id"])
				delete(raw, "collector.instance.id")
				key := m.Name() + fmt.Sprint(raw)[3:]
				points[key] = fmt.Sprintf("%d in %.9g", count, sum)
				if e.Len() > 0 {
					exemplars[key] = e.At(0).SpanID()
				}
			}
			if m.Type() == pmetric.MetricTypeHistogram {
				for _, p := range m.Histogram().DataPoints().All() {
					put(p.Attributes(), p.Count(), p.Sum(), p.Exemplars())
				}
				continue
			}
			for _, p := range m.ExponentialHistogram().DataPoints().All() {
				put(p.Attributes(), p.Count(), p.Sum(), p.Exemplars())
			}
		}
	}
	return points, exemplars
}

var twoRequests = map[string]string{
	"gpu.request.duration[gen_ai.request.model:m gpu.operation.category:decode gpu.operation.item.type:token gpu.operation.name:decode]":      "2 in 0.016",
	"gpu.request.duration[gen_ai.request.model:m gpu.operation.category:prefill gpu.operation.item.type:token gpu.operation.name:prefill]":    "2 in 0.008",
	"gpu.request.energy[gen_ai.request.model:m gpu.operation.category:decode gpu.operation.item.type:token gpu.operation.name:decode]":        "2 in 6",
	"gpu.request.energy[gen_ai.request.model:m gpu.operation.category:prefill gpu.operation.item.type:token gpu.operation.name:prefill]":      "2 in 4",
	"gpu.request.item.energy[gen_ai.request.model:m gpu.operation.category:decode gpu.operation.item.type:token gpu.operation.name:decode]":   "8 in 6",
	"gpu.request.item.energy[gen_ai.request.model:m gpu.operation.category:prefill gpu.operation.item.type:token gpu.operation.name:prefill]": "200 in 4",
	"gpu.request.items[gen_ai.request.model:m gpu.operation.category:decode gpu.operation.item.type:token gpu.operation.name:decode]":         "2 in 8",
	"gpu.request.items[gen_ai.request.model:m gpu.operation.category:prefill gpu.operation.item.type:token gpu.operation.name:prefill]":       "2 in 200",
	"gpu.request.queue.duration[gen_ai.request.model:m]":     "2 in 0.02",
	"gpu.request.time_to_first_item[gen_ai.request.model:m]": "2 in 0.028",
}

func TestBothOutputsAreEqual(t *testing.T) {
	metrics, traces := new(consumertest.MetricsSink), new(consumertest.TracesSink)
	x := start(t, nil, metrics, traces)
	x.take(t, served(t, 1))
	x.take(t, served(t, 2))
	require.Eventually(t, func() bool { return traces.SpanCount() == 6 }, time.Minute, time.Millisecond)
	x.stop(t)
	require.Len(t, metrics.AllMetrics(), 2, "points of 0, and all others")
	got, exemplars := values(t, metrics.AllMetrics()[1])
	assert.Equal(t, twoRequests, got)
	sm := metrics.AllMetrics()[1].ResourceMetrics().At(0).ScopeMetrics().At(0)
	assert.Empty(t, sm.Scope().Version()+sm.SchemaUrl(), "a release does not rename the series")
	assert.Equal(t, semconv.SchemaURL, metrics.AllMetrics()[1].ResourceMetrics().At(0).SchemaUrl())
	assert.NotEmpty(t, traces.AllTraces()[0].ResourceSpans().At(0).ScopeSpans().At(0).Scope().Version())
	assert.Equal(t, "llm", metrics.AllMetrics()[1].ResourceMetrics().At(0).Resource().Attributes().AsRaw()["service.name"])

	// Every exemplar refers to a written span.
	written := map[pcommon.SpanID]string{}
	for _, td := range traces.AllTraces() {
		for _, s := range td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().All() {
			written[s.SpanID()] = s.Name()
		}
	}
	assert.Len(t, exemplars, len(twoRequests))
	for name, id := range exemplars {
		assert.Contains(t, written, id, name)
	}
	assert.Equal(t, 10.0, x.metric("energy", ""))
	assert.Equal(t, 2.0, x.metric("closed", "settled"))
}

// increase() includes a series' first requests only if the series was 0 before, even if the store
// rejects the first outputs.
func TestCumulativeSeriesBeginWithAZero(t *testing.T) {
	for name, edit := range map[string]func(*Config){
		"explicit":    func(c *Config) { c.FlushInterval = 20 * time.Millisecond },
		"exponential": func(c *Config) { c.FlushInterval = 20 * time.Millisecond; c.Histogram.Exponential.GetOrInsertDefault() },
	} {
		t.Run(name, func(t *testing.T) {
			metrics, refusals := new(consumertest.MetricsSink), 3
			store, err := consumer.NewMetrics(func(ctx context.Context, md pmetric.Metrics) error {
				if refusals--; refusals >= 0 {
					return errors.New("not now")
				}
				return metrics.ConsumeMetrics(ctx, md)
			})
			require.NoError(t, err)
			x := start(t, edit, store, nil)
			x.take(t, served(t, 1))
			require.Eventually(t, func() bool { return len(metrics.AllMetrics()) > 4 }, time.Minute, time.Millisecond)
			x.stop(t)
			counts, times := map[string][]uint64{}, map[string][]pcommon.Timestamp{}
			put := func(m pmetric.Metric, attrs pcommon.Map, count uint64, sum float64, at, start pcommon.Timestamp) {
				key := m.Name() + fmt.Sprint(attrs.AsRaw())
				counts[key], times[key] = append(counts[key], count), append(times[key], at)
				assert.LessOrEqual(t, start, at)
				assert.Equal(t, count == 0, sum == 0)
			}
			for _, md := range metrics.AllMetrics() {
				for _, m := range md.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().All() {
					if m.Type() == pmetric.MetricTypeHistogram {
						for _, p := range m.Histogram().DataPoints().All() {
							put(m, p.Attributes(), p.Count(), p.Sum(), p.Timestamp(), p.StartTimestamp())
							require.Equal(t, p.ExplicitBounds().Len()+1, p.BucketCounts().Len())
						}
						continue
					}
					for _, p := range m.ExponentialHistogram().DataPoints().All() {
						put(m, p.Attributes(), p.Count(), p.Sum(), p.Timestamp(), p.StartTimestamp())
					}
				}
			}
			require.Len(t, counts, 10)
			for key, n := range counts {
				assert.Zero(t, n[0], key)
				assert.Greater(t, times[key][1]/1e6, times[key][0]/1e6, "Prometheus knows milliseconds")
				for i := 1; i < len(n); i++ {
					if strings.Contains(key, "gpu.request.item.energy") {
						assert.Greater(t, n[i], uint64(1), "%s: each item counts", key)
					} else {
						assert.EqualValues(t, 1, n[i], "%s: one zero, and never silent", key)
					}
					assert.GreaterOrEqual(t, times[key][i], times[key][i-1], key)
				}
			}
		})
	}
}

// A clock that is set back, such as on a machine that started with a wrong time, keeps no usage
// record open.
func TestUsageRecordsCloseWhenTheClockIsSetBack(t *testing.T) {
	c, err := newConnector(createDefaultConfig().(*Config), connectortest.NewNopSettings(metadata.Type))
	require.NoError(t, err)
	sink := new(consumertest.TracesSink)
	c.traces = sink
	now := time.Unix(1_700_000_000, 0)
	c.clock = func() time.Time { return now }
	consume := func(id byte) {
		td := payload(t, service, decode(id, 1, 1, linked{id, 1, nil, 0}))
		require.NoError(t, c.ConsumeTraces(t.Context(), td))
	}
	consume(1)
	now = now.Add(-time.Hour)
	consume(2)
	c.closeDue(t.Context(), false)
	require.Len(t, c.book.requests, 2)
	now = now.Add(31 * time.Second)
	c.closeDue(t.Context(), false)
	require.Empty(t, c.book.requests)
	require.Equal(t, 2, sink.SpanCount())
}

func TestEachOutputWorksAlone(t *testing.T) {
	metrics := new(consumertest.MetricsSink)
	x := start(t, nil, metrics, nil)
	x.take(t, served(t, 1))
	x.stop(t)
	got, _ := values(t, metrics.AllMetrics()[0])
	assert.Len(t, got, len(twoRequests))

	traces := new(consumertest.TracesSink)
	x = start(t, nil, nil, traces)
	x.take(t, served(t, 1))
	x.stop(t)
	assert.Equal(t, 3, traces.SpanCount())
}

// Without a traces output, an exemplar names the request's own span, because the usage record's
// span is not exported.
func TestExemplarsNameSpansThatExist(t *testing.T) {
	metrics := new(consumertest.MetricsSink)
	x := start(t, nil, metrics, nil)
	x.take(t, served(t, 1))
	x.stop(t)
	n := 0
	for _, rm := range metrics.AllMetrics()[len(metrics.AllMetrics())-1].ResourceMetrics().All() {
		for _, m := range rm.ScopeMetrics().At(0).Metrics().All() {
			for _, p := range m.Histogram().DataPoints().All() {
				for _, e := range p.Exemplars().All() {
					n++
					assert.Equal(t, pcommon.SpanID{1}, e.SpanID(), m.Name())
				}
			}
		}
	}
	assert.Positive(t, n)
}

func TestDeltaAndExponential(t *testing.T) {
	metrics := new(consumertest.MetricsSink)
	x := start(t, func(c *Config) {
		c.FlushInterval, c.Temporality = 20*time.Millisecond, TemporalityDelta
		c.Histogram.Exponential = configoptional.Some(ExponentialConfig{MaxSize: 20})
	}, metrics, nil)
	x.take(t, served(t, 1))
	require.Eventually(t, func() bool { return metrics.DataPointCount() > 0 }, time.Minute, time.Millisecond)
	x.take(t, served(t, 2))
	x.stop(t)
	count := uint64(0)
	for _, md := range metrics.AllMetrics() {
		values(t, md)
		for _, m := range md.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().All() {
			if m.Name() == "gpu.request.queue.duration" {
				require.Equal(t, pmetric.AggregationTemporalityDelta, m.ExponentialHistogram().AggregationTemporality())
				for _, p := range m.ExponentialHistogram().DataPoints().All() {
					count += p.Count()
				}
			}
		}
	}
	assert.EqualValues(t, 2, count)
}

// refuser rejects data until it is disabled.
type refuser struct {
	consumertest.TracesSink
	mu  sync.Mutex
	err error
	ids []pcommon.SpanID // of rejected spans
}

func (r *refuser) ConsumeTraces(ctx context.Context, td ptrace.Traces) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		return r.TracesSink.ConsumeTraces(ctx, td)
	}
	for _, s := range td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().All() {
		r.ids = append(r.ids, s.SpanID())
	}
	td.ResourceSpans().RemoveIf(func(ptrace.ResourceSpans) bool { return true }) // as a component that accepted some
	return r.err
}

func (r *refuser) Capabilities() consumer.Capabilities {
	return consumer.Capabilities{MutatesData: true}
}

func TestRejectedSpansAreSentAgainUnchanged(t *testing.T) {
	next := &refuser{err: errors.New("full")}
	x := start(t, nil, nil, next)
	x.take(t, served(t, 1))
	require.Eventually(t, func() bool {
		next.mu.Lock()
		defer next.mu.Unlock()
		return len(next.ids) >= 6
	}, time.Minute, time.Millisecond)
	next.mu.Lock()
	next.err = nil
	next.mu.Unlock()
	require.Eventually(t, func() bool { return next.SpanCount() == 3 }, time.Minute, time.Millisecond)
	x.stop(t)
	assert.Equal(t, 3, next.SpanCount())
	for _, s := range next.AllTraces()[0].ResourceSpans().At(0).ScopeSpans().At(0).Spans().All() {
		assert.Contains(t, next.ids, s.SpanID())
	}
	assert.Zero(t, x.metric("dropped", ""))
}

func TestPermanentlyRefusedDataIsCounted(t *testing.T) {
	x := start(t, nil, consumertest.NewErr(errors.New("no")), consumertest.NewErr(
		consumererror.NewPermanent(errors.New("never"))))
	x.take(t, served(t, 1))
	x.stopNow(t)
	assert.Equal(t, 3.0, x.metric("dropped", "spans"))
	assert.Equal(t, 2*float64(len(twoRequests)), x.metric("dropped", "metrics"), "each series with its 0")
}

func TestARefusalThatLastsIsBounded(t *testing.T) {
	x := start(t, func(c *Config) { c.MaxRequests = 1 }, nil, consumertest.NewErr(errors.New("full")))
	for i := range byte(4) {
		x.take(t, served(t, i+1))
		require.Eventually(t, func() bool { return x.metric("closed", "") > float64(i) }, time.Minute, time.Millisecond)
	}
	x.stopNow(t)
	assert.Equal(t, 12.0, x.metric("dropped", "spans"))
}

func TestManySendersAtOnceLoseNothing(t *testing.T) {
	metrics, traces := new(consumertest.MetricsSink), new(consumertest.TracesSink)
	x := start(t, func(c *Config) { c.FlushInterval = time.Millisecond }, metrics, traces)
	var senders sync.WaitGroup
	for i := range byte(8) {
		senders.Go(func() {
			for j := range byte(10) {
				td := payload(t, service, in{
					name: "decode", trace: 200 + i, id: 1 + j, start: 1, end: 2, a: gpu("decode", 0.001, 1, nil),
					links: []linked{{1, 1, nil, 0}, {2, 1, nil, 0}},
				})
				for _, c := range x.all {
					assert.NoError(t, c.ConsumeTraces(context.Background(), td))
				}
			}
		})
	}
	senders.Wait()
	x.stop(t)
	assert.InDelta(t, 80, x.metric("energy", ""), 1e-9)
	sum := 0.0
	for _, td := range traces.AllTraces() {
		for _, s := range td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().All() {
			sum += s.Attributes().AsRaw()["gpu.energy"].(float64)
		}
	}
	assert.InDelta(t, 80, sum, 1e-9)
}

// A value without a trace has no exemplar.
func TestAnUnsampledRequestIsNoExemplar(t *testing.T) {
	metrics := new(consumertest.MetricsSink)
	x := start(t, nil, metrics, nil)
	x.take(t, payload(t, service,
		decode(1, 1, 1, linked{1, 1, nil, knownParent}), in{name: "GET", trace: 1, id: 1, end: 9, kind: server}))
	x.stop(t)
	all := metrics.AllMetrics()
	points, exemplars := values(t, all[len(all)-1])
	assert.NotEmpty(t, points)
	assert.Empty(t, exemplars)
}

// Prometheus turns only service.name and service.instance.id into labels.
func TestTwoResourcesAreNotOneSeries(t *testing.T) {
	metrics := new(consumertest.MetricsSink)
	x := start(t, func(c *Config) { c.FlushInterval = time.Hour }, metrics, nil)
	for i, resource := range []attrs{
		{"service.name": "llm", "process.pid": 1},
		{"service.name": "llm", "process.pid": 2},
		{"service.name": "llm", "service.instance.id": "pod-0", "process.pid": 3},
		{"service.name": "llm", "service.instance.id": "pod-0", "process.pid": 4}, // restarted
	} {
		x.take(t, payload(t, resource, in{
			name: "decode", trace: 9, id: byte(i + 1), start: 1, end: 2, a: gpu("decode", 0.001, 1, nil),
			links: []linked{{1, 1, nil, 0}},
		}))
	}
	x.stop(t)
	counts := map[string]uint64{}
	for _, rm := range metrics.AllMetrics()[1].ResourceMetrics().All() {
		id, ok := rm.Resource().Attributes().Get("service.instance.id")
		require.True(t, ok)
		for _, m := range rm.ScopeMetrics().At(0).Metrics().All() {
			if m.Name() == "gpu.request.energy" {
				counts[id.Str()] += m.Histogram().DataPoints().At(0).Count()
			}
		}
	}
	assert.Len(t, counts, 3)
	assert.EqualValues(t, 2, counts["pod-0"])
}

func TestResourcesOfMetricsAreBounded(t *testing.T) {
	cfg := createDefaultConfig().(*Config)
	cfg.MaxResources = 2
	b, m := newBook(cfg), newMeters(cfg, "me", zap.NewNop())
	for i := range 5 {
		b.take(payload(t, attrs{"service.name": fmt.Sprint(i)}, in{
			name: "decode", trace: 9, id: byte(i + 1), start: 1, end: 2, a: gpu("decode", 0.001, 1, nil),
			links: []linked{{1, 1, nil, 0}},
		}), clock)
		m.record(b.due(clock+int64(i), true), clock+int64(i))
	}
	assert.Len(t, m.of, 4)
	assert.LessOrEqual(t, len(b.sources), 2)
	assert.Equal(t, 2, m.lost, "time and energy of the first")
	md := m.output()
	m.trim()
	assert.Len(t, m.of, 2)
	assert.Equal(t, 2*2, m.Kept, "time and energy of each")
	var names []any
	for _, rm := range md.ResourceMetrics().All() {
		names = append(names, rm.Resource().Attributes().AsRaw()["service.name"])
	}
	assert.ElementsMatch(t, []any{"1", "2", "3", "4"}, names, "a removed resource was written before")
}

// A resource beyond the limit is kept while its metrics are rejected.
func TestADeliveredResourceIsEvicted(t *testing.T) {
	cfg := createDefaultConfig().(*Config)
	cfg.MaxResources = 1
	c, err := newConnector(cfg, connectortest.NewNopSettings(metadata.Type))
	require.NoError(t, err)
	refusing, sink := true, new(consumertest.MetricsSink)
	c.Metrics.Next, err = consumer.NewMetrics(func(ctx context.Context, md pmetric.Metrics) error {
		if refusing {
			return errors.New("not now")
		}
		return sink.ConsumeMetrics(ctx, md)
	})
	require.NoError(t, err)
	for i := range 2 {
		c.book.take(payload(t, attrs{"service.name": fmt.Sprint(i)}, in{
			name: "decode", trace: 9, id: byte(i + 1), start: 1, end: 2, a: gpu("decode", 0.001, 1, nil),
			links: []linked{{1, 1, nil, 0}},
		}), clock)
	}
	c.meters.record(c.book.due(clock, true), clock)
	c.flush(t.Context(), false)
	assert.Len(t, c.meters.of, 2)
	refusing = false
	c.flush(t.Context(), false)
	assert.Len(t, c.meters.of, 1)
	require.Len(t, sink.AllMetrics(), 2, "points of 0, and the others")
	assert.Equal(t, 2, sink.AllMetrics()[1].ResourceMetrics().Len())
	require.NoError(t, c.Shutdown(t.Context()))
}

func TestConfig(t *testing.T) {
	cfg, err := configtest.Load[Config](t, "gpu_requests/full", createDefaultConfig)
	require.NoError(t, err)
	assert.Equal(t, &Config{
		Settle: 5 * time.Second, Idle: time.Minute, MaxRequests: 500, MaxSpans: 2000, Dimensions: []string{"tenant"}, FlushInterval: 5 * time.Second,
		Temporality: TemporalityDelta, Histogram: HistogramConfig{Exponential: configoptional.Some(ExponentialConfig{MaxSize: 80})},
		CardinalityLimit: 100, MaxResources: 10, InstanceID: "a",
	}, cfg)
	_, err = configtest.Load[Config](t, "gpu_requests/broken", createDefaultConfig)
	require.EqualError(t, err,
		"`settle` must be positive, found 0s\n`idle` must be positive, found -1s\n`flush_interval` must be positive, found 0s\n"+
			"`max_requests` must be positive, found 0\n`max_spans` must be positive, found -1\n`cardinality_limit` must be positive, found 0\n"+
			"`max_resources` must be positive, found 0\n`temporality` must be cumulative or delta, found \"both\"\n`histogram::exponential::max_size` must be at least 2, found 1")
}

// A sender with names of 100 kB must not make each usage record 100 kB large.
func TestNamesOfUsageRecordsAreBounded(t *testing.T) {
	long := func(s string) string { return strings.Repeat(s, 100_000) }
	metrics, traces := &consumertest.MetricsSink{}, &consumertest.TracesSink{}
	x := start(t, nil, metrics, traces)
	x.take(t, payload(t, service,
		in{name: "POST", trace: 1, id: 1, start: 0, end: 60, kind: server, a: attrs{"gen_ai.request.model": long("m")}},
		in{
			name: long("n"), trace: 9, id: 1, start: 10, end: 14,
			a:     gpu(long("c"), 0.004, 2, attrs{"gpu.operation.item.type": long("i")}),
			links: []linked{{1, 1, items(100), 0}},
		},
	))
	x.stop(t)
	bounded := func(m pcommon.Map) {
		for k, v := range m.All() {
			assert.LessOrEqual(t, len(v.AsString()), 256+len("…"), k)
		}
	}
	points, spans := 0, 0
	for _, md := range metrics.AllMetrics() {
		for _, m := range md.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().All() {
			for _, p := range m.Histogram().DataPoints().All() {
				points++
				bounded(p.Attributes())
			}
		}
	}
	for _, td := range traces.AllTraces() {
		for _, s := range td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().All() {
			spans++
			bounded(s.Attributes())
			assert.LessOrEqual(t, len(s.Name()), 256+len("…"))
		}
	}
	assert.Positive(t, points)
	assert.Equal(t, 2, spans, "the operation and the queue")
}
