// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package servermetrics

import (
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.uber.org/goleak"

	"github.com/otelgpu/otelgpu/internal/conformance"
	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/recorded"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func readPage(t *testing.T, path string) *Page {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	p, err := Read(f)
	require.NoError(t, err)
	return p
}

// The pages with their right counts: replicas are added, shards and parts of a total are not.
func TestRunningRequests(t *testing.T) {
	for name, want := range map[string]float64{
		"sglang-priority": 3, "sglang-two-ranks": 3, "sglang-two-replicas": 5, "vllm-two-engines": 5, "ray-2.50-vllm": 4,
		"ray-2.46-vllm": 4,
	} {
		n, ok := readPage(t, recorded.Path(t, "cases", "services", name+".prom")).Running()
		assert.True(t, ok, name)
		assert.Equal(t, want, n, name)
	}
}

// Increases between two pages, with what the pages' author planted.
func TestTokensOfEachServer(t *testing.T) {
	dir := recorded.Path(t, "engine-metrics")
	var truth map[string]map[string]any
	text, err := os.ReadFile(filepath.Join(dir, "truth.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &truth))
	names := map[string]Quantity{
		"prompt": Input, "cached": Cached, "output": Output, "output_live": Output, "running": Running, "waiting": Waiting,
		"requests": Requests,
	}
	for server, values := range truth {
		t.Run(server, func(t *testing.T) {
			var all Meters
			m := all.New(Identity{})
			m.Add(readPage(t, filepath.Join(dir, server+".t0.prom")), 1e9)
			m.Add(readPage(t, filepath.Join(dir, server+".t1.prom")), 61e9)
			sum := map[Quantity]float64{}
			for _, of := range []map[total]float64{m.totals, m.gauges} {
				for at, v := range of {
					sum[at.q] += v
				}
			}
			if server == "triton" {
				sum[Requests] /= 2 // an ensemble and its member are two models
			}
			if server == "tgi" {
				values["output"] = values["output_of_finished_requests"]
			}
			for key, want := range values {
				if q, ok := names[key]; ok && want != nil {
					assert.Equal(t, want, sum[q], key)
				} else if ok {
					assert.NotContains(t, sum, q)
				}
			}
		})
	}
}

// A recorded vLLM: its own counters before and after 53 requests.
func TestTokensOfARecordedVLLM(t *testing.T) {
	var all Meters
	m := all.New(Identity{Address: "127.0.0.1:8000"})
	m.Add(readPage(t, recorded.Path(t, "vllm", "vllm-0.32.0.metrics.before.txt")), 1e9)
	after := readPage(t, recorded.Path(t, "vllm", "vllm-0.32.0.metrics.after.txt"))
	m.Add(after, 61e9)
	assert.Equal(t, 6857., m.totals[total{Output, "tiny"}])
	assert.Equal(t, 53., m.totals[total{Requests, "tiny"}])
	assert.InDelta(t, 0.3630488440012414, m.totals[total{Prefill, "tiny"}], 1e-9)
	assert.InDelta(t, 15.877584127999398, m.totals[total{Decode, "tiny"}], 1e-9)
	assert.Equal(t, "vLLM", m.name)
	m.Add(after, 62e9)
	restarted := *after
	restarted.Started += 100
	m.Add(&restarted, 63e9)
	assert.Equal(t, 2*6857., m.totals[total{Output, "tiny"}], "its counters started from 0")
}

// The front end and a worker of Dynamo, while two requests run and after 23 have ended.
func TestARecordedDynamo(t *testing.T) {
	for part, want := range map[string]map[Quantity]float64{
		"frontend": {Input: 803 - 341, Output: 2120 - 506, Requests: 23 - 8},
		"worker":   {Requests: 23 - 8},
	} {
		var all Meters
		m := all.New(Identity{})
		page := readPage(t, filepath.Join("testdata", "dynamo-1.6.1-"+part+".1.prom"))
		n, ok := page.Running()
		assert.True(t, ok)
		assert.Equal(t, 2., n)
		m.Add(page, 1e9)
		m.Add(readPage(t, filepath.Join("testdata", "dynamo-1.6.1-"+part+".2.prom")), 11e9)
		got := map[Quantity]float64{}
		for at, v := range m.totals {
			got[at.q] += v
		}
		assert.Equal(t, want, got, part)
	}
}

// Two rounds of four requests of 4 s: the counter rises when they end.
func TestTimeOfEndedRequestsIsSpreadOverTheirDuration(t *testing.T) {
	st := devicesamples.NewStore(devicesamples.NewDefaultConfig(), nil)
	var c Counts
	s := devicesamples.LoadSeries{Service: "triton", Source: "a"}
	for at := range 31 {
		ended := 0.
		for _, end := range []int{14, 20} {
			if at >= end {
				ended += 4
			}
		}
		p := &Page{}
		p.Add("nv_inference_request_duration_us", map[string]string{"model": "m"}, ended*4e6)
		p.Add("nv_inference_request_success", map[string]string{"model": "m"}, ended)
		c.Write(st, s, p, int64(at+1)*1e9)
	}
	sum := 0.
	for _, l := range st.LoadLevels("triton", 1e9, 31e9, nil) {
		if l.Running > 0 {
			sum += l.Running
			assert.LessOrEqual(t, l.Running, 4.)
		}
	}
	assert.InDelta(t, 32, sum, 1e-9, "request seconds")
	p := &Page{}
	p.Add("nv_inference_request_duration_us", map[string]string{"model": "m"}, 5)
	assert.False(t, c.Write(st, s, p, 40e9), "without the number of requests, their time states no count")
}

// Two servers on one device of 100 W: one runs requests from 10 to 20 s, the other from 15 s on.
func TestEnergyOfServersOnOneDevice(t *testing.T) {
	st := devicesamples.NewStore(devicesamples.NewDefaultConfig(), nil)
	start := time.Unix(1_700_000_000, 0).UnixNano()
	dev, err := st.Register(component.MustNewID("gpu"), devicesamples.Device{ID: "GPU-1", Interval: 100 * time.Millisecond, Ordinal: -1})
	require.NoError(t, err)
	defer dev.Close()
	var all Meters
	a, b := all.New(Identity{Address: "a", Devices: []string{"GPU-1"}}), all.New(Identity{Address: "b", Devices: []string{"GPU-1"}})
	page := func(n, tokens float64) *Page {
		p := &Page{}
		p.Add("vllm:num_requests_running", nil, n)
		p.Add("vllm:generation_tokens_total", map[string]string{"model_name": "m"}, tokens)
		return p
	}
	for i := range int64(301) {
		at := start + i*1e8
		s := devicesamples.Sample{Time: at}
		s.Set(devicesamples.Energy, 10*float64(i))
		dev.Write([]devicesamples.Sample{s})
		if i%10 != 0 {
			continue
		}
		sec := float64(i / 10)
		running := func(from, to float64) float64 {
			if sec > from && sec < to {
				return 2
			}
			return 0
		}
		a.Add(page(running(10, 20), 10*max(0, sec-10)), at)
		b.Add(page(running(15, 99), 0), at)
		if i%50 == 0 {
			view := st.Acquire()
			all.Measure(view, st)
			view.Release()
		}
	}
	assert.InDelta(t, 500+400./2, a.energy(active), 1e-6, "alone from 10.5 to 15.5 s, then half until 19.5 s")
	assert.InDelta(t, 3000, a.energy(active)+a.energy(idle)+b.energy(active)+b.energy(idle), 1e-6)
	metrics := pmetric.NewMetricSlice()
	all.Append(metrics, 0)
	assert.Equal(t, "gpu.server.energy", metrics.At(0).Name())
	model, _ := metrics.At(0).Sum().DataPoints().At(0).Attributes().Get("gen_ai.request.model")
	assert.Equal(t, "m", model.Str())
	md := pmetric.NewMetrics()
	metrics.CopyTo(md.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics())
	assert.NoError(t, conformance.Metrics(md))
}

// A server loads a second model after 100 s and reloads the first one after 150 s: no series falls,
// energy of 100 W is counted once, and all counters of the reloaded model count from 0.
func TestModelsThatAreLoadedAndReloaded(t *testing.T) {
	st := devicesamples.NewStore(devicesamples.NewDefaultConfig(), nil)
	const start = 1_700_000_000
	dev, err := st.Register(component.MustNewID("gpu"), devicesamples.Device{ID: "GPU-1", Interval: time.Second, Ordinal: -1})
	require.NoError(t, err)
	defer dev.Close()
	var all Meters
	m := all.New(Identity{Devices: []string{"GPU-1"}})
	series, ended := map[string]float64{}, map[string]bool{}
	for sec := range int64(201) {
		s := devicesamples.Sample{Time: (start + sec) * 1e9}
		s.Set(devicesamples.Energy, 100*float64(sec))
		dev.Write([]devicesamples.Sample{s})
		p := &Page{}
		add := func(model string, input, output float64) {
			labels := map[string]string{"model_name": model}
			p.Add("sglang:num_running_reqs", labels, 1)
			p.Add("sglang:prompt_tokens_total", labels, input)
			p.Add("sglang:generation_tokens_total", labels, output)
		}
		if since := float64(sec); sec < 150 {
			add("a", 10*since, since/100)
		} else {
			add("a", since-150, 2+since-150) // input falls, output does not
		}
		if sec >= 100 {
			add("b", float64(sec), 0)
		}
		m.Add(p, (start+sec)*1e9)
		view := st.Acquire()
		all.Measure(view, st)
		view.Release()
		metrics := pmetric.NewMetricSlice()
		all.Append(metrics, (start+sec)*1e9)
		for _, x := range metrics.All() {
			if x.Type() != pmetric.MetricTypeSum {
				continue
			}
			for _, p := range x.Sum().DataPoints().All() {
				key := fmt.Sprint(x.Name(), p.Attributes().AsRaw())
				if p.Flags().NoRecordedValue() {
					model, _ := p.Attributes().Get("gen_ai.request.model")
					assert.Equal(t, "a", model.AsString(), "it is no longer alone")
					assert.Greater(t, sec, int64(100))
					ended[key] = true
					continue
				}
				assert.NotContains(t, ended, key, "a model that is not alone any more has no energy of its own")
				assert.GreaterOrEqual(t, p.DoubleValue(), series[key], key)
				series[key] = p.DoubleValue()
			}
		}
	}
	assert.InDelta(t, 19900, m.energy(active)+m.energy(idle), 1e-6, "without the second of the reload")
	sum := 0.
	for key, joules := range series {
		if strings.HasPrefix(key, "gpu.server.energy") {
			sum += joules
		}
	}
	assert.InDelta(t, 19900, sum, 1e-6, "all of it was sent")
	assert.Len(t, ended, 2, "active and idle")
	assert.InDelta(t, 10000, m.joules["a"][active], 200)
	assert.InDelta(t, 1490+50, m.totals[total{Input, "a"}], 1e-9)
	assert.InDelta(t, 1.49+52, m.totals[total{Output, "a"}], 1e-9)
	assert.InDelta(t, 200, m.totals[total{Input, "b"}], 1e-9)
}

// answer is what a server reports: nothing if it has no process.
type answer struct {
	started          float64 // s after the start
	running, counter float64
}

// Servers on one device of 100 W for 200 s. The first one has process 1; its energy and tokens are
// known from what happens.
func TestEnergyOfServersThatShareRestartAndStop(t *testing.T) {
	always := func(sec int64) *answer { return &answer{-10, 1, float64(sec)} }
	for name, tt := range map[string]struct {
		servers        []func(sec int64) *answer
		shares         map[int64]float64 // of processes, from 50 s on
		joules, tokens float64           // of the first server
		within         float64           // J
	}{
		"alone":                        {[]func(int64) *answer{always}, nil, 20000, 200, 0},
		"another process has 60 %":     {[]func(int64) *answer{always}, map[int64]float64{1: 0.4, 9: 0.6}, 5000 + 6000, 200, 0},
		"another process has all":      {[]func(int64) *answer{always}, map[int64]float64{1: 0, 9: 1}, 5000, 200, 0},
		"its process is not known":     {[]func(int64) *answer{always}, map[int64]float64{8: 0.4, 9: 0.6}, 20000, 200, 0},
		"two servers by their shares":  {[]func(int64) *answer{always, always}, map[int64]float64{1: 0.3, 2: 0.7}, 2500 + 4500, 200, 0},
		"the other's process is known": {[]func(int64) *answer{always, always}, map[int64]float64{2: 0.7}, 2500 + 4500, 200, 0},
		"five replicas, one is left": {
			[]func(int64) *answer{always, until(100), until(100), until(100), until(100)}, nil, 2000 + 10000, 200, 500,
		},
		"restarted after a minute": {[]func(int64) *answer{func(sec int64) *answer {
			switch {
			case sec < 50:
				return &answer{-10, 1, float64(sec)}
			case sec < 110:
				return nil
			}
			return &answer{105, 1, float64(sec - 105)}
		}}, nil, 14000, 49 + 95, 200},
		"counters without a start fall": {[]func(int64) *answer{func(sec int64) *answer {
			return &answer{math.Inf(-1), 1, float64(sec % 100)}
		}}, nil, 20000, 99 + 99, 200},
		"two processes answer on one port": {[]func(int64) *answer{func(sec int64) *answer {
			return &answer{-10 - float64(sec%2), 1, float64(1000*(sec%2) + sec)}
		}}, nil, 20000, 198 + 200, 0},
	} {
		t.Run(name, func(t *testing.T) {
			st := devicesamples.NewStore(devicesamples.NewDefaultConfig(), nil)
			const start = 1_700_000_000
			dev, err := st.Register(component.MustNewID("gpu"), devicesamples.Device{ID: "GPU-1", Interval: time.Second, Ordinal: -1})
			require.NoError(t, err)
			defer dev.Close()
			var all Meters
			var meters []*Meter
			for i := range tt.servers {
				meters = append(meters, all.New(Identity{
					Address: fmt.Sprint(i), Devices: []string{"GPU-1"}, Workload: devicesamples.Workload{PID: int64(1 + i)},
				}))
			}
			for sec := range int64(211) {
				at := (start + sec) * 1e9
				s := devicesamples.Sample{Time: at}
				s.Set(devicesamples.Energy, 100*float64(sec))
				dev.Write([]devicesamples.Sample{s})
				if tt.shares != nil && sec >= 50 {
					w := devicesamples.ShareWindow{From: at, To: at + 1e9}
					for pid, share := range tt.shares {
						w.Users = append(w.Users, devicesamples.DeviceShare{DeviceUse: &devicesamples.DeviceUse{PID: pid}, Share: share})
					}
					st.AddShares("GPU-1", w)
				}
				for i, m := range meters {
					a := tt.servers[i](sec)
					if a == nil || sec > 200 {
						continue
					}
					p := &Page{}
					if !math.IsInf(a.started, 0) {
						p.Add("process_start_time_seconds", nil, start+a.started)
					}
					p.Add("vllm:num_requests_running", nil, a.running)
					p.Add("vllm:generation_tokens_total", nil, a.counter)
					m.Add(p, at)
				}
				if sec%10 == 0 {
					view := st.Acquire()
					all.Measure(view, st)
					view.Release()
				}
			}
			first := meters[0]
			assert.InDelta(t, tt.joules, first.energy(active)+first.energy(idle), tt.within+1e-6)
			assert.InDelta(t, tt.tokens, first.totals[total{q: Output}], 1e-6)
			sum := 0.
			for _, m := range meters {
				sum += m.energy(active) + m.energy(idle) + m.energy(unknown)
			}
			assert.LessOrEqual(t, sum, 20000.000001, "nothing is counted twice")
		})
	}
}

// energy returns the energy of a state, of all models.
func (x *Meter) energy(s state) (sum float64) {
	for _, j := range x.joules {
		sum += j[s]
	}
	return sum
}

// A server of 70 W that needs 200 W more while requests run is read once per second, at varying
// times. Energy of requests is found whatever their length and their number; in ten minutes without
// a pause of a second between requests, shorter pauses are theirs.
func TestEnergyOfRequestsOfAnyLength(t *testing.T) {
	for name, tt := range map[string]struct {
		every, length float64 // s
		timed         bool    // the server counts the time of requests
		gauge         float64 // part of the running requests that it reports
		within        float64
	}{
		"short":                        {1, 0.4, true, 1, 0.03},
		"rare and short":               {5, 0.1, true, 1, 0.05},
		"many":                         {0.3, 0.4, true, 1, 0.05},
		"half a pause":                 {2, 1.5, true, 1, 0.02},
		"short, their time is unknown": {1, 0.4, false, 1, 0.2},
		"long":                         {20, 9, true, 1, 0.02},
		"long, their time is unknown":  {20, 9, false, 1, 0.02},
		"the gauge is always 0":        {2, 0.4, true, 0, 0.15}, // overlapping requests count twice
	} {
		t.Run(name, func(t *testing.T) {
			st := devicesamples.NewStore(devicesamples.NewDefaultConfig(), nil)
			const start = 1_700_000_000_000_000_000
			dev, err := st.Register(component.MustNewID("gpu"), devicesamples.Device{ID: "GPU-1", Interval: 100 * time.Millisecond, Ordinal: -1})
			require.NoError(t, err)
			defer dev.Close()
			var all Meters
			m := all.New(Identity{Devices: []string{"GPU-1"}})
			random := rand.New(rand.NewPCG(1, 2))
			const tick = 0.01
			joules, want, page := 0., 0., 0.
			type request struct{ begins, ends float64 }
			var running []request
			begins := random.ExpFloat64() * tt.every
			busy, ended := 0., 0. // of requests that have ended
			for i := range int64(600 / tick) {
				now := float64(i) * tick
				for ; begins <= now; begins += random.ExpFloat64() * tt.every {
					running = append(running, request{begins, begins + tt.length*(0.5+random.Float64())})
				}
				running = slices.DeleteFunc(running, func(r request) bool {
					if r.ends > now {
						return false
					}
					busy += r.ends - r.begins
					ended++
					return true
				})
				watts := 70.
				if len(running) > 0 {
					watts = 270
					want += watts * tick
				}
				joules += watts * tick
				at := start + int64(now*1e9)
				if i%10 == 9 {
					s := devicesamples.Sample{Time: at}
					s.Set(devicesamples.Energy, joules)
					dev.Write([]devicesamples.Sample{s})
				}
				if now < page {
					continue
				}
				page = now + 0.75 + random.Float64()/2
				p := &Page{}
				p.Add("vllm:num_requests_running", nil, tt.gauge*float64(len(running)))
				p.Add("vllm:request_success_total", nil, ended)
				if tt.timed {
					p.Add("vllm:request_decode_time_seconds_sum", nil, busy)
				}
				m.Add(p, at)
				view := st.Acquire()
				all.Measure(view, st)
				view.Release()
			}
			assert.InEpsilon(t, want, m.energy(active), tt.within)
			assert.InDelta(t, joules, m.energy(active)+m.energy(idle), 700, "the first and the last second")
		})
	}
}

func until(end int64) func(int64) *answer {
	return func(sec int64) *answer {
		if sec >= end {
			return nil
		}
		return &answer{-10, 1, float64(sec)}
	}
}

var update = flag.Bool("update", false, "write the table of servers")

// The table in docs/llm.md.
func TestServersAreDocumented(t *testing.T) {
	var table strings.Builder
	table.WriteString("| server | replicas, which are added | shards, which are not | running requests | tokens are counted | source | tested with |\n|---|---|---|---|---|---|---|\n")
	list, err := servers()
	require.NoError(t, err)
	for _, s := range list {
		for name := range s.Metrics {
			assert.Contains(t, quantities, name)
		}
		fmt.Fprintf(&table, "| %s |", s.Name)
		for _, column := range []string{"replicas", "shards", "running", "tokens", "source", "recorded"} {
			require.NotEmpty(t, s.Docs[column])
			fmt.Fprintf(&table, " %s |", s.Docs[column])
		}
		table.WriteString("\n")
	}
	const page, begin, end = "../../docs/llm.md", "<!-- servers begin (go test ./internal/servermetrics -update) -->\n", "<!-- servers end -->"
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	head, rest, _ := strings.Cut(string(text), begin)
	_, tail, ok := strings.Cut(rest, end)
	require.True(t, ok)
	want := head + begin + table.String() + end + tail
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(want), 0o600))
	}
	assert.True(t, *update || want == string(text), "the table of docs/llm.md is old (go test ./internal/servermetrics -update)")
}

