// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/conformance"
	"github.com/otelgpu/otelgpu/internal/recorded"
	"github.com/otelgpu/otelgpu/receiver/kinetoreceiver"
	"github.com/otelgpu/otelgpu/semconv"
)

// world is a simulated job. Ranks compute, run the collective of their pair, compute, and run the
// collective of all ranks. A collective ends for all ranks once the last one has arrived and the
// bytes are transferred.
type world struct {
	r       *rand.Rand
	ranks   int
	job     string
	steps   int
	extra   func(step, rank int) int64 // ns of additional computation
	clock   []int64                    // ns, by rank
	start   int64                      // start of the first step, on the true clock
	renamed bool                       // each rank uses its own names of collectives
	begins  func(rank int) int         // first recorded step of the rank; nil: 0
	torn    bool                       // the ends of a collective are far apart, so that clocks cannot be aligned

	spans []ptrace.SpanSlice
	all   []ptrace.Traces
	held  []int64 // ns, true wait of the others for the rank
}

func newWorld(seed uint64, ranks, steps int) *world {
	w := &world{
		r: rand.New(rand.NewPCG(seed, 3)), ranks: ranks, steps: steps, clock: make([]int64, ranks),
		start: 1_700_000_000_000_000_000,
		extra: func(int, int) int64 { return 0 },
	}
	return w
}

func (w *world) run() *world {
	now := make([]int64, w.ranks)
	w.held = make([]int64, w.ranks)
	for rank := range w.ranks {
		td := ptrace.NewTraces()
		rs := td.ResourceSpans().AppendEmpty()
		m := rs.Resource().Attributes()
		m.PutInt(string(semconv.GPUJobRankKey), int64(rank))
		m.PutInt(string(semconv.GPUJobWorldSizeKey), int64(w.ranks))
		if w.job != "" {
			m.PutStr(string(semconv.GPUJobIDKey), w.job)
		}
		w.all = append(w.all, td)
		w.spans = append(w.spans, rs.ScopeSpans().AppendEmpty().Spans())
		now[rank] = w.start + w.r.Int64N(100_000)
	}
	for step := range w.steps {
		for rank := range w.ranks {
			if w.begins != nil && w.begins(rank) == step { // earlier steps are not recorded
				w.spans[rank].RemoveIf(func(ptrace.Span) bool { return true })
			}
			w.kernel(rank, &now[rank], 1_000_000+w.r.Int64N(40_000)+w.extra(step, rank))
		}
		for first := 0; first+1 < w.ranks; first += 2 {
			w.meet(now, []int{first, first + 1}, fmt.Sprintf("pair%d", first/2), "all_gather", 100_000)
		}
		for rank := range w.ranks {
			w.kernel(rank, &now[rank], 500_000+w.r.Int64N(20_000))
		}
		everybody := make([]int, w.ranks)
		for i := range everybody {
			everybody[i] = i
		}
		w.meet(now, everybody, "all", "all_reduce", 300_000)
	}
	return w
}

func (w *world) span(rank int, kind, name string, start, end int64) ptrace.Span {
	s := w.spans[rank].AppendEmpty()
	s.SetName(name)
	s.SetStartTimestamp(pcommon.Timestamp(start + w.clock[rank]))
	s.SetEndTimestamp(pcommon.Timestamp(end + w.clock[rank]))
	s.Attributes().PutStr(string(semconv.GPUOperationTypeKey), kind)
	return s
}

func (w *world) kernel(rank int, now *int64, length int64) {
	w.span(rank, semconv.GPUOperationTypeKernel, "gemm", *now, *now+length)
	*now += length
}

