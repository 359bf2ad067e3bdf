// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/servermetrics"
	"github.com/otelgpu/otelgpu/processor/gpujoinprocessor/internal/attribution"
)

// One request of 12 s runs concurrently with seven others of its server on a device of 100 W. Its
// share is an eighth of 1,200 J, even if the seven are aborted without a span, or are unsampled.
func TestRequestAmongUnseenOnesHasItsShare(t *testing.T) {
	const fair = 1200. / 8
	for name, tt := range map[string]struct {
		seen    int              // of the seven
		edit    func(td *traces) // the server's resource and spans
		load    float64          // as the server states it; 0: not stated
		service string           // of the load
		bound   bool             // the share is marked as an upper bound
		want    float64
	}{
		"all seen":                              {seen: 7, load: 8, service: "test", want: fair},
		"all seen, nothing known":               {seen: 7, want: fair, bound: true},
		"seven aborted":                         {load: 8, service: "test", want: fair},
		"seven aborted, endpoint of no service": {load: 8, want: fair},
		"seven aborted, nothing known":          {want: 8 * fair, bound: true},
		"seven aborted, load of another":        {load: 8, service: "other", want: 8 * fair, bound: true},
		"seven unsampled, by threshold": {want: fair, bound: true, edit: func(td *traces) {
			td.ss.Spans().At(0).TraceState().FromRaw("a=b,ot=rv:ffffffffffffff;th:e")
		}},
		"seven unsampled, by stated ratio": {want: fair, bound: true, edit: func(td *traces) {
			td.rs.Resource().Attributes().PutStr("gpu.request.sampling.ratio", "0.125")
		}},
		"three seen, four aborted": {seen: 3, load: 8, service: "test", want: fair},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				zero := time.Now()
				r := newRig(t)
				r.run(r.device(devicesamples.Device{ID: gpu0}), steady(zero, 100))
				r.join(func(c *Config) { c.Settle, c.MaxWait = 15*time.Second, 25*time.Second })
				out := r.store.(devicesamples.LoadWriter)
				if tt.load > 0 {
					for at := range 20 {
						n := tt.load
						if at >= 12 {
							n = 0
						}
						s := devicesamples.LoadSeries{Service: tt.service, Source: "engine 0"}
						out.WriteLoad(s, zero.Add(time.Duration(at)*time.Second+500*time.Millisecond).UnixNano(), n)
					}
				}
				time.Sleep(12*time.Second + time.Millisecond)
				td := newTraces("server 0")
				td.request(1, zero, zero.Add(12*time.Second))
				for i := range tt.seen {
					td.resource(fmt.Sprintf("server %d", i%2)) // the server's processes
					if tt.load == 0 {
						td.rs.Resource().Attributes().PutStr("service.instance.id", "server 0")
					}
					td.request(uint64(2+i), zero, zero.Add(12*time.Second))
				}
				if tt.edit != nil {
					tt.edit(td)
				}
				r.consume(td.Traces)
				time.Sleep(20 * time.Second)
				got := r.spans()
				sum := 0.
				for id := range uint64(1 + tt.seen) {
					sum += energy(t, got[id+1])
				}
				assert.InEpsilon(t, tt.want, energy(t, got[1]), 0.01)
				_, bounded := got[1].Attributes().Get("gpu.energy_bound")
				assert.Equal(t, tt.bound, bounded)
				attributed := r.energy("attributed")
				all := attributed + r.energy("unattributed") + r.energy("unseen")
				assert.InDelta(t, sum, attributed, 1e-6)
				assert.InDelta(t, 1200-sum, r.energy("unseen"), 1e-6)
				assert.GreaterOrEqual(t, all, 1200.)
				assert.InDelta(t, all, 100*math.Round(all/100), 1e-6, "whole seconds of 100 W are settled, nothing is made")
				r.close()
			})
		})
	}
}

