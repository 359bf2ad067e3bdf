// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetricsconnector

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/connector/connectortest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/otelgpu/otelgpu/connector/gpumetricsconnector/internal/metadata"
)

func rankOf(rank, world int) attrs {
	return attrs{
		"service.name": "trainer", "gpu.job.id": "j1", "gpu.job.rank": rank, "gpu.job.world_size": world,
		"host.name": fmt.Sprint("n", rank/8),
	}
}

// trainStep returns a step of 100 ms, as in synchronous training: late ranks do not wait, fast ones
// wait in comm. backward is the rank's own time in ms.
func trainStep(t *testing.T, rank, world, index int, backward float64) ptrace.Traces {
	return trainStepAt(t, 0, rank, world, index, backward)
}

// trainStepAt returns a step that starts the given number of µs after epoch.
func trainStepAt(t *testing.T, start uint64, rank, world, index int, backward float64) ptrace.Traces {
	const data, forward, total = 5.0, 30.0, 100.0
	return batch(t, rankOf(rank, world), span{"step", start, start + 100_000, attrs{
		"gpu.operation.type": "step", "gpu.operation.name": "train", "gpu.step.index": index,
		"gpu.step.duration":            total / 1000,
		"gpu.step.phase.duration.data": data / 1000, "gpu.step.phase.duration.forward": forward / 1000,
		"gpu.step.phase.duration.backward": backward / 1000,
		"gpu.step.phase.duration.comm":     (total - data - forward - backward) / 1000, "gpu.step.overlap.duration": 0.0,
		"gpu.step.other.duration": 0.0,
	}, byte(rank + 1), 0, ""})
}

func scores(t *testing.T, a *aggregator, now int64) (score map[int]float64, delay map[string]float64) {
	t.Helper()
	score, delay = map[int]float64{}, map[string]float64{}
	md := output(t, a, now)
	for _, rm := range md.ResourceMetrics().All() {
		rm.ScopeMetrics().At(0).Metrics().RemoveIf(func(m pmetric.Metric) bool {
			return !strings.HasPrefix(m.Name(),
				"gpu.straggler.")
		})
	}
	for k, v := range values(t, md) {
		var rank int
		if n, _ := fmt.Sscanf(k, "gpu.straggler.score[gpu.job.id:j1 gpu.job.rank:%d gpu.operation.name:train]",
			&rank); n == 1 {
			score[rank] = v.(float64)
		}
		var section string
		if n, _ := fmt.Sscanf(k,
			"gpu.straggler.delay[gpu.job.id:j1 gpu.job.rank:%d gpu.operation.name:train gpu.straggler.section:%s", &rank,
			&section); n == 2 {
			delay[fmt.Sprint(rank, " ", section[:len(section)-1])] = v.(float64)
		}
	}
	return score, delay
}

func TestTheFindingNamesTheSlowRankAndItsSection(t *testing.T) {
	a := newTest(t, nil)
	for index := range 3 {
		for rank := range 8 {
			backward := 40 + float64(rank)/10 // ranks differ a little
			if rank == 5 {
				backward = 61
			}
			a.take(trainStep(t, rank, 8, index+1, backward), clock)
		}
	}
	score, delay := scores(t, a, clock)
	// Own times are 75.0 75.1 75.2 75.3 75.4 75.6 75.7 and 96; the lower median is 75.3.
	assert.Len(t, score, 8)
	assert.InEpsilon(t, 96/75.3, score[5], 1e-9)
	assert.InEpsilon(t, 75/75.3, score[0], 1e-9)
	// The lower median of backward is 40.3.
	assert.Len(t, delay, 1)
	assert.InEpsilon(t, 0.061-0.0403, delay["5 backward"], 1e-9)
}

func TestStragglersPointToTheirSteps(t *testing.T) {
	for _, limit := range []int{5, 0} {
		a := newTest(t, func(c *Config) { c.MaxExemplars = limit })
		for rank := range 4 {
			a.take(trainStep(t, rank, 4, 1, 40+float64(rank/3*20)), clock)
		}
		found := map[string]int{}
		for _, rm := range output(t, a, clock).ResourceMetrics().All() {
			for _, m := range rm.ScopeMetrics().At(0).Metrics().All() {
				if !strings.HasPrefix(m.Name(), "gpu.straggler.") {
					continue
				}
				for _, p := range m.Gauge().DataPoints().All() {
					rank, _ := p.Attributes().Get("gpu.job.rank")
					require.Equal(t, min(1, limit), p.Exemplars().Len())
					for _, x := range p.Exemplars().All() {
						found[m.Name()]++
						assert.EqualValues(t, rank.Int()+1, x.SpanID()[0], "the rank's step")
						assert.EqualValues(t, 1, x.TraceID()[0])
						assert.EqualValues(t, p.DoubleValue(), x.DoubleValue())
						assert.EqualValues(t, epoch+100_000_000, x.Timestamp())
					}
				}
			}
		}
		if limit > 0 {
			assert.Equal(t, map[string]int{"gpu.straggler.score": 4, "gpu.straggler.delay": 1}, found)
		}
	}
}