func (w *world) meet(now []int64, members []int, group, name string, moving int64) {
	last := members[0]
	for _, m := range members {
		if now[m] > now[last] {
			last = m
		}
	}
	came := now[last]
	for _, m := range members {
		w.held[last] += came - now[m]
		end := came + moving + w.r.Int64N(2_000)
		begin := now[m]
		if w.torn { // each record is shifted in time, keeping its order
			off := (begin-w.start)*int64(m+1)/4 + w.r.Int64N(400_000)
			begin, end = begin+off, end+off
		}
		n := name
		if w.renamed {
			n = fmt.Sprint(name, "_of_rank_", m)
		}
		s := w.span(m, semconv.GPUOperationTypeCollective, n, begin, end)
		s.Attributes().PutStr(string(semconv.GPUCollectiveGroupNameKey), group)
		if w.torn {
			end = came + moving
		}
		now[m] = end
	}
}

func (w *world) into(p *Profiles, missing ...int) {
	for rank, td := range w.all {
		gone := false
		for _, m := range missing {
			gone = gone || m == rank
		}
		if !gone {
			p.Add(fmt.Sprintf("folder%p/%d.json", w, rank), td)
		}
	}
}

func jobsOf(worlds ...*world) []Job {
	var p Profiles
	for _, w := range worlds {
		w.into(&p)
	}
	return p.Jobs()
}

// late returns a delay for a rank that computes for longer.
func late(rank int, extra int64) func(int, int) int64 {
	return func(_, r int) int64 {
		if r == rank {
			return extra
		}
		return 0
	}
}

func TestThePlantedRankIsFoundInWorldsOfAnySize(t *testing.T) {
	for ranks := 2; ranks <= 16; ranks++ {
		for _, days := range []int64{0, 1} { // distance between the clocks
			w := newWorld(uint64(ranks), ranks, 12)
			culprit := w.r.IntN(ranks)
			w.extra = late(culprit, 800_000)
			for i := range w.clock {
				w.clock[i] = w.r.Int64N(1 + days*int64(24*time.Hour))
			}
			w.run()
			jobs := jobsOf(w)
			require.Len(t, jobs, 1, "%d ranks", ranks)
			j := jobs[0]
			require.Len(t, j.Ranks, ranks)
			require.NotEmpty(t, j.Late)
			assert.EqualValues(t, culprit, j.Late[0].Rank, j.Says)
			assert.Equal(t, ByArrival, j.Method)
			var held, want int64 // totals: of two ranks that arrive together, either may be the last
			for rank, r := range j.Ranks {
				held, want = held+r.HeldUp.Nanoseconds(), want+w.held[rank]
				assert.Equal(t, map[bool]int{true: 12, false: 24}[ranks%2 == 1 && rank == ranks-1], r.Collectives)
			}
			assert.InDelta(t, want, held, float64(24*ranks)*3_000, "against what the simulation counted")
			l := j.Late[0]
			assert.InEpsilon(t, 12*820_000, l.Each.Nanoseconds(), 0.15)
			assert.InEpsilon(t, 12*820_000, l.Computing.Nanoseconds(), 0.2, "what it computed more in 12 steps")
			assert.Less(t, l.Idle.Abs(), l.Computing/4)
			assert.Contains(t, j.Says, "more of computation")
			assert.Less(t, l.First, l.Last)
		}
	}
}

func TestEqualRanksHaveNoLateRank(t *testing.T) {
	w := newWorld(1, 8, 10)
	w.extra = func(int, int) int64 { return 0 }
	jobs := jobsOf(w.run())
	require.Len(t, jobs, 1)
	for _, l := range jobs[0].Late { // noise of 40 µs in steps of 2 ms may be reported, but without a late rank
		assert.Less(t, l.Each, 150*time.Microsecond)
	}
}