// The count is 9 or 1 from reading to reading: a share may be wrong by all of it for a short
// request, and by less for one of many readings.
func TestTheErrorOfACountThatFluctuatesIsStated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		zero := time.Now()
		r := newRig(t)
		r.run(r.device(devicesamples.Device{ID: gpu0}), steady(zero, 100))
		r.join(func(c *Config) { c.Settle, c.MaxWait = 45*time.Second, 60*time.Second })
		for at := range 60 {
			r.store.(devicesamples.LoadWriter).WriteLoad(devicesamples.LoadSeries{Source: "engine 0"},
				zero.Add(time.Duration(at)*time.Second).UnixNano(), float64(1+8*(at%2)))
		}
		time.Sleep(40 * time.Second)
		td := newTraces("server")
		td.request(1, zero.Add(2*time.Second), zero.Add(38*time.Second))
		td.request(2, zero.Add(20*time.Second), zero.Add(20*time.Second+300*time.Millisecond))
		r.consume(td.Traces)
		time.Sleep(61 * time.Second)
		got := r.spans()
		of := func(id uint64) float64 {
			stated, ok := got[id].Attributes().Get("gpu.energy_error")
			assert.True(t, ok)
			return stated.Double() / energy(t, got[id])
		}
		assert.InDelta(t, 1, of(2), 1e-4)
		assert.InDelta(t, 2*8./(2*6)*5/41, of(1), 0.02, "two deviations of 8, over 36 readings, of means 5 and 41 of the count and its square")
		r.close()
	})
}

// A server whose iterations are device sections, such as by gpuspan or the capture library, and
// whose requests have spans, too: the iterations have all energy of their time, regardless of the
// visible requests and the server's count.
func TestIterationsOfAServerHaveAllEnergyOfTheirTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		zero := time.Now()
		at := func(s float64) time.Time { return zero.Add(sec(s)) }
		r := newRig(t)
		r.run(r.device(devicesamples.Device{ID: gpu0}), steady(zero, 100))
		r.join(func(c *Config) { c.Settle, c.MaxWait = 15*time.Second, 25*time.Second })
		for i := range 10 {
			r.store.(devicesamples.LoadWriter).WriteLoad(devicesamples.LoadSeries{Service: "test"},
				at(float64(i)+0.5).UnixNano(), 8)
		}
		time.Sleep(12*time.Second + time.Millisecond)
		td := newTraces("server 0")
		td.request(1, zero, at(10))
		td.gpu(2, 0, at(2), at(5))
		td.gpu(3, 0, at(5), at(9))
		r.consume(td.Traces)
		time.Sleep(20 * time.Second)
		got := r.spans()
		assert.InEpsilon(t, 300, energy(t, got[2]), 0.01)
		assert.InEpsilon(t, 400, energy(t, got[3]), 0.01)
		assert.InEpsilon(t, 300./8, energy(t, got[1]), 0.01, "of the time between")
		r.close()
	})
}

