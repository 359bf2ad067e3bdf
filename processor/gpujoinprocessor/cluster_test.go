// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"context"
	"fmt"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/exporter/exportertest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/otelgpu/otelgpu/config"
	"github.com/otelgpu/otelgpu/exporter/gpusamplesexporter"
	"github.com/otelgpu/otelgpu/semconv"
)

// TestPodsOfAClusterAreJoined joins spans of pods that name no device, with the settings of the
// pipeline kubernetes/dcgm-exporter: the exporter collects every 30 s, its default, and states the
// pods in labels. Each of two boards has a pod and a steady power.
func TestPodsOfAClusterAreJoined(t *testing.T) {
	const collect = 30 * time.Second
	watts := map[string]float64{"a": 100, "b": 400}
	setting := func(name string) time.Duration {
		text, err := config.YAML("kubernetes/dcgm-exporter")
		require.NoError(t, err)
		m := regexp.MustCompile(`\$\{env:` + name + `:-(\w+)\}`).FindStringSubmatch(text)
		require.NotNil(t, m, name)
		d, err := time.ParseDuration(m[1])
		require.NoError(t, err)
		return d
	}
	for _, scrape := range []time.Duration{time.Second, setting("OTELGPU_SCRAPE_INTERVAL"), 15 * time.Second, 30 * time.Second, time.Minute} {
		t.Run(scrape.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t).join(func(c *Config) {
					c.Settle, c.MaxWait = max(setting("OTELGPU_SETTLE"), collect+scrape), max(setting("OTELGPU_MAX_WAIT"), 2*(collect+scrape))
				})
				f := gpusamplesexporter.NewFactory()
				e, err := f.CreateMetrics(context.Background(), exportertest.NewNopSettings(f.Type()), f.CreateDefaultConfig())
				require.NoError(t, err)
				require.NoError(t, e.Start(context.Background(), r.host))
				begin := time.Now()
				id, sent, powered := uint64(0), map[uint64]string{}, map[uint64]bool{}
				// The first scrape is one interval after the start. At 6 minutes a pod replaces
				// another one, of which the exporter's labels tell when it collects next.
				const replaced = 6 * time.Minute
				for time.Since(begin) < 12*time.Minute {
					now := time.Now()
					pods := map[string]string{"a": "a", "b": "b"}
					collected := now.Sub(begin).Truncate(collect)
					if collected > replaced {
						pods["a"] = "c"
					}
					if since := now.Sub(begin); since >= scrape && since%scrape == 0 {
						require.NoError(t, e.ConsumeMetrics(context.Background(), clusterScrape(collected, watts, pods)))
					}
					if now.Sub(begin) > replaced+time.Second {
						pods["a"] = "c"
					}
					// Spans of 2 s and of 40 s, until the last samples, and of 1 s in the first
					// seconds of pods.
					since := now.Sub(begin)
					lengths := []time.Duration{2 * time.Second, 40 * time.Second}
					first := since%replaced < 10*time.Second && since%replaced > time.Second
					if first {
						lengths = []time.Duration{time.Second}
					}
					if since < 8*time.Minute && (first || since%(20*time.Second) == 0) {
						for device, pod := range pods {
							for _, length := range lengths {
								id++
								sent[id], powered[id] = device, since > 3*time.Minute && !first
								td := newTraces("server-" + pod)
								td.rs.Resource().Attributes().PutStr("k8s.namespace.name", "ml")
								td.rs.Resource().Attributes().PutStr("k8s.pod.name", pod)
								td.host(id, 0, now.Add(-length), now).Attributes().PutStr("gpu.operation.type", "section")
								r.consume(td.Traces)
							}
						}
					}
					time.Sleep(time.Second)
				}
				spans := r.spans()
				require.Greater(t, len(sent), 30)
				for id, device := range sent {
					attrs := spans[id].Attributes().AsRaw()
					assert.Equal(t, "GPU-"+device, attrs[string(semconv.HWIDKey)], "span %d", id)
					if powered[id] {
						assert.InDelta(t, watts[device], attrs[string(semconv.GPUPowerKey)], 1e-9, "span %d on %s", id, device)
					}
				}
				require.NoError(t, e.Shutdown(context.Background()))
				r.close()
			})
		})
	}
}

// clusterScrape returns a scrape of an exporter that last collected at a time since its start, when
// each device had one pod.
func clusterScrape(collected time.Duration, watts map[string]float64, pods map[string]string) pmetric.Metrics {
	md := pmetric.NewMetrics()
	ms := md.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics()
	power, energy := ms.AppendEmpty(), ms.AppendEmpty()
	power.SetName("DCGM_FI_DEV_POWER_USAGE")
	energy.SetName("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION")
	power.SetEmptyGauge()
	energy.SetEmptySum().SetIsMonotonic(true)
	energy.Sum().SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
	for device, w := range watts {
		for _, p := range []pmetric.NumberDataPoint{power.Gauge().DataPoints().AppendEmpty(), energy.Sum().DataPoints().AppendEmpty()} {
			p.SetTimestamp(pcommon.NewTimestampFromTime(time.Now()))
			for k, v := range map[string]string{
				"gpu": fmt.Sprint(device[0] - 'a'), "UUID": "GPU-" + device, "device": fmt.Sprint("nvidia", device[0]-'a'),
				"modelName": "NVIDIA H100 80GB HBM3", "Hostname": "n1", "namespace": "ml", "pod": pods[device], "container": "server",
			} {
				p.Attributes().PutStr(k, v)
			}
		}
		power.Gauge().DataPoints().At(power.Gauge().DataPoints().Len() - 1).SetDoubleValue(w)
		energy.Sum().DataPoints().At(energy.Sum().DataPoints().Len() - 1).SetDoubleValue(1000 * w * collected.Seconds())
	}
	return md
}