// If the ends of collectives do not agree on any clock, the rank with the shortest ones arrived
// last. Stages of a pipeline pass their results on in pairs and wait alternately, regardless of the
// last one; a stage that computes for longer than the others is still late.
func TestBalancedPipelineStagesHaveNoLateRank(t *testing.T) {
	const stages, batches, steps, length = 4, 6, 5, 2_000_000
	for slow := range stages + 1 { // in the last iteration: none
		w := newWorld(uint64(90+slow), stages, 0).run()
		now := make([]int64, stages)
		for i := range now {
			now[i] = w.start
		}
		compute := func(stage int) {
			n := int64(length)
			if stage == slow {
				n *= 2
			}
			w.kernel(stage, &now[stage], n)
		}
		for range steps {
			for range batches {
				for stage := range stages {
					if stage > 0 {
						w.meet(now, []int{stage - 1, stage}, fmt.Sprint("pp", stage), "ncclDevKernel_SendRecv", 50_000)
					}
					compute(stage)
				}
			}
			last := slices.Max(now)
			for i := range now {
				now[i] = last
			}
		}
		jobs := jobsOf(w)
		require.Len(t, jobs, 1)
		if slow < stages {
			require.NotEmpty(t, jobs[0].Late, jobs[0].Says)
			assert.Equal(t, int64(slow), jobs[0].Late[0].Rank, jobs[0].Says)
			assert.Zero(t, jobs[0].Bubbles)
			continue
		}
		assert.Empty(t, jobs[0].Late)
		// With s stages and b batches, (s-1)/(b+s-1) of a step is the pipeline bubble, plus a
		// little for transfers.
		assert.InDelta(t, float64(stages-1)/float64(batches+stages-1), jobs[0].Bubbles, 0.05)
		assert.Contains(t, jobs[0].Says, "they are stages of a pipeline that compute equally long")
	}
}

func TestClocksThatCannotBeAligned(t *testing.T) {
	for seed := range uint64(8) {
		w := newWorld(seed, 8, 12)
		culprit := w.r.IntN(8)
		w.extra, w.torn = late(culprit, 900_000), true
		j := jobsOf(w.run())[0]
		assert.Equal(t, ByLength, j.Method)
		assert.EqualValues(t, culprit, j.Late[0].Rank, j.Says)
		assert.InEpsilon(t, 12*920_000, j.Late[0].Each.Nanoseconds(), 0.15)
		assert.Contains(t, j.Says, "clocks cannot be aligned")
	}
}

// If no collectives match, the rank that communicates far less than the others is the late one.
func TestCollectivesThatDoNotMatch(t *testing.T) {
	for seed := range uint64(8) {
		w := newWorld(seed, 6, 12)
		culprit := w.r.IntN(6)
		w.extra, w.renamed = late(culprit, 900_000), true
		j := jobsOf(w.run())[0]
		assert.Equal(t, ByCommunication, j.Method)
		require.Len(t, j.Late, 1)
		assert.EqualValues(t, culprit, j.Late[0].Rank, j.Says)
		assert.Zero(t, j.Ranks[0].Collectives)
	}
}

// Profilers of ranks start at different steps, and their clocks may differ.
func TestRecordsThatBeginAtDifferentSteps(t *testing.T) {
	for seed := range uint64(40) {
		for _, hours := range []int64{0, 40} {
			w := newWorld(seed, 8, 40)
			w.begins = func(rank int) int { return []int{0, 3, 0, 1, 12, 0, 7, 1}[(rank+int(seed))%8] }
			w.extra = late(5, 300_000)
			for rank := range w.clock {
				w.clock[rank] = hours * 3_600_000_000_000 * int64(rank%3)
			}
			jobs := jobsOf(w.run())
			require.Len(t, jobs, 1)
			assert.Equal(t, ByArrival, jobs[0].Method)
			require.NotEmpty(t, jobs[0].Late)
			assert.EqualValues(t, 5, jobs[0].Late[0].Rank, "seed %d, %d h", seed, hours)
			for _, r := range jobs[0].Ranks {
				pairs, all := 40-max(w.begins(int(r.Rank)), w.begins(int(r.Rank)^1)), 40-w.begins(int(r.Rank))
				assert.Equal(t, pairs+all, r.Collectives, "rank %d", r.Rank)
			}
		}
	}
}