// Two servers of one service, each with its own device and count, such as replicas on one host.
// Requests on one device must not count as requests without a span on the other.
func TestServersOfOneServiceHaveTheirOwnDevices(t *testing.T) {
	const gpu1 = "GPU-22222222-2222-2222-2222-222222222222"
	for name, tt := range map[string]struct {
		seen, running [2]int
		want          [2]float64 // of each request, of 1,200 J on each device
	}{
		"all seen":         {seen: [2]int{4, 4}, running: [2]int{4, 4}, want: [2]float64{300, 300}},
		"all seen, uneven": {seen: [2]int{8, 1}, running: [2]int{8, 1}, want: [2]float64{150, 1200}},
		"the count of one": {seen: [2]int{8, 1}, running: [2]int{8, 0}, want: [2]float64{150, 1200}},
		"four aborted, nothing tells where": {
			seen: [2]int{4, 4}, running: [2]int{8, 4}, want: [2]float64{150, 150},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				zero := time.Now()
				r := newRig(t)
				r.run(r.device(devicesamples.Device{ID: gpu0}), steady(zero, 100))
				r.run(r.device(devicesamples.Device{ID: gpu1}), steady(zero, 100))
				r.join(func(c *Config) { c.Settle, c.MaxWait = 15*time.Second, 25*time.Second })
				out := r.store.(devicesamples.LoadWriter)
				for at := range 20 {
					for i, n := range tt.running {
						if at >= 12 {
							n = 0
						}
						out.WriteLoad(devicesamples.LoadSeries{Service: "test", Source: fmt.Sprintf("http://server%d/metrics", i)},
							zero.Add(time.Duration(at)*time.Second+500*time.Millisecond).UnixNano(), float64(n))
					}
				}
				time.Sleep(12*time.Second + time.Millisecond)
				id := uint64(0)
				td := newTraces("")
				for i, device := range []string{gpu0, gpu1} {
					td.resource(fmt.Sprintf("server %d", i))
					td.rs.Resource().Attributes().PutStr("hw.id", device)
					for range tt.seen[i] {
						id++
						td.request(id, zero, zero.Add(12*time.Second))
					}
				}
				r.consume(td.Traces)
				time.Sleep(20 * time.Second)
				got := r.spans()
				for i := range id {
					server := 0
					if int(i) >= tt.seen[0] {
						server = 1
					}
					assert.InEpsilon(t, tt.want[server], energy(t, got[i+1]), 0.01, "request %d", i)
				}
				r.close()
			})
		})
	}
}

// Two servers on one device, of which only one is listed, without a service: its count is of
// neither as soon as both send requests. A count of 0 is wrong while a request runs.
func TestCountsThatTheSpansContradictAreNotUsed(t *testing.T) {
	for name, tt := range map[string]struct {
		count    float64
		services []string // of a request each, from 0 to 12 s
		want     []float64
		reason   string
	}{
		"one count of two servers": {4, []string{"a", "b"}, []float64{600, 600}, "server_unnamed"},
		"a count of 0":             {0, []string{"a"}, []float64{1200}, "server_count"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				zero := time.Now()
				r := newRig(t)
				r.run(r.device(devicesamples.Device{ID: gpu0}), steady(zero, 100))
				r.join(func(c *Config) { c.Settle, c.MaxWait = 15*time.Second, 25*time.Second })
				for at := range 20 {
					r.store.(devicesamples.LoadWriter).WriteLoad(devicesamples.LoadSeries{Source: "engine 0"},
						zero.Add(time.Duration(at)*time.Second+500*time.Millisecond).UnixNano(), tt.count)
				}
				time.Sleep(12*time.Second + time.Millisecond)
				td := newTraces("")
				for i, service := range tt.services {
					td.resource(service)
					td.rs.Resource().Attributes().PutStr("service.name", service)
					td.request(uint64(1+i), zero, zero.Add(12*time.Second))
				}
				r.consume(td.Traces)
				time.Sleep(20 * time.Second)
				got := r.spans()
				for i, want := range tt.want {
					assert.InEpsilon(t, want, energy(t, got[uint64(1+i)]), 0.01)
					bound, _ := got[uint64(1+i)].Attributes().Get("gpu.energy_bound")
					assert.Equal(t, "upper", bound.Str())
				}
				var reasons []string
				for _, e := range r.store.ContradictionEntries() {
					reasons = append(reasons, e.Reason)
				}
				assert.Equal(t, []string{tt.reason}, reasons)
				r.close()
			})
		})
	}
}

// Spans and metrics of a real vLLM, recorded together: joules per token from its metrics alone
// equal the ones of its spans, within 1 % while it is busy. With pauses between short requests, the
// number that runs at once is known from few readings. The device needs more power for more
// requests.
func TestJoulesPerTokenAgreeWithAndWithoutTraces(t *testing.T) {
	for name, within := range map[string]float64{"busy": 0.01, "pauses": 0.08} {
		t.Run(name, func(t *testing.T) {
			r := recordedServer(t, name)
			synctest.Test(t, func(t *testing.T) { joulesPerToken(t, r, within) })
		})
	}
}

