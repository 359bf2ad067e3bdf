// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpureceiver

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/exporter/exportertest"
	"go.opentelemetry.io/collector/extension/extensiontest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/processor/processortest"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/otelgpu/otelgpu/exporter/gpusamplesexporter"
	"github.com/otelgpu/otelgpu/extension/gpusamplesextension"
	"github.com/otelgpu/otelgpu/processor/gpujoinprocessor"
)

type gatewayHost map[component.ID]component.Component

func (h gatewayHost) GetExtensions() map[component.ID]component.Component { return h }

// TestSpansOfAGatewayHaveNothingOfANeighbor sends the metrics of an agent to the gpu_samples
// exporter of a gateway, whose gpu_join then divides a GPU: process 11 runs and has a span for 20
// of
// 30 s, 12 runs at other times without spans, and draws less power. Idle power is divided as the
// active one, so the truth of a span is the sum over its seconds of the process's part of the
// device.
func TestSpansOfAGatewayHaveNothingOfANeighbor(t *testing.T) {
	for _, c := range []struct {
		interval int // s, between outputs of the agent
		settle   int // s
		least    float64
	}{{1, 6, 0.98}, {10, 25, 0.8}, {10, 15, 0.8}} {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(time.Until(t0))
			interval := c.interval
			id := component.MustNewID("gpu_samples")
			f := gpusamplesextension.NewFactory()
			samples, err := f.Create(t.Context(), extensiontest.NewNopSettings(f.Type()), f.CreateDefaultConfig())
			require.NoError(t, err)
			host := gatewayHost{id: samples}
			e := gpusamplesexporter.NewFactory()
			devices, err := e.CreateMetrics(t.Context(), exportertest.NewNopSettings(e.Type()), e.CreateDefaultConfig())
			require.NoError(t, err)
			j := gpujoinprocessor.NewFactory()
			cfg := j.CreateDefaultConfig().(*gpujoinprocessor.Config)
			cfg.Samples = &id
			cfg.Settle = time.Duration(c.settle) * time.Second
			cfg.MaxWait = 2 * cfg.Settle
			tel, sink := componenttest.NewTelemetry(), &consumertest.TracesSink{}
			set := processortest.NewNopSettings(j.Type())
			set.TelemetrySettings = tel.NewTelemetrySettings()
			join, err := j.CreateTraces(t.Context(), set, cfg, sink)
			require.NoError(t, err)
			for _, x := range []component.Component{samples, devices, join} {
				require.NoError(t, x.Start(t.Context(), host))
			}

			rig := newProcessRig(t)
			rig.nextMetrics = devices
			random := rand.New(rand.NewPCG(uint64(interval), 1))
			const seconds = 600
			truth, sum := map[uint64]float64{}, 0.0
			for second := range seconds {
				var a, b float64
				if second%30 >= 10 {
					a = float64(20+random.IntN(40)) / 100
				}
				if second/7%3 > 0 {
					b = float64(random.IntN(40)) / 100
				}
				watts := 60 + 300*a + 200*b
				percents := map[int64]uint32{}
				for pid, share := range map[int64]float64{11: a, 12: b} {
					if share > 0 {
						percents[pid] = uint32(math.Round(100 * share))
					}
				}
				time.Sleep(time.Second)
				rig.run(1, watts, percents, 11, 12)
				if a > 0 {
					sum += watts * 300 * a / (300*a + 200*b)
				}
				if (second+1)%interval == 0 {
					rig.emitMetrics(t.Context(), rig.w)
				}
				if second%30 == 29 {
					span := uint64(second)
					truth[span], sum = sum, 0
					td := ptrace.NewTraces()
					rs := td.ResourceSpans().AppendEmpty()
					rs.Resource().Attributes().PutStr("container.id", containerA)
					s := rs.ScopeSpans().AppendEmpty().Spans().AppendEmpty()
					s.SetTraceID(pcommon.TraceID{1, byte(second)})
					var spanID [8]byte
					binary.BigEndian.PutUint64(spanID[:], span)
					s.SetSpanID(spanID)
					s.SetStartTimestamp(pcommon.NewTimestampFromTime(time.Now().Add(-20 * time.Second)))
					s.SetEndTimestamp(pcommon.NewTimestampFromTime(time.Now()))
					s.Attributes().PutStr("gpu.operation.type", "section")
					s.Attributes().PutStr("hw.id", "GPU-1")
					require.NoError(t, join.ConsumeTraces(t.Context(), td))
				}
			}
			for second := range 60 {
				time.Sleep(time.Second)
				rig.run(1, 60, nil, 11, 12)
				if (second+1)%interval == 0 {
					rig.emitMetrics(t.Context(), rig.w)
				}
			}

			all, inside, got, want := 0, 0, 0.0, 0.0
			for _, td := range sink.AllTraces() {
				s := td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0)
				id := s.SpanID()
				second := binary.BigEndian.Uint64(id[:])
				v, ok := s.Attributes().Get("gpu.energy")
				if !ok {
					continue // shares and the counter contradict each other
				}
				bound := 0.05 * v.Double()
				if e, ok := s.Attributes().Get("gpu.energy_error"); ok {
					bound = e.Double()
				}
				if all++; math.Abs(v.Double()-truth[second]) <= bound {
					inside++
				}
				got, want = got+v.Double(), want+truth[second]
			}
			m, err := tel.GetMetric("otelcol_processor_gpu_join_energy")
			require.NoError(t, err)
			energy, parts := map[string]float64{}, 0.0
			for _, p := range m.Data.(metricdata.Sum[float64]).DataPoints {
				state, _ := p.Attributes.Value("state")
				energy[state.AsString()] += p.Value
				parts += p.Value
			}
			t.Logf("every %d s: %d of %d spans inside, %.0f of %.0f J; %v", interval, inside, all, got, want, energy)
			assert.GreaterOrEqual(t, all, 18)
			assert.GreaterOrEqual(t, float64(inside), 0.95*float64(all))
			assert.LessOrEqual(t, got, 1.02*want, "nothing of the neighbor, which has %.0f J", energy["others"])
			assert.GreaterOrEqual(t, got, c.least*want)
			assert.Greater(t, energy["others"], 20_000.)
			assert.LessOrEqual(t, got, (1+1e-9)*(energy["attributed"]+energy["late"]))
			assert.InEpsilon(t, rig.joules-60*cfg.Settle.Seconds(), parts-energy["late"], 0.005, "what was idle lately is not settled")
			for _, x := range []component.Component{join, devices, samples} {
				require.NoError(t, x.Shutdown(t.Context()))
			}
			require.NoError(t, tel.Shutdown(t.Context()))
		})
	}
}