func TestMissingFilesAndRanksOfTwoJobsInOneFolder(t *testing.T) {
	one, two := newWorld(7, 8, 10), newWorld(8, 8, 10) // of the same size, at the same time, without a job name
	one.extra = late(2, 700_000)
	two.extra = func(step, rank int) int64 { return 600_000 + late(5, 700_000)(step, rank) } // a different model
	var p Profiles
	one.run().into(&p, 0, 6)
	two.run().into(&p, 1)
	jobs := p.Jobs()
	require.Len(t, jobs, 2)
	var sizes []int
	var culprits []int64
	for _, j := range jobs {
		require.NotEmpty(t, j.Late, j.Says)
		sizes, culprits = append(sizes, len(j.Ranks)), append(culprits, j.Late[0].Rank)
	}
	assert.ElementsMatch(t, []int{6, 7}, sizes)
	assert.ElementsMatch(t, []int64{2, 5}, culprits)

	four := newWorld(9, 4, 10)
	four.job, four.extra = "other", late(1, 700_000)
	assert.Len(t, jobsOf(one, four.run()), 2, "another size, another job")

	alone := Profiles{}
	one.into(&alone, 0, 1, 2, 3, 4, 5, 6)
	assert.Empty(t, alone.Jobs(), "one rank is no comparison")
}

// Jobs that run the same program at the same time: collectives of one job end closer together than
// collectives of two jobs. Otherwise, the finding states that the jobs cannot be distinguished.
func TestJobsThatRunInStep(t *testing.T) {
	jobs := func(jitter int64) []Job {
		one := newWorld(13, 4, 30)
		one.extra = late(2, 300_000)
		one.run()
		two := newWorld(13, 4, 30) // the same times except for the jitter
		two.extra = late(2, 300_000)
		two.run()
		r := rand.New(rand.NewPCG(5, 5))
		for step := range 60 { // its ranks' collectives end together, within the jitter of the other job's
			off := r.Int64N(jitter + 1)
			for rank := range two.ranks {
				n := 0
				for _, s := range two.spans[rank].All() {
					if k, _ := s.Attributes().Get(string(semconv.GPUOperationTypeKey)); k.Str() != semconv.GPUOperationTypeCollective {
						continue
					}
					if n++; n == step+1 {
						s.SetStartTimestamp(s.StartTimestamp() + pcommon.Timestamp(off))
						s.SetEndTimestamp(s.EndTimestamp() + pcommon.Timestamp(off))
					}
				}
			}
		}
		var p Profiles
		for rank := range one.ranks { // files of both jobs may share one folder, in any order
			first, second := one, two
			if rank%2 == 1 {
				first, second = two, one
			}
			p.Add(fmt.Sprintf("%p.json", first), first.all[rank])
			p.Add(fmt.Sprintf("%p.json", second), second.all[rank])
		}
		list := p.Jobs()
		require.Len(t, list, 2)
		for _, j := range list {
			assert.Len(t, j.Ranks, 4)
			assert.EqualValues(t, 2, j.Late[0].Rank)
		}
		return list
	}
	for _, j := range jobs(0) {
		assert.Contains(t, j.Says, "a rank may be another job's")
	}
	for _, j := range jobs(40_000) { // a tenth of a collective's duration: they seem to coincide
		assert.NotContains(t, j.Says, "another job's")
		for _, r := range j.Ranks {
			assert.Equal(t, j.Ranks[0].File, r.File, "of one job")
		}
	}
}

func TestARankThatIsLateForAWhile(t *testing.T) {
	w := newWorld(11, 8, 40)
	w.extra = func(step, rank int) int64 {
		if step < 25 && rank == 3 || step >= 25 && rank == 6 {
			return 800_000
		}
		return 0
	}
	j := jobsOf(w.run())[0]
	require.GreaterOrEqual(t, len(j.Late), 2)
	first, second := j.Late[0], j.Late[1]
	assert.EqualValues(t, 3, first.Rank)
	assert.EqualValues(t, 6, second.Rank)
	const step = 2_750_000 // ns: two computations, the extra and both collectives
	assert.InDelta(t, 24*step, first.Last.Nanoseconds(), 3*step)
	assert.InDelta(t, 25*step, second.First.Nanoseconds(), 3*step)
	assert.Contains(t, j.Says, "Then rank 6")
}