func joulesPerToken(t *testing.T, rec *serverRecording, within float64) {
	zero := time.Now()
	length := rec.pages[len(rec.pages)-1].at
	joules := make([]float64, int64((length+time.Second)/time.Millisecond))
	running := make([]float64, len(joules)+1)
	for _, s := range rec.requests {
		queue, _ := s.Attributes().Get("gen_ai.latency.time_in_queue")
		running[(s.StartTimestamp()-rec.zero)/1e6+pcommon.Timestamp(queue.Double()*1e3)]++
		running[(s.EndTimestamp()-rec.zero)/1e6]--
	}
	for i := range joules {
		watts := 70.
		if running[i+1] += running[i]; running[i] > 0 {
			watts = 200 + 30*running[i]
		}
		joules[i] = joules[max(i-1, 0)] + watts*1e-3
	}
	r := newRig(t)
	r.run(r.device(devicesamples.Device{ID: gpu0}), func(now time.Time, s *devicesamples.Sample) {
		s.Set(devicesamples.Energy, joules[min(int(now.Sub(zero)/time.Millisecond), len(joules)-1)])
	})
	r.join(func(c *Config) { c.Settle, c.MaxWait = length+20*time.Second, length+40*time.Second })
	source := r.store.(interface {
		Meters() *servermetrics.Meters
		servermetrics.Source
	})
	meter := source.Meters().New(servermetrics.Identity{Address: "a", Devices: []string{gpu0}})
	for _, page := range rec.pages {
		p, err := servermetrics.Read(strings.NewReader(page.text))
		require.NoError(t, err)
		p.Started = 0
		time.Sleep(time.Until(zero.Add(page.at)))
		meter.Add(p, time.Now().UnixNano())
		source.ServerMetrics(pmetric.NewMetricSlice(), time.Now().UnixNano()) // as the receiver collects
	}
	tokens := 0.
	td := newTraces("server")
	for i, s := range rec.requests {
		queue, _ := s.Attributes().Get("gen_ai.latency.time_in_queue")
		n, _ := s.Attributes().Get("gen_ai.usage.completion_tokens")
		tokens += float64(n.Int())
		td.request(uint64(1+i), zero.Add(time.Duration(s.StartTimestamp()-rec.zero)+time.Duration(queue.Double()*1e9)),
			zero.Add(time.Duration(s.EndTimestamp()-rec.zero)))
	}
	r.consume(td.Traces)
	time.Sleep(r.maxWait())
	traced := 0.
	for _, s := range r.spans() {
		traced += energy(t, s)
	}
	alone := pmetric.NewMetricSlice()
	source.ServerMetrics(alone, time.Now().UnixNano())
	sum := map[string]float64{}
	for _, m := range alone.All() {
		if m.Type() == pmetric.MetricTypeSum {
			for _, p := range m.Sum().DataPoints().All() {
				of, ok := p.Attributes().Get("gpu.server.state")
				if !ok {
					of, _ = p.Attributes().Get("gen_ai.token.type")
				}
				sum[m.Name()+" "+of.Str()] += p.DoubleValue()
			}
		}
	}
	assert.InDelta(t, tokens, sum["gpu.server.tokens output"], 1e-6)
	t.Logf("%.5f J per token with traces, %.5f without", traced/tokens, sum["gpu.server.energy active"]/tokens)
	assert.InEpsilon(t, traced/tokens, sum["gpu.server.energy active"]/sum["gpu.server.tokens output"], within)
	r.close()
}

// serverRecording is what a real server sent, and its metrics about once per second.
type serverRecording struct {
	zero     pcommon.Timestamp // of the first page
	pages    []serverPage
	requests []ptrace.Span
}

type serverPage struct {
	at   time.Duration
	text string
}

