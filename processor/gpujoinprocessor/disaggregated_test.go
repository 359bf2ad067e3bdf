// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/servermetrics"
)

// Each request runs for 2 s on a prefill server and then for 8 s on a decode server, in one trace,
// with one device each. The workers of both may send spans around the engines' spans, such as
// Dynamo's do. Each device's energy while requests run is the energy of the engines' spans, divided
// by the requests of that server, and within 1 % the same energy is counted without traces.
func TestDisaggregatedServersShareNoEnergy(t *testing.T) {
	const requests, length, every, prefill, decode = 8, 60, 5, 2, 8
	for name, workers := range map[string]bool{"engines": false, "engines in workers": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				zero := time.Now()
				at := func(sec int) time.Time { return zero.Add(time.Duration(sec) * time.Second) }
				servers := [2]struct {
					name, device  string
					first, length int
					output        int // tokens of a request
				}{
					{"prefill", gpu0, 5, prefill, 1},
					{"decode", "GPU-22222222-2222-2222-2222-222222222222", 5 + prefill, decode, 50},
				}
				watts := func(server, sec int) float64 { return []float64{300, 100}[server] + float64(sec%7*10) }
				r := newRig(t)
				r.join(func(c *Config) { c.Settle, c.MaxWait = 70*time.Second, 80*time.Second })
				source := r.store.(interface {
					Meters() *servermetrics.Meters
					servermetrics.Source
				})
				var devices [2]devicesamples.DeviceWriter
				var meters [2]*servermetrics.Meter
				for i, s := range servers {
					devices[i] = r.device(devicesamples.Device{ID: s.device, Interval: time.Second})
					meters[i] = source.Meters().New(servermetrics.Identity{Address: s.name, Devices: []string{s.device}})
				}
				running := func(server, sec int) (n float64) {
					for i := range requests {
						from := servers[server].first + every*i
						if from <= sec && sec < from+servers[server].length {
							n++
						}
					}
					return n
				}
				var joules, busy [2]float64
				for now := range length + 90 {
					for i, s := range servers {
						x := devicesamples.Sample{Time: time.Now().UnixNano()}
						x.Set(devicesamples.Energy, joules[i])
						devices[i].Write([]devicesamples.Sample{x})
						if now >= length {
							continue
						}
						joules[i] += watts(i, now)
						if running(i, now) > 0 {
							busy[i] += watts(i, now)
						}
						td := newTraces(s.name)
						td.rs.Resource().Attributes().PutStr("service.name", s.name)
						td.rs.Resource().Attributes().PutStr("hw.id", s.device)
						for id := range requests {
							if from := s.first + every*id; from+s.length == now {
								trace := pcommon.TraceID{1: byte(1 + id)}
								span := td.request(uint64(10*id+1+i), at(from), at(now))
								span.SetTraceID(trace)
								if workers {
									span.SetParentSpanID(spanID(uint64(10*id + 5 + i)))
									td.request(uint64(10*id+5+i), at(from), at(now)).SetTraceID(trace)
								}
							}
						}
						if td.SpanCount() > 0 {
							r.consume(td.Traces)
						}
					}
					time.Sleep(time.Second / 2)
					for i, s := range servers {
						ended := 0
						for id := range requests {
							if s.first+every*id+s.length <= now {
								ended++
							}
						}
						p := &servermetrics.Page{}
						p.Add("vllm:num_requests_running", nil, running(i, now))
						p.Add("vllm:generation_tokens_total", nil, float64(s.output*ended))
						r.store.(devicesamples.LoadWriter).WriteLoad(devicesamples.LoadSeries{Service: s.name, Source: s.name},
							time.Now().UnixNano(), running(i, now))
						meters[i].Add(p, time.Now().UnixNano())
					}
					time.Sleep(time.Second / 2)
				}
				got, total := r.spans(), 0.
				for id := range requests {
					truth, shown := 0., 0.
					for i, s := range servers {
						for sec := range s.length {
							sec += s.first + every*id
							truth += watts(i, sec) / running(i, sec)
						}
						span := got[uint64(10*id+1+i)]
						shown += energy(t, span)
						assert.NotContains(t, span.Attributes().AsRaw(), "gpu.energy_bound")
						if workers {
							around := got[uint64(10*id+5+i)].Attributes().AsRaw()
							assert.InDelta(t, energy(t, span), around["gpu.energy"], 1e-6)
							assert.InDelta(t, 0, around["gpu.self_energy"], 1e-6)
						}
					}
					assert.InEpsilon(t, truth, shown, 1e-9, "request %d", id)
					total += shown
				}
				assert.InEpsilon(t, busy[0]+busy[1], total, 1e-9)
				assert.InEpsilon(t, total, r.energy("attributed"), 1e-9)
				assert.InEpsilon(t, joules[0]+joules[1], r.energy("attributed")+r.energy("unattributed"), 1e-9)
				md := pmetric.NewMetricSlice()
				source.ServerMetrics(md, time.Now().UnixNano())
				sum := map[string]float64{}
				for _, m := range md.All() {
					if m.Type() == pmetric.MetricTypeSum {
						for _, p := range m.Sum().DataPoints().All() {
							server, _ := p.Attributes().Get("server.address")
							state, _ := p.Attributes().Get("gpu.server.state")
							sum[fmt.Sprint(m.Name(), " ", server.Str(), " ", state.Str())] += p.DoubleValue()
						}
					}
				}
				for i, s := range servers {
					active := sum["gpu.server.energy "+s.name+" active"]
					assert.InEpsilon(t, busy[i], active, 0.01)
					assert.InEpsilon(t, joules[i]-watts(i, 0)/2, active+sum["gpu.server.energy "+s.name+" idle"], 1e-9,
						"from the first page on")
					assert.InDelta(t, requests*s.output, sum["gpu.server.tokens "+s.name+" "], 1e-9)
				}
				assert.Empty(t, r.store.ContradictionEntries())
				r.close()
			})
		})
	}
}
