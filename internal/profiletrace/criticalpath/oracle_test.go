// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package criticalpath

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/profiletrace/timeline"
)

// program is a random program as a graph of moments. Every moment is as early as the edges that
// lead to it allow. The recorder sees the times only; the oracle sees the edges only.
type program struct {
	edges   [][]edge // by the moment that they lead to
	streams map[uint32]*queue
	acts    []queued
	ranges  map[uint32][]hostRange
	waits   []eventWait
	blocks  bool // threads wait for what they launched
	rand    *rand.Rand
}

type edge struct {
	from   int
	weight int64
	label  string
}

type queue struct {
	last  int // moment at which its last activity ends
	after []int
}

type queued struct {
	call, start, end int // moments
	stream, thread   uint32
	name             uint32
}

type hostRange struct {
	from, to int
	class    timeline.Range
	name     uint32
}

const (
	oracleDelay  = 3000 // ns from a launch to the start
	oracleReturn = 1000 // ns from the end of work to the end of the wait for it
)

func (p *program) moment(edges ...edge) int {
	p.edges = append(p.edges, edges)
	return len(p.edges) - 1
}

// times returns the earliest time of each moment: the length of the longest path to it.
func (p *program) times() []int64 {
	at := make([]int64, len(p.edges))
	for i, list := range p.edges {
		for _, e := range list {
			at[i] = max(at[i], at[e.from]+e.weight)
		}
	}
	return at
}

// longest returns the weights by label along the longest path to a moment, by trying all paths back
// from it.
func (p *program) longest(to int) map[string]int64 {
	type result struct {
		length int64
		via    int
	}
	known := map[int]result{}
	var find func(int) int64
	find = func(i int) int64 {
		if r, ok := known[i]; ok {
			return r.length
		}
		best := result{via: -1}
		for k, e := range p.edges[i] {
			if n := find(e.from) + e.weight; best.via < 0 || n > best.length {
				best = result{n, k}
			}
		}
		known[i] = best
		return best.length
	}
	find(to)
	sums := map[string]int64{}
	for i := to; known[i].via >= 0; {
		e := p.edges[i][known[i].via]
		sums[e.label] += e.weight
		i = e.from
	}
	delete(sums, "")
	return sums
}

func label(k Kind, lane, name uint32) string {
	switch k {
	case Host:
		return fmt.Sprint("host ", lane, " ", name)
	case Kernel:
		return fmt.Sprint("kernel ", name)
	}
	return k.String()
}

// run adds what a thread does, from a moment on.
func (p *program) run(thread uint32, from, items int) {
	now := from
	spend := func(class timeline.Range, name uint32, length int64) {
		next := p.moment(edge{now, length, label(Host, thread, name)})
		p.ranges[thread] = append(p.ranges[thread], hostRange{now, next, class, name})
		now = next
	}
	for range items {
		name := 1 + uint32(p.rand.IntN(5))
		length := func(most int64) int64 { return 1000 + p.rand.Int64N(most) }
		what := p.rand.IntN(9)
		if what == 0 && !p.blocks {
			what = 3
		}
		switch stream := 10*thread + uint32(p.rand.IntN(3)); what {
		case 0: // a wait for all that this thread has launched
			edges := []edge{{now, oracleReturn, label(Host, thread, 5)}}
			for _, s := range slices.Sorted(func(yield func(uint32) bool) {
				for k := range p.streams {
					if k/10 == thread && !yield(k) {
						return
					}
				}
			}) {
				if q := p.streams[s]; q.last >= 0 {
					edges = append(edges, edge{q.last, oracleReturn, label(Host, thread, 5)})
				}
			}
			next := p.moment(edges...)
			p.ranges[thread] = append(p.ranges[thread], hostRange{now, next, timeline.CallWait, 5})
			now = next
			spend(timeline.RangeOperator, name, length(3000))
		case 1, 2: // a stream waits for another one
			on := 10*thread + uint32(p.rand.IntN(3))
			if q := p.streams[on]; on != stream && q != nil && q.last >= 0 {
				s := p.stream(stream)
				s.after = append(s.after, q.last)
				p.waits = append(p.waits, eventWait{called: int64(now), recorded: int64(now), stream: stream, on: on})
			}
			spend(timeline.RangeOperator, name, length(4000))
		case 3, 4:
			spend(timeline.RangeOperator, name, length(60_000))
		default:
			s := p.stream(stream)
			call := now
			edges := []edge{{call, oracleDelay, LaunchDelay.String()}}
			if s.last >= 0 {
				edges = append(edges, edge{s.last, 0, ""})
			}
			for _, m := range s.after {
				edges = append(edges, edge{m, 0, ""})
			}
			s.after = nil
			start := p.moment(edges...)
			kernel := 6 + uint32(p.rand.IntN(4))
			end := p.moment(edge{start, length(50_000), label(Kernel, 0, kernel)})
			s.last = end
			p.acts = append(p.acts, queued{call, start, end, stream, thread, kernel})
			spend(timeline.CallLaunch, 0, length(5000))
		}
	}
}

func (p *program) stream(n uint32) *queue {
	if p.streams[n] == nil {
		p.streams[n] = &queue{last: -1}
	}
	return p.streams[n]
}

// The path that the recorder finds from times is the longest path through the graph that the times
// were made of.
func TestThePathIsTheLongestOfRandomPrograms(t *testing.T) {
	judged := 0
	for seed := range uint64(400) {
		p := &program{
			streams: map[uint32]*queue{}, ranges: map[uint32][]hostRange{}, rand: rand.New(rand.NewPCG(seed, 7)),
		}
		begin := p.moment()
		threads := 1 + uint32(seed%2)
		p.blocks = threads == 1 // of several, the times do not tell for whose work a wait is
		for th := uint32(1); th <= threads; th++ {
			p.run(th, begin, 20+p.rand.IntN(120))
		}
		if len(p.acts) == 0 {
			continue
		}
		at := p.times()
		last := p.acts[0]
		for _, a := range p.acts {
			if at[a.end] > at[last.end] {
				last = a
			}
		}
		got, path := recorded(p, at)
		if len(p.acts) > 8 { // of fewer, the usual delay of a launch is not known exactly
			require.Equal(t, p.longest(last.end), got, "seed %d", seed)
			judged++
		}
		require.EqualValues(t, at[last.end], path.Length, "seed %d", seed)
		adds(t, path)
	}
	require.Greater(t, judged, 300)
}

// recorded returns what the recorder finds from the times.
func recorded(p *program, at []int64) (map[string]int64, *Path) {
	r := NewRecorder(false, 0)
	for th, list := range p.ranges {
		log := &timeline.Log{}
		r.Thread(th, log.Remember())
		for _, x := range list {
			log.Add(at[x.from], at[x.to], x.class, x.name, func() int64 { return 0 })
		}
	}
	for _, w := range p.waits {
		r.Wait(at[w.called], w.stream, at[w.recorded], w.on)
	}
	sort.SliceStable(p.acts, func(i, j int) bool { return at[p.acts[i].start] < at[p.acts[j].start] })
	for _, a := range p.acts {
		r.Add(Activity{
			Start: at[a.start], End: at[a.end], Called: at[a.call], Returned: at[a.call] + 1, Stream: a.stream, Thread: a.thread,
			Name: a.name, Kind: Kernel, Launched: true,
		})
	}
	path := r.Path(naming)
	got := map[string]int64{}
	for k, x := range r.sums.parts {
		got[label(k.kind, k.lane, k.name)] += x.time
	}
	return got, path
}
