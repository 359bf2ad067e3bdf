// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/connector/connectortest"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/connector/gpumetricsconnector"
	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
)

// Random work on a physical GPU, on two MIG instances of another one and on both physical GPUs, in
// payloads some of which are late or sent twice: the energy of spans and of the metrics of
// gpu_metrics, plus the unattributed energy, equals the devices' counters.
func TestEnergyOfMIGLateAndRepeatedSpansIsConservedInTracesAndMetrics(t *testing.T) {
	const gpu1 = "GPU-00000000-0000-4000-8000-000000000001"
	ids := []string{gpu0, "MIG-00000000-0000-4000-8000-00000000000a", "MIG-00000000-0000-4000-8000-00000000000b"}
	for seed := range uint64(10) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 7919))
			zero := time.Now()
			r := newRig(t)
			metrics := new(consumertest.MetricsSink)
			f := gpumetricsconnector.NewFactory()
			count, err := f.CreateTracesToMetrics(t.Context(), connectortest.NewNopSettings(f.Type()),
				f.CreateDefaultConfig(), metrics)
			require.NoError(t, err)
			require.NoError(t, count.Start(t.Context(), componenttest.NewNopHost()))
			next, err := consumer.NewTraces(func(ctx context.Context, td ptrace.Traces) error {
				if err := count.ConsumeTraces(ctx, td); err != nil {
					return err
				}
				return r.sink.ConsumeTraces(ctx, td)
			})
			require.NoError(t, err)
			r.joinTo(next, func(c *Config) {
				c.Settle, c.MaxWait, c.EnergyOnMIG = 2*time.Second, 4*time.Second, true
				c.Attributes = spanfacts.Lean
			})

			// The counters follow arbitrary curves; read is the last value of each.
			var mu sync.Mutex
			read := map[string]map[int64]float64{}
			for n, id := range []string{gpu0, gpu1} {
				device := nominal
				device.ID = id
				joules, at := 0.0, 0.0
				values := map[int64]float64{}
				read[devicesamples.NormalizeID(id)] = values
				r.run(r.device(device), func(now time.Time, s *devicesamples.Sample) {
					mu.Lock()
					defer mu.Unlock()
					x := now.Sub(zero).Seconds()
					joules += (x - at) * (100 + 200*float64(n) + 300*math.Abs(math.Sin(3*x)))
					at = x
					s.Set(devicesamples.Energy, joules)
					values[now.UnixNano()] = joules
				})
			}
			for _, id := range ids[1:] {
				r.run(r.device(devicesamples.Device{
					ID: id, Parent: gpu1, Interval: 100 * time.Millisecond, Source: "simulated",
				}), func(_ time.Time, s *devicesamples.Sample) { s.Set(devicesamples.Utilization, 0.5) })
			}

			time.Sleep(3100 * time.Millisecond)
			id, repeated := uint64(0), 0
			for range 15 {
				time.Sleep(time.Second)
				now := time.Now()
				for p := range 3 {
					td := newTraces(fmt.Sprint("p", p))
					for range 1 + rnd.IntN(4) {
						id++
						root, end := id, now.Add(-time.Duration(rnd.IntN(1000))*time.Millisecond)
						length := time.Duration(1+rnd.IntN(1500)) * time.Millisecond
						on := ids[rnd.IntN(len(ids))]
						for range rnd.IntN(3) {
							id++
							from := end.Add(-time.Duration(rnd.Int64N(int64(length))))
							s := td.gpu(id, root, from, from.Add(time.Duration(rnd.Int64N(int64(end.Sub(from)))+1)))
							s.Attributes().PutStr("hw.id", on)
						}
						s := td.gpu(root, 0, end.Add(-length), end)
						switch rnd.IntN(5) {
						case 0: // a request on both physical GPUs
							s.Attributes().PutStr("gpu.operation.type", "request")
							s.Attributes().PutStr("hw.id", gpu0+","+gpu1)
						default:
							s.Attributes().PutStr("hw.id", on)
						}
					}
					again := ptrace.NewTraces()
					td.CopyTo(again)
					late, twice := rnd.IntN(2)*rnd.IntN(3500), rnd.IntN(3) == 0
					r.wg.Go(func() {
						time.Sleep(time.Duration(late) * time.Millisecond)
						assert.NoError(t, r.proc.ConsumeTraces(context.Background(), td.Traces))
					})
					if twice {
						repeated += again.SpanCount()
						after := late + 1 + rnd.IntN(5000)
						r.wg.Go(func() {
							time.Sleep(time.Duration(after) * time.Millisecond)
							assert.NoError(t, r.proc.ConsumeTraces(context.Background(), again))
						})
					}
				}
			}
			time.Sleep(12 * time.Second)
			synctest.Wait()
			time.Sleep(10 * time.Millisecond) // past the reporting tick

			require.Len(t, r.spans(), int(id))
			require.Equal(t, int(id), r.sink.SpanCount(), "each once")
			require.EqualValues(t, repeated, r.count("repeated_spans", ""))
			onSpans := 0.0
			for _, s := range r.spans() {
				if own, ok := s.Attributes().Get("gpu.self_energy"); ok {
					onSpans += own.Double()
				} else if all, ok := s.Attributes().Get("gpu.energy"); ok {
					onSpans += all.Double()
				}
			}
			taken := r.energy("attributed") + r.energy("late")
			assert.InEpsilon(t, taken, onSpans+r.withheld(), 1e-9, "spans, seed %d", seed)
			assert.Zero(t, r.energy("uncovered"))

			counted := 0.0
			mu.Lock()
			for id, b := range r.proc.(*joinProcessor).engine.boards {
				settled, ok := b.dev.Settled()
				require.True(t, ok, id)
				value, ok := read[id][settled]
				require.True(t, ok, "%s is settled at %d, where its counter was not read", id, settled)
				counted += value
			}
			mu.Unlock()
			assert.InEpsilon(t, counted, r.energy("attributed")+r.energy("unattributed")+r.energy("unseen"), 1e-9,
				"devices, seed %d", seed)

			r.close()
			require.NoError(t, count.Shutdown(context.Background()))
			assert.InEpsilon(t, onSpans, lastSum(metrics.AllMetrics(), "gpu.operation.energy"), 1e-9, "metrics, seed %d", seed)
		})
	}
}

// lastSum returns the total of the last points of all series of a cumulative sum.
func lastSum(all []pmetric.Metrics, name string) (sum float64) {
	last := map[string]float64{}
	for _, md := range all {
		for _, rm := range md.ResourceMetrics().All() {
			for _, sm := range rm.ScopeMetrics().All() {
				for _, m := range sm.Metrics().All() {
					if m.Name() != name {
						continue
					}
					for _, p := range m.Sum().DataPoints().All() {
						last[key(rm.Resource().Attributes())+key(p.Attributes())] = p.DoubleValue()
					}
				}
			}
		}
	}
	for _, v := range last {
		sum += v
	}
	return sum
}

func key(m pcommon.Map) string { return fmt.Sprint(m.AsRaw()) }
