// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/exporter/exportertest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/otelgpu/otelgpu/exporter/gpusamplesexporter"
	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/semconv"
)

// TestInstancesBehindDCGMExporterShareTheirBoardsEnergy joins a span of 4 s on each instance of a
// board that draws 300 W, of which dcgm-exporter writes the instances only, each with the board's
// power and energy: 1,200 J in all.
func TestInstancesBehindDCGMExporterShareTheirBoardsEnergy(t *testing.T) {
	const board = "GPU-11111111-0000-4000-8000-000000000001"
	for n := 1; n <= 7; n++ {
		for _, named := range []bool{false, true} {
			for _, on := range []bool{false, true} {
				t.Run(fmt.Sprintf("%d instances, configured %v, energy_on_mig %v", n, named, on), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						r := newRig(t).join(func(c *Config) { c.EnergyOnMIG = on })
						f := gpusamplesexporter.NewFactory()
						cfg := f.CreateDefaultConfig().(*gpusamplesexporter.Config)
						cfg.Instances = map[string]string{}
						ids := make([]string, n)
						for i := range ids {
							ids[i] = fmt.Sprintf("MIG-%s/%d/0", board, i+1)
							if named {
								ids[i] = fmt.Sprintf("MIG-aaaaaaaa-0000-4000-8000-%012d", i)
								cfg.Instances[fmt.Sprintf("%s/%d", board, i+1)] = ids[i]
							}
						}
						e, err := f.CreateMetrics(context.Background(), exportertest.NewNopSettings(f.Type()), cfg)
						require.NoError(t, err)
						require.NoError(t, e.Start(context.Background(), r.host))
						begin := time.Now()
						var from time.Time
						for i := range 30 {
							require.NoError(t, e.ConsumeMetrics(context.Background(), instancesOf(board, n, 300*time.Since(begin).Seconds())))
							if i == 3 {
								from = time.Now()
							}
							if i == 7 {
								for i, id := range ids {
									td := newTraces(fmt.Sprint("p", i))
									x := td.host(uint64(i+1), 0, from, from.Add(4*time.Second))
									x.Attributes().PutStr("gpu.operation.type", "section")
									x.Attributes().PutStr("hw.id", id)
									r.consume(td.Traces)
								}
							}
							time.Sleep(time.Second)
						}
						sum, with := 0.0, 0
						for i := range ids {
							attrs := r.spans()[uint64(i+1)].Attributes().AsRaw()
							assert.InDelta(t, 300, attrs[string(semconv.GPUPowerKey)], 1e-9, "of the board")
							if joules, ok := attrs[string(semconv.GPUEnergyKey)].(float64); ok {
								sum += joules
								with++
							}
						}
						if on {
							assert.Equal(t, n, with)
							assert.InDelta(t, 1200, sum, 1e-6)
						} else {
							assert.Zero(t, with)
						}
						require.NoError(t, e.Shutdown(context.Background()))
						r.close()
					})
				})
			}
		}
	}
}

// instancesOf returns a scrape of dcgm-exporter.
func instancesOf(board string, n int, joules float64) pmetric.Metrics {
	md := pmetric.NewMetrics()
	ms := md.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics()
	for name, v := range map[string]float64{
		"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": 1000 * joules, "DCGM_FI_DEV_POWER_USAGE": 300, "DCGM_FI_PROF_GR_ENGINE_ACTIVE": 0.5,
	} {
		m := ms.AppendEmpty()
		m.SetName(name)
		for i := range n {
			var p pmetric.NumberDataPoint
			if name == "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION" {
				if i == 0 {
					m.SetEmptySum().SetIsMonotonic(true)
					m.Sum().SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
				}
				p = m.Sum().DataPoints().AppendEmpty()
			} else {
				if i == 0 {
					m.SetEmptyGauge()
				}
				p = m.Gauge().DataPoints().AppendEmpty()
			}
			p.SetTimestamp(pcommon.NewTimestampFromTime(time.Now()))
			p.SetDoubleValue(v)
			for k, v := range map[string]string{
				"gpu": "0", "UUID": board, "device": "nvidia0", "modelName": "NVIDIA A100-SXM4-80GB", "GPU_I_PROFILE": "1g.10gb",
				"GPU_I_ID": fmt.Sprint(i + 1), "Hostname": "n1",
			} {
				p.Attributes().PutStr(k, v)
			}
		}
	}
	return md
}

// TestAnInstanceWithoutItsBoardHasNoEnergy joins a span on an instance that repeats the energy of a
// board that no source describes.
func TestAnInstanceWithoutItsBoardHasNoEnergy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).join(func(c *Config) { c.EnergyOnMIG = true })
		w := r.device(devicesamples.Device{ID: "MIG-1", Parent: "GPU-1", Interval: time.Second, Source: "dcgm"})
		begin := time.Now()
		var from time.Time
		for i := range 30 {
			s := devicesamples.Sample{Time: time.Now().UnixNano()}
			s.Set(devicesamples.Energy, 300*time.Since(begin).Seconds())
			s.Set(devicesamples.Power, 300)
			s.Set(devicesamples.SMUtilization, 0.5)
			w.Write([]devicesamples.Sample{s})
			if i == 3 {
				from = time.Now()
			}
			if i == 7 {
				td := newTraces("p")
				x := td.host(1, 0, from, from.Add(4*time.Second))
				x.Attributes().PutStr("gpu.operation.type", "section")
				x.Attributes().PutStr("hw.id", "MIG-1")
				r.consume(td.Traces)
			}
			time.Sleep(time.Second)
		}
		attrs := r.spans()[1].Attributes().AsRaw()
		assert.NotContains(t, attrs, string(semconv.GPUEnergyKey))
		assert.InDelta(t, 0.5, attrs[string(semconv.GPUSMUtilizationKey)], 1e-9)
		r.close()
	})
}