func TestEqualRanksHaveNoStraggler(t *testing.T) {
	a := newTest(t, nil)
	r := rand.New(rand.NewPCG(1, 1))
	for index := range 50 {
		for rank := range 16 {
			a.take(trainStep(t, rank, 16, index+1, 40+r.NormFloat64()*0.3), clock)
		}
	}
	score, delay := scores(t, a, clock)
	assert.Len(t, score, 16)
	assert.Empty(t, delay)
}

func TestMissingRanksAreWaitedForAWhile(t *testing.T) {
	a := newTest(t, nil)
	for rank := range 7 { // the eighth never reports
		a.take(trainStep(t, rank, 8, 1, 40), clock)
	}
	score, _ := scores(t, a, clock+int64(29*time.Second))
	assert.Empty(t, score)
	score, _ = scores(t, a, clock+int64(30*time.Second))
	assert.Len(t, score, 7)
	a.take(trainStep(t, 7, 8, 1, 40), clock)
	assert.EqualValues(t, 1, a.stats.stepLate)
	score, _ = scores(t, a, clock+int64(90*time.Second))
	assert.Empty(t, score)
}

func TestTwoRanksAreCompared(t *testing.T) {
	a := newTest(t, nil)
	for rank := range 2 {
		a.take(trainStep(t, rank, 2, 1, 40+15*float64(rank)), clock)
	}
	score, delay := scores(t, a, clock)
	assert.Equal(t, map[int]float64{0: 1, 1: 90.0 / 75}, score)
	assert.InDelta(t, 0.015, delay["1 backward"], 1e-12)
}

func TestFewerRanksThanConfiguredAreCountedByReason(t *testing.T) {
	a := newTest(t, func(c *Config) { c.Stragglers.Get().MinRanks = 3 })
	for rank := range 2 {
		a.take(trainStep(t, rank, 2, 1, 40), clock)
	}
	score, _ := scores(t, a, clock)
	assert.Empty(t, score)
	assert.EqualValues(t, 2, a.stats.uncompared[aloneFewRanks])
}

// withMeetings inserts collectives as children before the step, as the Python package sends them.
func withMeetings(t *testing.T, td ptrace.Traces, meetings ...attrs) ptrace.Traces {
	t.Helper()
	ss := td.ResourceSpans().At(0).ScopeSpans().At(0)
	step := ss.Spans().At(0)
	all := ptrace.NewSpanSlice()
	for i, m := range meetings {
		s := all.AppendEmpty()
		s.SetTraceID(step.TraceID())
		s.SetSpanID(pcommon.SpanID{step.SpanID()[0], 1, byte(i)})
		s.SetParentSpanID(step.SpanID())
		s.SetStartTimestamp(step.EndTimestamp() - 1000)
		s.SetEndTimestamp(step.EndTimestamp())
		require.NoError(t, s.Attributes().FromRaw(m))
		s.Attributes().PutStr("gpu.operation.type", "collective")
	}
	step.CopyTo(all.AppendEmpty())
	all.CopyTo(ss.Spans())
	return td
}

func TestStagesOfAPipelineAreComparedWithTheirReplicas(t *testing.T) {
	group := func(id string, sequence int) attrs {
		return attrs{"gpu.collective.group.id": id, "gpu.collective.sequence": sequence}
	}
	peer := func(rank int) attrs {
		return attrs{"gpu.collective.group.id": "0 [0, 1, 2, 3]", "gpu.collective.peer.rank": rank}
	}
	for name, c := range map[string]struct {
		meetings   [4][]attrs
		want       map[string]float64
		uncompared map[aloneReason]int64
	}{
		"without collectives the heavy stage stands out": {
			want: map[string]float64{"2 backward": 0.020, "3 backward": 0.038},
		},
		"the late replica of the heavy stage": {
			meetings: [4][]attrs{
				{group("1 [0, 1]", 5), peer(2)},
				{group("1 [0, 1]", 5), peer(3)},
				{group("2 [2, 3]", 9)},
				{group("2 [2, 3]", 9)},
			},
			want: map[string]float64{"3 backward": 0.018},
		},
		"a replica at another collective": {
			meetings: [4][]attrs{
				{group("1 [0, 1]", 5), peer(2)},
				{group("1 [0, 1]", 5), peer(3)},
				{group("2 [2, 3]", 9)},
				{group("2 [2, 3]", 8)},
			},
			want: map[string]float64{}, uncompared: map[aloneReason]int64{aloneOutOfStep: 2},
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := newTest(t, nil)
			for rank, backward := range []float64{20, 20, 40, 58} {
				a.take(withMeetings(t, trainStep(t, rank, 4, 1, backward), c.meetings[rank]...), clock)
			}
			_, delay := scores(t, a, clock)
			for k, v := range c.want {
				assert.InDelta(t, v, delay[k], 1e-12, k)
			}
			assert.Len(t, delay, len(c.want))
			for why, n := range a.stats.uncompared {
				assert.Equal(t, c.uncompared[aloneReason(why)], n, why)
			}
		})
	}
}