// recordedServer reads a recording: lines are a payload of OTLP, or a page with its time.
func recordedServer(t *testing.T, name string) *serverRecording {
	text, err := os.ReadFile(filepath.Join("testdata", "vllm-0.32.0-"+name+".jsonl"))
	require.NoError(t, err)
	rec := &serverRecording{}
	for line := range bytes.Lines(text) {
		var page struct {
			Time pcommon.Timestamp `json:"time"`
			Page []string          `json:"page"`
		}
		require.NoError(t, json.Unmarshal(line, &page))
		if page.Page != nil {
			if rec.zero == 0 {
				rec.zero = page.Time
			}
			rec.pages = append(rec.pages, serverPage{time.Duration(page.Time - rec.zero), strings.Join(page.Page, "\n")})
			continue
		}
		td, err := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces(line)
		require.NoError(t, err)
		for s := range spansOf(td) {
			rec.requests = append(rec.requests, s)
		}
	}
	return rec
}

// readAt returns readings at both ends of the requested time.
type readAt struct{ devicesamples.LoadReader }

func (readAt) LoadLevels(_ string, from, to int64, dst []devicesamples.LoadLevel) []devicesamples.LoadLevel {
	return append(dst, devicesamples.LoadLevel{Time: from, Running: float64(from)}, devicesamples.LoadLevel{
		Time: to, Running: float64(to),
	})
}

func TestTheLoadOfAServerIsReadAtTheTimesOfSamples(t *testing.T) {
	l := &loads{reader: readAt{}, names: map[uint64]string{1: "server"}}
	assert.Equal(t, []attribution.Level{{Time: 100, Running: 130}, {Time: 200, Running: 230}},
		l.levels(1, "board", 100, 200, 30, nil))
	l.wait = 1000
	x := on("other")
	x.res.load = "server"
	l.arrive(x, request(1, 0, 95, 105)) // on the clock of spans
	assert.Equal(t, []attribution.Level{{Time: 100, Running: 129}, {Time: 200, Running: 230}},
		l.levels(1, "board", 100, 200, 30, nil), "requests on another GPU")
}

// A process whose clock is ahead or behind is named. Its spans get no values, or an error of what
// they may have instead. The device takes 300 W after 80 s, and 100 W before.
func TestClocksOfServersAreCompared(t *testing.T) {
	for name, tt := range map[string]struct {
		offset time.Duration
		reason string
		joined bool
		stated float64 // part of the energy of the last span with energy
	}{
		"right":  {0, "", true, 0},
		"ahead":  {5 * time.Second, "span_ahead", false, 0},
		"behind": {-40 * time.Second, "span_behind", true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				zero := time.Now()
				r := newRig(t)
				r.run(r.device(devicesamples.Device{ID: gpu0}), func(now time.Time, s *devicesamples.Sample) {
					x := now.Sub(zero).Seconds()
					s.Set(devicesamples.Energy, 100*x+200*max(0, x-80))
				})
				r.join(func(c *Config) { c.Settle, c.MaxWait = 55*time.Second, 65*time.Second })
				for i := range 25 {
					time.Sleep(4 * time.Second)
					td := newTraces("server")
					td.request(uint64(1+i), time.Now().Add(tt.offset-2*time.Second), time.Now().Add(tt.offset))
					r.consume(td.Traces)
				}
				time.Sleep(70 * time.Second)
				span := r.spans()[20]
				_, joined := span.Attributes().Get("gpu.energy")
				assert.Equal(t, tt.joined, joined)
				if !joined {
					assert.Equal(t, map[string]any{"gpu.operation.type": "request"}, span.Attributes().AsRaw())
					assert.EqualValues(t, 25, r.count("uncovered_spans", "clock_ahead"))
					assert.InDelta(t, r.energy("attributed"), r.withheld(), 1e-6)
				} else if stated, ok := r.spans()[25].Attributes().Get("gpu.energy_error"); ok {
					assert.InDelta(t, tt.stated, stated.Double()/energy(t, r.spans()[25]), 0.01)
				} else {
					assert.Zero(t, tt.stated)
				}
				var reasons []string
				for _, e := range r.store.ContradictionEntries() {
					reasons = append(reasons, e.Reason)
					assert.Contains(t, e.Source, "server")
				}
				assert.Equal(t, tt.reason, strings.Join(reasons, " "))
				r.close()
			})
		})
	}
}
