// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package attribution_test

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/processor/gpujoinprocessor/internal/attribution"
)

var update = flag.Bool("update", false, "write the table of accuracy")

// job is a request of the simulated server.
type job struct {
	from, to int64 // ns
	seen     bool  // it has a span
}

// server is a simulated server on a device whose power follows the number of its requests.
type server struct {
	jobs    []job
	times   []int64   // when the number of running requests changes
	running []float64 // from then on
	joules  []float64 // until then
	shares  []float64 // of a request that always runs, until then
	levels  []attribution.Level
}

// watts is the device's power: it saturates, so that twice the requests take less than twice the
// energy.
func watts(running float64) float64 { return 100 + 500*running/(running+4) }

// serve runs jobs. Readings are 0.75 to 1.25 s apart and state the number of running requests at
// the time that stale returns.
func serve(jobs []job, stale func(int64) int64, until int64) *server {
	s := &server{jobs: jobs}
	step := map[int64]float64{0: 0, until: 0}
	for _, j := range jobs {
		step[j.from]++
		step[j.to]--
	}
	for t := range step {
		s.times = append(s.times, t)
	}
	slices.Sort(s.times)
	var n, joules, share float64
	for i, t := range s.times {
		if i > 0 {
			e := watts(n) * float64(t-s.times[i-1]) * 1e-9
			joules += e
			share += e / max(1, n)
		}
		n += step[t]
		s.running, s.joules, s.shares = append(s.running, n), append(s.joules, joules), append(s.shares, share)
	}
	if stale != nil {
		rng := rand.New(rand.NewPCG(3, 5))
		for t := int64(137e6); t < until; t += 75e7 + rng.Int64N(5e8) {
			s.levels = append(s.levels, attribution.Level{Time: t, Running: s.running[s.at(max(0, stale(t)))]})
		}
	}
	return s
}

// at returns the last change at or before a time.
func (s *server) at(t int64) int {
	return sort.Search(len(s.times), func(i int) bool { return s.times[i] > t }) - 1
}

func (s *server) Knots(from, to int64, dst []attribution.Knot) []attribution.Knot {
	value := func(t int64) float64 {
		i := max(0, s.at(t))
		return s.joules[i] + watts(s.running[i])*float64(t-s.times[i])*1e-9
	}
	add := func(t int64) {
		dst = append(dst, attribution.Knot{Time: t, Value: value(t) - value(from), Covered: t - from})
	}
	add(from)
	for i := s.at(from) + 1; i < len(s.times) && s.times[i] < to; i++ {
		add(s.times[i])
	}
	add(to)
	return dst
}

func (*server) Windows(_, _ int64, dst []attribution.Window) []attribution.Window { return dst }

func (s *server) Levels(_ uint64, from, to int64, dst []attribution.Level) []attribution.Level {
	i := max(0, sort.Search(len(s.levels), func(i int) bool { return s.levels[i].Time > from })-1)
	for ; i < len(s.levels); i++ {
		if dst = append(dst, s.levels[i]); s.levels[i].Time > to {
			break
		}
	}
	return dst
}

// outcome are the errors of the shares of the requests with a span.
type outcome struct {
	sum          float64 // of all shares over the right sum
	median, tail float64 // of the relative error of a share: half and 95 % of the requests
	outside      float64 // part of the requests that is off by more than 5 % and more than its stated error
	stated       float64 // median of the stated error
	wrong        bool    // the count was found to be wrong
}

// attribute sends each span when its request has ended, and settles what is older than settle.
func (s *server) attribute(t *testing.T, settle int64) (o outcome) {
	t.Helper()
	d := attribution.New(attribution.Limits{}, &attribution.Budget{Max: 1 << 20})
	var order []int
	for i, j := range s.jobs {
		if j.seen {
			order = append(order, i)
		}
	}
	slices.SortFunc(order, func(a, b int) int { return int(s.jobs[a].to - s.jobs[b].to) })
	got, stated := make([]attribution.Share, len(s.jobs)), make([]float64, len(s.jobs))
	handles := map[int]attribution.Handle{}
	end, next := s.times[len(s.times)-1], 0
	for now := int64(0); now < end+settle+2e9; now += 1e9 {
		for ; next < len(order) && s.jobs[order[next]].to <= now; next++ {
			id := order[next]
			span := attribution.Span{
				Key: key(1 + id), Process: 1, Start: s.jobs[id].from, End: s.jobs[id].to, Yields: true, Request: true,
			}
			a, at, _ := d.Add(span, 0, s)
			require.Equal(t, attribution.Taken, a)
			handles[id] = at
		}
		d.Settle(max(0, min(now-settle, end)), s)
		o.wrong = now < end && d.Contradicts(1)
		for id, at := range handles {
			if x, ok := d.Share(key(1+id), at); ok && x.Ended {
				got[id], stated[id] = x, d.CountError(1, s.jobs[id].to-s.jobs[id].from)
				delete(handles, id)
			}
		}
	}
	require.Empty(t, handles)
	var have, truth, n float64
	var off []float64
	for _, id := range order {
		j := s.jobs[id]
		fair := s.share(j.to) - s.share(j.from)
		have, truth, n = have+got[id].Value, truth+fair, n+1
		off = append(off, math.Abs(got[id].Value/fair-1))
		bound := got[id].Short + max(stated[id]*got[id].Value, 0.05*fair)
		if fair > got[id].Value+bound || s.levels != nil && fair < got[id].Value-bound {
			o.outside++ // without a count, the share is an upper bound
		}
	}
	slices.Sort(off)
	slices.Sort(stated)
	o.stated = stated[len(stated)-1-len(order)/2]
	total := d.Totals()
	all := s.joules[len(s.joules)-1]
	assert.InEpsilon(t, all, total.Attributed+total.Unattributed+total.Unseen, 1e-9)
	assert.InEpsilon(t, have, total.Attributed+total.Late, 1e-9)
	o.sum, o.median, o.tail, o.outside = have/truth, off[len(off)/2], off[len(off)*95/100], o.outside/n
	return o
}