func TestTheLogStatesWhyNothingIsCompared(t *testing.T) {
	core, logs := observer.New(zap.WarnLevel)
	set := connectortest.NewNopSettings(metadata.Type)
	set.Logger = zap.New(core)
	c, err := newConnector(testConfig(), set)
	require.NoError(t, err)
	for index := range 3 {
		td := trainStep(t, 1, 4, index+1, 40)
		td.ResourceSpans().At(0).Resource().Attributes().Remove("gpu.job.id")
		require.NoError(t, c.ConsumeTraces(t.Context(), td))
	}
	require.NoError(t, c.ConsumeTraces(t.Context(), trainStep(t, 1, 4, 1, 40)))
	real := c.clock
	c.clock = func() time.Time { return real().Add(c.cfg.Stragglers.Get().MaxWait + time.Second) }
	c.flush(t.Context(), false)
	require.Equal(t, 2, logs.Len())
	assert.Contains(t, logs.All()[0].Message, "no job ID in common")
	assert.Contains(t, logs.All()[1].Message, "too few ranks report")
	require.NoError(t, c.Shutdown(t.Context()))
}

// The last steps of a stopped job lack ranks, and a job may have one rank: neither is a
// configuration error.
func TestTheLogDoesNotMentionTheLastStepsAndJobsOfOneRank(t *testing.T) {
	core, logs := observer.New(zap.WarnLevel)
	set := connectortest.NewNopSettings(metadata.Type)
	set.Logger = zap.New(core)
	c, err := newConnector(testConfig(), set)
	require.NoError(t, err)
	require.NoError(t, c.ConsumeTraces(t.Context(), trainStep(t, 0, 1, 1, 40)))
	require.NoError(t, c.ConsumeTraces(t.Context(), trainStep(t, 1, 4, 1, 40)))
	c.flush(t.Context(), true)
	assert.Empty(t, logs.All())
	require.NoError(t, c.Shutdown(t.Context()))
}

func TestARestartedJobIsComparedAgain(t *testing.T) {
	a := newTest(t, nil)
	at := uint64(0)
	for _, index := range []int{1000, 1001, 950, 951, 1, 2} {
		at += 100_000
		for rank := range 4 {
			a.take(trainStepAt(t, at, rank, 4, index, 40), clock)
		}
		score, _ := scores(t, a, clock)
		assert.Len(t, score, 4, index)
	}
	assert.Zero(t, a.stats.stepLate)
}

// In a profiler's file, phases are host ranges, which overlap communication even while the host
// only waits for it, so the file states the exposed time. Rank 3 is slow: it computes for 90 of 100
// ms, and the others wait for it.
func TestStatedExposedCommunicationOverridesOverlap(t *testing.T) {
	a := newTest(t, nil)
	for rank := range 4 {
		exposed := 0.050
		if rank == 3 {
			exposed = 0.010
		}
		a.take(batch(t, rankOf(rank, 4), span{"step", 0, 100_000, attrs{
			"gpu.operation.type": "step", "gpu.operation.name": "train", "gpu.step.index": 1, "gpu.step.duration": 0.1,
			"gpu.step.phase.duration.comm": exposed + 0.002, "gpu.step.phase.duration.backward": 0.095,
			"gpu.step.overlap.duration": exposed, "gpu.step.comm.exposed.duration": exposed,
		}, byte(rank + 1), 0, ""}), clock)
	}
	score, _ := scores(t, a, clock)
	assert.InEpsilon(t, 0.09/0.05, score[3], 1e-9)
	assert.InEpsilon(t, 1, score[0], 1e-9)
}

func TestPendingStepsAreLimited(t *testing.T) {
	a := newTest(t, func(c *Config) { c.Stragglers.Get().MaxWaiting = 50 })
	for index := range 30 {
		for rank := range 8 {
			a.take(trainStep(t, rank, 100, index+1, 40), clock)
		}
	}
	assert.Equal(t, 50, a.jobs.jobs.Waiting())
	assert.EqualValues(t, 30*8-50, a.stats.stepLimit)
	a.output(clock, true)
	assert.Zero(t, a.jobs.jobs.Waiting())
}

// Phases of gpuspan are timed on the device: communication that other phases overlap is hidden, so
// it is the rank's own time.
func TestHiddenCommunicationIsTheRanksOwnTime(t *testing.T) {
	a := newTest(t, nil)
	for rank := range 4 {
		comm, overlap := 0.030, 0.010
		if rank == 3 {
			overlap = 0.025
		}
		a.take(batch(t, rankOf(rank, 4), span{"step", 0, 100_000, attrs{
			"gpu.operation.type": "step", "gpu.operation.name": "train", "gpu.step.index": 1, "gpu.step.duration": 0.1,
			"gpu.step.phase.duration.comm": comm, "gpu.step.phase.duration.backward": 0.08, "gpu.step.overlap.duration": overlap,
		}, byte(rank + 1), 0, ""}), clock)
	}
	score, _ := scores(t, a, clock)
	assert.InEpsilon(t, 0.095/0.08, score[3], 1e-9)
	assert.InEpsilon(t, 1, score[0], 1e-9)
}