// Eight real ranks: the same late rank and the same waits for any clock offsets.
func TestRealRanksWithClocksThatDisagree(t *testing.T) {
	dir, lastAt, heldUp := recorded.Ranks(t)
	read := func(change func(rank int, s ptrace.Span)) Job {
		var p Profiles
		for rank := range 8 {
			path := filepath.Join(dir, fmt.Sprintf("worker%d.pt.trace.json.gz", rank))
			_, err := kinetoreceiver.ReadFile(t.Context(), path, kinetoreceiver.Options{Detail: kinetoreceiver.DetailKernels},
				func(_ context.Context, td ptrace.Traces) error {
					for _, rs := range td.ResourceSpans().All() {
						for _, ss := range rs.ScopeSpans().All() {
							for _, s := range ss.Spans().All() {
								change(rank, s)
							}
						}
					}
					p.Add(path, td)
					return nil
				})
			require.NoError(t, err)
		}
		jobs := p.Jobs()
		require.Len(t, jobs, 1)
		return jobs[0]
	}
	move := func(s ptrace.Span, by int64) {
		s.SetStartTimestamp(pcommon.Timestamp(int64(s.StartTimestamp()) + by))
		s.SetEndTimestamp(pcommon.Timestamp(int64(s.EndTimestamp()) + by))
	}
	isCollective := func(s ptrace.Span) bool {
		v, _ := s.Attributes().Get(string(semconv.GPUOperationTypeKey))
		return v.Str() == semconv.GPUOperationTypeCollective
	}
	r := rand.New(rand.NewPCG(5, 6))
	offsets := make([]int64, 8)
	for i := range offsets {
		offsets[i] = r.Int64N(int64(48*time.Hour)) - int64(24*time.Hour)
	}
	for name, c := range map[string]struct {
		method JobMethod
		change func(rank int, s ptrace.Span)
	}{
		"as recorded":      {ByArrival, func(int, ptrace.Span) {}},
		"clocks days away": {ByArrival, func(rank int, s ptrace.Span) { move(s, offsets[rank]) }},
		"ends far apart": {ByLength, func(rank int, s ptrace.Span) {
			if isCollective(s) { // in their original order
				move(s, int64(s.StartTimestamp()-1_694_128_201_420_000_000)*int64(rank+1)/4)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			j := read(c.change)
			assert.Equal(t, c.method, j.Method)
			assert.Empty(t, j.Late, "one step cannot tell a late rank from chance")
			require.NotNil(t, j.Observed)
			assert.EqualValues(t, 7, j.Observed.Rank, j.Says)
			assert.Contains(t, j.Says, "not judged: 1 step of 8 ranks")
			for rank, row := range j.Ranks {
				assert.Equal(t, lastAt[fmt.Sprint(rank)], row.Last, "rank %d", rank)
				assert.InDelta(t, heldUp[fmt.Sprint(rank)], row.HeldUp.Seconds()*1e3, 0.15, "rank %d", rank)
			}
		})
	}
	t.Run("nothing matches", func(t *testing.T) {
		j := read(func(rank int, s ptrace.Span) {
			if isCollective(s) {
				s.SetName(fmt.Sprint(s.Name(), rank))
			}
		})
		assert.Equal(t, ByCommunication, j.Method)
		assert.Empty(t, j.Late, "rank 7 communicates least, but all differ")
	})
}

// The span of a job has the values of its structure, under names of the registry.
func TestTheSpanOfAJob(t *testing.T) {
	w := newWorld(3, 4, 10)
	w.job, w.extra = "run-7", late(2, 700_000)
	jobs := jobsOf(w.run())
	td := Spans(jobs)
	require.NoError(t, conformance.Traces(td))
	rs := td.ResourceSpans().At(0)
	id, _ := rs.Resource().Attributes().Get("gpu.job.id")
	assert.Equal(t, "run-7", id.Str())
	assert.Equal(t, semconv.SchemaURL, rs.ScopeSpans().At(0).SchemaUrl())
	s := rs.ScopeSpans().At(0).Spans().At(0)
	byName := map[string]int{}
	for _, e := range s.Events().All() {
		byName[e.Name()]++
		m := e.Attributes().AsRaw()
		rank := m["gpu.job.rank"].(int64)
		if e.Name() == "finding" {
			assert.EqualValues(t, jobs[0].Late[0].Rank, rank)
			assert.Equal(t, "late_rank", m["gpu.finding.kind"])
			assert.InDelta(t, jobs[0].Late[0].Each.Seconds(), m["gpu.finding.gain"], 1e-9)
			assert.InDelta(t, jobs[0].Late[0].Computing.Seconds(), m["gpu.rank.more.duration.computing"], 1e-9)
			continue
		}
		assert.InDelta(t, jobs[0].Ranks[rank].HeldUp.Seconds(), m["gpu.rank.held_up.duration"], 1e-9)
	}
	assert.Equal(t, map[string]int{"finding": len(jobs[0].Late), "rank": 4}, byName)
	first, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(td)
	require.NoError(t, err)
	again, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(Spans(jobsOf(w)))
	require.NoError(t, err)
	assert.Equal(t, first, again, "the same profiles give the same bytes")
	assert.Contains(t, jobs[0].Says, "4 ranks of one job of 4, run-7: rank 2 of 4 is late in 10 of 10 steps, by")
}

// Tests both sides of the threshold of the comparison of ranks: one of two ranks computes longer by
// a share of the window.
func TestALateRankIsReportedFromItsThresholdOn(t *testing.T) {
	known, ok := semconv.LookupFindingKind(semconv.GPUFindingKindLateRank)
	require.True(t, ok)
	require.Contains(t, known.ReportedBy, "ranks")
	const step, steps = 10_000_000, 20
	for of, want := range map[float64]int{0.98: 0, 1.02: 1} {
		w := newWorld(1, 2, 0).run()
		late := int64(of * semconv.FindingLateRankLiveThreshold * step)
		for i := range int64(steps) {
			for rank := range 2 {
				at := w.start + i*step
				length := int64(8_000_000)
				if rank == 1 {
					length += late
				}
				w.kernel(rank, &at, length)
				s := w.span(rank, semconv.GPUOperationTypeCollective, "all_reduce", at, w.start+(i+1)*step)
				s.Attributes().PutStr(string(semconv.GPUCollectiveGroupNameKey), "all")
			}
		}
		jobs := jobsOf(w)
		require.Len(t, jobs, 1)
		require.Len(t, jobs[0].Late, want, "%g", of)
		for _, l := range jobs[0].Late {
			f := lateFinding(&jobs[0], &l)
			require.Equal(t, "rank 1", f.Subject)
			require.Equal(t, known.Remedy, f.Remedy)
			require.Equal(t, steps*time.Duration(late), f.Gain)
			require.GreaterOrEqual(t, f.Share, f.Threshold)
		}
	}
}

func TestTheSentenceOfALateRankSaysWhichCollectivesItLists(t *testing.T) {
	at := func(count int) *LateRank {
		return &LateRank{First: time.Millisecond, Last: time.Millisecond, At: []LateAt{{Collective: "all_reduce", Count: count}}}
	}
	require.Equal(t, "5 × all_reduce", longest(at(5), 5))
	require.Equal(t, "the longest waits: 2 × all_reduce", longest(at(2), 5))
	require.Equal(t, "at 1.00 ms of its window", when(at(1)))
}