func (s *server) share(t int64) float64 {
	i := s.at(t)
	return s.shares[i] + watts(s.running[i])/max(1, s.running[i])*float64(t-s.times[i])*1e-9
}

// workload describes requests that start at random.
type workload struct {
	mean   float64                  // requests that run at a time
	length func(*rand.Rand) float64 // s
	burst  time.Duration            // requests start only in the first half of this period
	seen   float64                  // part with a span
	hours  float64
}

func (w workload) jobs() (jobs []job, until int64) {
	rng := rand.New(rand.NewPCG(7, 11))
	mean := 0.
	for range 10_000 {
		mean += w.length(rng) / 10_000
	}
	for at := 1.; at < w.hours*3600; at += rng.ExpFloat64() * mean / w.mean {
		if w.burst > 0 && math.Mod(at, w.burst.Seconds()) > w.burst.Seconds()/2 {
			continue
		}
		from := int64(at * 1e9)
		j := job{from, from + int64(w.length(rng)*1e9), rng.Float64() < w.seen}
		jobs, until = append(jobs, j), max(until, j.to)
	}
	return jobs, until + 5e9
}

func about(s float64) func(*rand.Rand) float64 {
	return func(r *rand.Rand) float64 { return s * (0.5 + r.Float64()) }
}

// mixed are lengths of 1 s to 30 min, as many of each order of magnitude.
func mixed(r *rand.Rand) float64 { return math.Exp(r.Float64() * math.Log(1800)) }

func staleBy(ns int64) func(int64) int64 { return func(t int64) int64 { return t - ns } }

// each second, at another time than it is read
func refreshed(t int64) int64 { return (t-400e6)/1e9*1e9 + 400e6 }

