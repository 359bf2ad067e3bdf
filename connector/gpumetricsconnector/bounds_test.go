// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetricsconnector

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"go.opentelemetry.io/collector/pdata/pmetric"
)

func TestTooManySeriesOverflow(t *testing.T) {
	a := newTest(t, func(c *Config) { c.CardinalityLimit = 10 })
	var spans []span
	for i := range 100 {
		spans = append(spans, span{fmt.Sprintf("kernel %d", i), 0, 10, attrs{"gpu.operation.type": "kernel", "gpu.timing.source": "cupti"}, 1, 0, ""})
	}
	a.take(batch(t, nil, spans...), clock)
	a.take(batch(t, nil, spans...), clock)
	md := output(t, a, clock)
	got := values(t, md)
	counts, over := 0, int64(0)
	for k, v := range got {
		if len(k) > 19 && k[:19] == "gpu.operation.count" {
			counts++
			if k == "gpu.operation.count[otel.metric.overflow:true]" {
				over = v.(int64)
			}
		}
	}
	assert.Equal(t, 10, counts)
	assert.EqualValues(t, 2*91, over)
	assert.EqualValues(t, 2*91, a.stats.overflow)
	assert.LessOrEqual(t, a.resources[""].bundles.len(), 40)
}

func TestTooManyResourcesShareOne(t *testing.T) {
	a := newTest(t, func(c *Config) { c.MaxResources = 3 })
	for i := range 10 {
		a.take(batch(t, attrs{"service.instance.id": fmt.Sprint(i)}, span{"p", 0, 10, prefill, 1, 0, ""}), clock)
	}
	md := output(t, a, clock)
	assert.Equal(t, 4, md.ResourceMetrics().Len())
	var total int64
	for _, rm := range md.ResourceMetrics().All() {
		total += rm.ScopeMetrics().At(0).Metrics().At(0).Sum().DataPoints().At(0).IntValue()
	}
	assert.EqualValues(t, 10, total, "none is lost")
}

func TestAllSeriesTogetherAreBounded(t *testing.T) {
	a := newTest(t, func(c *Config) { c.MaxSeries = 50; c.Expiry = time.Minute })
	in := attrs{"gpu.operation.type": "section"}
	for i := range 1000 {
		a.take(batch(t, attrs{"n": i % 3}, span{fmt.Sprint("p", i), 0, 10, in, 1, 0, ""}), clock)
	}
	assert.LessOrEqual(t, a.series, 50+3*2, "and the overflow of each resource and metric")
	assert.LessOrEqual(t, a.bundles, 50)
	var total int64
	for k, v := range values(t, onlyCounts(output(t, a, clock))) {
		assert.NotEmpty(t, k)
		total += v.(int64)
	}
	assert.EqualValues(t, 1000, total, "none is lost")
	output(t, a, clock+int64(2*time.Minute))
	assert.Zero(t, a.series)
	assert.Zero(t, a.bundles)
}

// onlyCounts leaves gpu.operation.count, the resource as an attribute so that keys differ.
func onlyCounts(md pmetric.Metrics) pmetric.Metrics {
	for i, rm := range md.ResourceMetrics().All() {
		rm.ScopeMetrics().At(0).Metrics().RemoveIf(func(m pmetric.Metric) bool { return m.Name() != "gpu.operation.count" })
		for _, p := range rm.ScopeMetrics().At(0).Metrics().At(0).Sum().DataPoints().All() {
			p.Attributes().PutInt("resource", int64(i))
		}
	}
	return md
}

func TestSilentSeriesExpireAndBeginAnew(t *testing.T) {
	a := newTest(t, func(c *Config) { c.Expiry = time.Minute })
	p := batch(t, nil, span{"p", 0, 2000, prefill, 1, 0, ""})
	q := batch(t, nil, span{"q", 0, 2000, prefill, 1, 0, ""})
	a.take(p, clock)
	a.take(q, clock)
	output(t, a, clock)
	a.take(q, clock+int64(50*time.Second))
	output(t, a, clock+int64(61*time.Second)) // drops p after writing it a last time
	for k := range values(t, output(t, a, clock+int64(62*time.Second))) {
		assert.Contains(t, k, "name:q ")
	}
	a.take(p, clock+int64(63*time.Second))
	got := values(t, output(t, a, clock+int64(63*time.Second)))
	assert.Equal(t, int64(1), got["gpu.operation.count[gpu.operation.category:prefill gpu.operation.name:p gpu.operation.type:section gpu.timing.status:ok]"])
	output(t, a, clock+int64(10*time.Minute))
	assert.Empty(t, a.resources)
}