func TestBadPagesAreErrors(t *testing.T) {
	for _, text := range []string{"vllm:num_requests_running{a=\"b", "vllm:num_requests_running x", "vllm:num_requests_running{a} 1"} {
		_, err := Read(strings.NewReader(text))
		assert.Error(t, err, text)
	}
}

// What the text format and OpenMetrics allow.
func TestSpellingsOfASeries(t *testing.T) {
	for _, text := range []string{
		`vllm:num_requests_running{engine="0",model_name="m"} 3`,
		`vllm:num_requests_running{engine="0",model_name="m",} 3.0 1700000000.123`,
		`vllm:num_requests_running {model_name = "m" , engine="0"}	3e0`,
		"\t" + `vllm:num_requests_running	{ engine="0", model_name="m" } 3 # {trace_id="a b"} 0.5 1700000000` + "\r",
	} {
		p, err := Read(strings.NewReader("# TYPE vllm:num_requests_running gauge\n" + text + "\n# EOF\n"))
		require.NoError(t, err, text)
		require.Len(t, p.Values(), 1, text)
		assert.Equal(t, Value{
			Quantity: Running, Model: "m", Key: "vllm_num_requests_running,engine=0,model_name=m", Value: 3,
		}, p.Values()[0], text)
	}
}

func TestValuesThatNoServerCanHaveAreIgnored(t *testing.T) {
	p, err := Read(strings.NewReader("vllm:num_requests_running +Inf\nvllm:num_requests_waiting NaN\nvllm:generation_tokens_total -1\n"))
	require.NoError(t, err)
	assert.Empty(t, p.Values())
}

func FuzzRead(f *testing.F) {
	f.Add("vllm:num_requests_running{engine=\"0\",model_name=\"a\\\"}b\"} 3.0 17\n# x\nnv_inference_request_success 1\n")
	f.Fuzz(func(t *testing.T, text string) {
		if p, err := Read(strings.NewReader(text)); err == nil {
			for _, v := range p.Values() {
				assert.GreaterOrEqual(t, v.Value, 0.)
			}
		}
	})
}
