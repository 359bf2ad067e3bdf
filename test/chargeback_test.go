// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/otelgpu/otelgpu/test/internal/integration"
)

// sharedPods pushes dcgm-exporter's series of five GPUs, from 20 minutes before now to 8 minutes after
// it, and evaluates the rules of chargeback while the first GPU is idle.
func sharedPods(t *testing.T, store *prometheusProgram, now time.Time) {
	t.Helper()
	const exporter = "nvidia-dcgm-exporter-x"
	type pod struct { // or a container or replica of it; without labels, the device
		labels      map[string]string
		utilization float64 // of the busy device, in percent; negative: no series
	}
	named := func(name string) map[string]string {
		return map[string]string{"namespace": "ml", "pod": name, "container": "main"}
	}
	replica := named("b")
	replica["vgpu"] = "1"
	gpus := []struct {
		uuid       string
		idle, busy float64 // W; 0: never idle
		pods       []pod
	}{
		{"shared", 60, 260, []pod{{nil, 85}, {named("a"), 60}, {named("b"), 20}, {replica, 20}}},
		{"alone", 0, 100, []pod{{map[string]string{
			"exported_namespace": "ml", "exported_pod": "c", "namespace": "gpu-operator", "pod": exporter,
		}, 40}}},
		{"free", 0, 50, []pod{{nil, 0}}},
		{"hidden", 0, 120, []pod{{map[string]string{"namespace": "gpu-operator", "pod": exporter}, 50}, {named("d"), 20}}},
		{"divided", 0, 70, []pod{{map[string]string{"namespace": "ml", "pod": "e", "GPU_I_ID": "1"}, -1}}},
	}
	const begin, work, end, step = -20 * time.Minute, -10 * time.Minute, 8 * time.Minute, 15 * time.Second
	md := pmetric.NewMetrics()
	ms := md.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics()
	for at := begin; at <= end; at += step {
		point := func(name, uuid string, labels map[string]string, v float64) {
			m := ms.AppendEmpty()
			m.SetName(name)
			p := m.SetEmptyGauge().DataPoints().AppendEmpty()
			p.SetTimestamp(pcommon.NewTimestampFromTime(now.Add(at)))
			p.SetDoubleValue(v)
			p.Attributes().PutStr("UUID", uuid)
			for k, v := range labels {
				p.Attributes().PutStr(k, v)
			}
		}
		for _, g := range gpus {
			idle, busy := 0*time.Second, at-begin
			if g.idle > 0 {
				idle, busy = min(at, work)-begin, max(at-work, 0)
			}
			for _, x := range g.pods {
				point("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", g.uuid, x.labels, 1000*(g.idle*idle.Seconds()+g.busy*busy.Seconds()))
				switch {
				case x.utilization < 0:
				case busy == 0:
					point("DCGM_FI_DEV_GPU_UTIL", g.uuid, x.labels, 0)
				default:
					point("DCGM_FI_DEV_GPU_UTIL", g.uuid, x.labels, x.utilization)
				}
			}
		}
	}
	store.push(t, md)
	store.rules(t, "chargeback.yaml", now.Add(work))
}

// The power of GPUs that dcgm-exporter reads is divided among pods, idle power and a rest.
func TestIntegrationPodsOfDCGMExporterAreCharged(t *testing.T) {
	integration.Need(t)
	t.Parallel()
	store := runPrometheus(t, buildPrometheus(t), "../deploy/prometheus/prometheus.yml")
	now := time.Now().Truncate(time.Minute)
	sharedPods(t, store, now)
	for _, r := range store.rules(t, "chargeback.yaml", now) {
		require.Equal(t, strings.HasPrefix(r.Rule, "otelgpu:dcgm_"), r.Results > 0, r.Rule)
	}
	for query, want := range map[string]map[string]float64{
		// 200 W beyond the idle power, of which the replicas of b count once; all of a GPU that never
		// was idle; 20 of 50 % of 120 W.
		"otelgpu:dcgm_pod_power_watts:rate5m":          {"a": 150, "b": 50, "c": 100, "d": 48},
		"otelgpu:dcgm_idle_power_watts:rate5m":         {"": 60 + 50},
		"otelgpu:dcgm_unattributed_power_watts:rate5m": {"": 72 + 70}, // the instance's, too
	} {
		var got []result
		store.get("/api/v1/query?time="+unixSeconds(now)+"&query="+url.QueryEscape(query), &got)
		require.Len(t, got, len(want), query)
		for _, x := range got {
			name := x.Labels["k8s_pod_name"]
			require.InEpsilon(t, want[name], x.Samples[0][1], 1e-6, "%s %s", query, name)
			require.Equal(t, name != "", x.Labels["k8s_namespace_name"] == "ml", query)
		}
	}
}
