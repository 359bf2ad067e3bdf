// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/otelgpu/otelgpu/test/internal/integration"
)

// twoVersions pushes what gpu_metrics writes for two versions of a service in the two hours before
// now, one after the other, and evaluates the rules of versions every ten minutes. A run of the
// first takes 20 ms and 5 J for 32 tokens; of the second cost times as much per token, for batch
// times as many tokens.
func twoVersions(t *testing.T, store *prometheusProgram, now time.Time, cost, batch float64) {
	t.Helper()
	const minutes, rollout, runs = 120, 75, 100 // runs per minute
	for m := range minutes {
		at := now.Add(time.Duration(m-minutes) * time.Minute)
		version, since, per, items := 1, 0, 1.0, 32.0
		if m >= rollout {
			version, since, per, items = 2, rollout, cost*batch, 32*batch
		}
		total := float64(runs * (m - since))
		md := pmetric.NewMetrics()
		rm := md.ResourceMetrics().AppendEmpty()
		for k, v := range map[string]string{
			"service.name": "llm", "service.version": fmt.Sprint(version), "service.instance.id": fmt.Sprint("pod-", version),
		} {
			rm.Resource().Attributes().PutStr(k, v)
		}
		ms := rm.ScopeMetrics().AppendEmpty().Metrics()
		sum := func(name, unit string, value float64) {
			x := ms.AppendEmpty()
			x.SetName(name)
			x.SetUnit(unit)
			x.SetEmptySum().SetIsMonotonic(true)
			x.Sum().SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
			p := x.Sum().DataPoints().AppendEmpty()
			p.Attributes().PutStr("gpu.operation.name", "decode")
			p.SetTimestamp(pcommon.NewTimestampFromTime(at))
			p.SetDoubleValue(value)
		}
		sum("gpu.operation.items", "{item}", total*items)
		sum("gpu.operation.energy", "J", total*5*per)
		x := ms.AppendEmpty()
		x.SetName("gpu.operation.duration")
		x.SetUnit("s")
		x.SetEmptyHistogram().SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
		p := x.Histogram().DataPoints().AppendEmpty()
		p.Attributes().PutStr("gpu.operation.name", "decode")
		p.SetTimestamp(pcommon.NewTimestampFromTime(at))
		p.SetCount(uint64(total))
		p.SetSum(total * 0.02 * per)
		p.BucketCounts().FromRaw([]uint64{uint64(total)})
		store.push(t, md)
		if m%10 == 9 {
			store.rules(t, "versions.yaml", at)
		}
	}
}

// The rules compare versions per item, so that larger batches are no regression.
func TestIntegrationVersionsThatCostMoreAreReported(t *testing.T) {
	integration.Need(t)
	t.Parallel()
	binary := buildPrometheus(t)
	for _, c := range []struct {
		name        string
		cost, batch float64
		alerts      int
	}{
		{"more", 1.3, 1, 2},
		{"just above the threshold", 1.11, 1, 2},
		{"just below it", 1.09, 1, 0},
		{"larger batches", 1, 2, 0},
		{"less", 0.5, 1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			store := runPrometheus(t, binary, "../deploy/prometheus/prometheus.yml")
			now := time.Now().Truncate(time.Minute)
			twoVersions(t, store, now, c.cost, c.batch)
			at := now.Add(-time.Minute)
			quantities := map[string]float64{}
			for _, r := range store.rules(t, "versions.yaml", at) {
				require.Empty(t, r.Error, r.Rule)
				for _, a := range r.Alerts {
					quantities[a.Labels["quantity"]] = a.Value
					require.Equal(t, "2", a.Labels["service_version"])
					require.Equal(t, "1", a.Labels["baseline"])
				}
			}
			require.Len(t, quantities, c.alerts)
			for quantity, ratio := range quantities {
				require.InEpsilon(t, c.cost, ratio, 1e-6, quantity)
			}
			for quantity, want := range map[string]float64{"time": 0.02 / 32, "energy": 5. / 32} {
				var got []result
				store.get("/api/v1/query?time="+unixSeconds(at)+"&query="+url.QueryEscape(
					`otelgpu:operation_version_cost:mean30m{service_version="2",quantity="`+quantity+`"}`), &got)
				require.Len(t, got, 1)
				require.InEpsilon(t, want*c.cost, got[0].Samples[len(got[0].Samples)-1][1], 1e-6, quantity)
			}
		})
	}
}
