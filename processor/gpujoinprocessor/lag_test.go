// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/otelgpu/otelgpu/extension/gpusamplesextension"
	"github.com/otelgpu/otelgpu/internal/devicesamples"
)

// The clock of a server is off by less than is found. The energy of a request is wrong by at most
// the bound in docs/llm.md: the offset times the range of power for a request that runs alone, and
// half of it more for each change of the part that a request has of its device. The power changes
// each second. On one device requests of 5 s to 5 min run alone, on the other one they run together
// with short ones. A clock that is ahead by more is found, and its spans get no values. If the
// server states its clock, the energy is inside the stated error.
func TestAnOffsetOfAServersClockMisplacesAsMuchAsDocumented(t *testing.T) {
	const length, settle, least, most = 420, 340, 100, 500 // s, W
	const imprecise = 300 * time.Millisecond               // a Date has whole seconds
	type served struct{ device, from, to int }
	random := rand.New(rand.NewPCG(1, 2))
	var watts [2][length]float64
	for device := range watts {
		for i := range watts[device] {
			watts[device][i] = least + (most-least)*random.Float64()
		}
	}
	var requests []served
	for from, i := 22, 0; i < 4; i++ {
		to := from + []int{5, 20, 60, 300}[i]
		requests = append(requests, served{0, from, to}, served{1, 30, 30 + to - from})
		from = to + 2
	}
	for range 100 {
		from := 22 + random.IntN(length-40)
		requests = append(requests, served{1, from, from + 1 + random.IntN(10)})
	}
	var running [2][length]float64
	for _, x := range requests {
		for i := x.from; i < x.to; i++ {
			running[x.device][i]++
		}
	}
	for _, tt := range []struct {
		offset int
		stated bool // by the server, and it counts its requests
	}{{-20, false}, {-5, false}, {-1, false}, {1, false}, {5, false}, {20, false}, {-20, true}, {-5, true}, {-2, true}} {
		offset := tt.offset
		t.Run(fmt.Sprintf("%+v", tt), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				zero := time.Now()
				r := newRig(t, func(c *gpusamplesextension.Config) { c.MaxAge = time.Hour })
				ids := [2]string{gpu0, "GPU-22222222-2222-2222-2222-222222222222"}
				var devices [2]devicesamples.DeviceWriter
				for i, id := range ids {
					devices[i] = r.device(devicesamples.Device{ID: id, Interval: time.Second})
				}
				r.join(func(c *Config) { c.Settle, c.MaxWait = settle*time.Second, (settle+30)*time.Second })
				load := r.store.(interface {
					devicesamples.LoadWriter
					SetLoadClock(devicesamples.LoadSeries, time.Duration)
				})
				var joules [2]float64
				for now := range length + settle + 60 {
					for i, w := range devices {
						s := devicesamples.Sample{Time: time.Now().UnixNano()}
						s.Set(devicesamples.Energy, joules[i])
						w.Write([]devicesamples.Sample{s})
						if now < length {
							joules[i] += watts[i][now]
						}
						if tt.stated {
							of := devicesamples.LoadSeries{Service: ids[i], Source: "a"}
							load.SetLoadClock(of, time.Duration(offset)*time.Second-imprecise)
							load.WriteLoad(of, time.Now().Add(time.Second/2).UnixNano(), running[i][min(now, length-1)])
						}
					}
					td := newTraces("server")
					for id, x := range requests {
						if x.to == now {
							td.resource("server")
							td.rs.Resource().Attributes().PutStr("service.name", ids[x.device])
							s := td.request(uint64(1+id), zero.Add(time.Duration(x.from+offset)*time.Second),
								zero.Add(time.Duration(x.to+offset)*time.Second))
							s.Attributes().PutStr("hw.id", ids[x.device])
						}
					}
					if td.SpanCount() > 0 {
						r.consume(td.Traces)
					}
					time.Sleep(time.Second)
				}
				got, sum, worst, within := r.spans(), 0., 0., 0
				var errors, states []float64
				for id, x := range requests {
					shown, ok := got[uint64(1+id)].Attributes().Get("gpu.energy")
					if assert.Equal(t, offset < 2, ok); !ok {
						continue
					}
					truth, changes, part := 0., 0., 0.
					for i := x.from; i < x.to; i++ {
						truth += watts[x.device][i] / running[x.device][i]
						changes += math.Abs(1/running[x.device][i] - part)
						part = 1 / running[x.device][i]
					}
					changes += part
					bound := math.Abs(float64(offset)) * (most - least) * changes / 2
					sum += shown.Double()
					worst = max(worst, math.Abs(shown.Double()-truth)/bound)
					if !tt.stated {
						assert.InDelta(t, truth, shown.Double(), bound, "%+v", x)
						continue
					}
					off := 0.05 * shown.Double()
					if v, ok := got[uint64(1+id)].Attributes().Get("gpu.energy_error"); ok {
						off = v.Double()
					}
					if math.Abs(shown.Double()-truth) <= off {
						within++
					}
					errors, states = append(errors, math.Abs(shown.Double()-truth)), append(states, off)
				}
				if tt.stated {
					slices.Sort(errors)
					slices.Sort(states)
					n := len(requests)
					assert.GreaterOrEqual(t, float64(within), 0.95*float64(n))
					assert.Less(t, states[n*95/100], 3*errors[n*95/100])
				}
				if offset < 2 {
					assert.InDelta(t, r.energy("attributed"), sum, 1e-6)
				}
				assert.InEpsilon(t, joules[0]+joules[1], r.energy("attributed")+r.energy("unattributed")+r.energy("unseen"), 1e-9)
				t.Logf("the worst error is %.2g of the bound", worst)
				r.close()
			})
		})
	}
}