// The table of docs/llm.md.
func TestAccuracyIsAsDocumented(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	const settle = int64(65e9)
	now := staleBy(0)
	cases := []struct {
		name        string
		load        workload
		stale       func(int64) int64
		sum, median float64 // largest errors
	}{
		{"all, 3 s", workload{mean: 8, length: about(3), seen: 1, hours: 0.5}, now, 1e-6, 1e-6},
		{"all, 0.3 s", workload{mean: 8, length: about(0.3), seen: 1, hours: 0.1}, now, 1e-6, 1e-6},
		{"all, 1 s to 30 min", workload{mean: 8, length: mixed, seen: 1, hours: 4}, now, 0.01, 0.01},
		{"all, 3 s; count is 30 ms old", workload{mean: 8, length: about(3), seen: 1, hours: 0.5}, staleBy(30e6), 0.02, 0.02},
		{"all, 0.3 s; count is 30 ms old", workload{mean: 8, length: about(0.3), seen: 1, hours: 0.1}, staleBy(30e6), 0.03, 0.03},
		{"all, 3 s; count is refreshed each second", workload{mean: 8, length: about(3), seen: 1, hours: 0.5}, refreshed, 0.01, 0.01},
		{"all, 0.3 s, bursts of 1 s", workload{mean: 8, length: about(0.3), burst: 2 * time.Second, seen: 1, hours: 0.1}, now, 1e-6, 1e-6},
		{"half, 3 s", workload{mean: 8, length: about(3), seen: 0.5, hours: 1}, now, 0.02, 0.05},
		{"one of ten, 3 s", workload{mean: 8, length: about(3), seen: 0.1, hours: 2}, now, 0.02, 0.1},
		{"one of ten, 0.3 s", workload{mean: 8, length: about(0.3), seen: 0.1, hours: 0.5}, now, 0.02, 0.2},
		{"one of ten, 1 s to 30 min", workload{mean: 8, length: mixed, seen: 0.1, hours: 24}, now, 0.02, 0.02},
		{"one of ten, 0.3 s, bursts of 1 s", workload{mean: 8, length: about(0.3), burst: 2 * time.Second, seen: 0.1, hours: 0.5}, now, 0.03, 0.3},
		{"all, 1 s to 30 min; count unknown", workload{mean: 8, length: mixed, seen: 1, hours: 4}, nil, 0.02, 3},
	}
	var table strings.Builder
	table.WriteString("| requests with a span; length | sum of shares | half of the shares within | 95 % within | stated error |\n" +
		"|---|--:|--:|--:|--:|\n")
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			jobs, until := c.load.jobs()
			o := serve(jobs, c.stale, until).attribute(t, settle)
			stated := "below 5 %"
			if c.stale == nil {
				stated = "upper bound"
			} else if o.stated >= 0.05 {
				stated = fmt.Sprintf("%.0f %%", 100*o.stated)
			}
			fmt.Fprintf(&table, "| %s | %+.1f %% | %.1f %% | %.1f %% | %s |\n",
				c.name, 100*(o.sum-1)+0, 100*o.median, 100*o.tail, stated)
			t.Logf("%d requests: sum %+.2f %%, median %.2f %%, 95 %% %.2f %%, stated %.2f %%, outside %.1f %%, wrong %v",
				len(jobs), 100*(o.sum-1), 100*o.median, 100*o.tail, 100*o.stated, 100*o.outside, o.wrong)
			assert.InDelta(t, 1, o.sum, c.sum)
			assert.LessOrEqual(t, o.median, c.median)
			assert.LessOrEqual(t, o.outside, 0.05, "the stated error is a promise for 95 % of requests")
			assert.LessOrEqual(t, o.stated, 3*max(o.tail, 0.05))
			assert.False(t, o.wrong)
		})
	}
	const page, begin, end = "../../../../docs/llm.md", "<!-- accuracy begin -->\n", "<!-- accuracy end -->"
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	head, rest, ok := strings.Cut(string(text), begin)
	_, tail, ok2 := strings.Cut(rest, end)
	require.True(t, ok && ok2, "the markers are in the page")
	want := head + begin + table.String() + end + tail
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(want), 0o600))
	}
	assert.True(t, *update || want == string(text), "the table of docs/llm.md is old (go test -run Accuracy -update .)")
}

// Four requests of 40 s, two seconds apart: each arrives when most of its time is settled.
func TestRequestsLongerThanTheSettleDelayHaveTheirShares(t *testing.T) {
	var jobs []job
	for i := range int64(4) {
		jobs = append(jobs, job{10e9 + i*2e9, 50e9 + i*2e9, true})
	}
	known := serve(jobs, staleBy(0), 120e9).attribute(t, 15e9)
	assert.InDelta(t, 1, known.sum, 0.01)
	assert.LessOrEqual(t, known.tail, 0.02)
	unknown := serve(jobs, nil, 120e9).attribute(t, 15e9)
	assert.InDelta(t, 1, unknown.sum, 0.01)
	assert.LessOrEqual(t, unknown.tail, 0.26, "the newest seconds were settled before the next one arrived")
	assert.Zero(t, unknown.outside)
}

// Rounds of three requests of 2 s, of which one has a span: the readings of most rounds are taken
// while it runs, and say how many run beside it.
func TestReadingsWhileARequestRunsAreTrusted(t *testing.T) {
	var jobs []job
	for i := range int64(120) {
		for k := range 3 {
			jobs = append(jobs, job{10e9 + i*25e8, 12e9 + i*25e8, k == 0})
		}
	}
	o := serve(jobs, staleBy(0), 330e9).attribute(t, 15e9)
	assert.InDelta(t, 1, o.sum, 0.001)
	assert.LessOrEqual(t, o.tail, 0.001)
}

// A count that is always 0, such as of a prefill server, is wrong as soon as requests have run for
// two readings, whether their spans arrive in time or late.
func TestCountBelowTheRunningRequestsIsFoundToBeWrong(t *testing.T) {
	for _, length := range []int64{2, 40} {
		s := serve([]job{{10e9, (10 + length) * 1e9, true}}, staleBy(0), 120e9)
		for i := range s.levels {
			s.levels[i].Running = 0
		}
		d := attribution.New(attribution.Limits{}, &attribution.Budget{Max: 100})
		d.Settle(9e9, s)
		d.Settle((length-5)*1e9, s)
		take(d, attribution.Span{Key: key(1), Process: 1, Start: 10e9, End: (10 + length) * 1e9, Yields: true, Request: true}, s)
		assert.False(t, d.Contradicts(1) && length < 10)
		d.Settle((20+length)*1e9, s)
		assert.True(t, d.Contradicts(1), "%d s", length)
	}
}
