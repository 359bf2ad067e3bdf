// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package goodput

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/otelgpu/otelgpu/internal/recorded"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func ns(seconds float64) int64 { return int64(seconds * 1e9) }

// google reads an event log of Google's library as the spans that a trainer would send. The log has
// the starts of steps only: the last step of a killed attempt ended when its process did, after a
// usual step.
func google(t *testing.T, name string, usual float64) (spans []Span) {
	text, err := os.ReadFile(recorded.Path(t, "goodput", name+".events.jsonl"))
	require.NoError(t, err)
	attempt := 0
	began := map[string]float64{}
	var step *Span
	for line := range bytes.Lines(text) {
		var e map[string]any
		require.NoError(t, json.Unmarshal(line, &e))
		at := func(key string) float64 { v, _ := e[key].(float64); return v }
		if at("job_start_time") > 0 {
			attempt++
			if step != nil {
				step.End = step.Start + ns(usual)
				spans = append(spans, *step)
			}
			step = nil
		}
		end := at("job_end_time")
		if step != nil && (at("step_start_time") > 0 || end > 0 || at("custom_badput_event_start_time") > 0) {
			step.End = ns(max(at("step_start_time"), end, at("custom_badput_event_start_time")))
			spans = append(spans, *step)
			step = nil
		}
		if start := at("step_start_time"); start > 0 {
			step = &Span{Attempt: fmt.Sprint(attempt), Start: ns(start), Step: true, Index: int64(at("step_count"))}
		}
		for key, bucket := range map[string]Bucket{
			"tpu_init": Startup, "training_prep": Startup, "data_loading": Data, "custom_badput_event": Evaluation,
		} {
			if v := at(key + "_start_time"); v > 0 {
				began[key] = v
			}
			if v := at(key + "_end_time"); v > 0 {
				spans = append(spans, Span{Attempt: fmt.Sprint(attempt), Start: ns(began[key]), End: ns(v), Bucket: bucket})
			}
		}
	}
	return spans
}

func TestPlantedJobsOfGooglesLibrary(t *testing.T) {
	for _, name := range []string{"clean", "one-kill", "two-kills", "early-kill", "kill-at-checkpoint", "evals"} {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(recorded.Path(t, "goodput", name+".truth.json"))
			require.NoError(t, err)
			var truth struct {
				Usual   float64 `json:"step_s"`
				Planted struct {
					Init, Prep, Data, Productive, Wasted, Down, Eval, Total float64
					Excess                                                  float64 `json:"first_excess"`
				} `json:"planted_seconds"`
			}
			require.NoError(t, json.Unmarshal(text, &truth))
			var j Job
			spans := google(t, name, truth.Usual)
			rand.New(rand.NewPCG(1, 2)).Shuffle(len(spans), func(a, b int) { spans[a], spans[b] = spans[b], spans[a] })
			for range 2 { // repeated spans count once
				for _, s := range spans {
					j.Add(s)
				}
			}
			got, _ := j.Account()
			p := truth.Planted
			for bucket, want := range map[Bucket]float64{
				Startup: p.Init + p.Prep, Data: p.Data, Compilation: p.Excess, Productive: p.Productive, Lost: p.Wasted, Idle: p.Down,
				Evaluation: p.Eval, Unknown: 0, Hang: 0,
			} {
				assert.InDelta(t, want, got[bucket], 0.01*p.Total, Names[bucket])
				t.Logf("%-12s planted %7.2f s, found %7.2f s", Names[bucket], want, got[bucket])
			}
			assert.InDelta(t, float64(j.End-j.Start)/1e9, sum(got), 1e-6*p.Total)
		})
	}
}

func sum(buckets [Buckets]float64) (total float64) {
	for _, v := range buckets {
		total += v
	}
	return total
}

// plan writes the spans of a job with kills at random moments, and the truth by bucket.
func plan(seed uint64) (spans []Span, truth [Buckets]float64, ranks int) {
	rng := rand.New(rand.NewPCG(seed, 7))
	ranks = 1 + rng.IntN(8)
	every, target := 5+rng.IntN(20), 150+rng.IntN(150)
	step := 0.5 + 2*rng.Float64()
	now, at := 1_790_000_000.0, 0
	add := func(attempt int, b Bucket, seconds float64) {
		for r := range ranks {
			spans = append(spans, Span{
				Rank: int64(r), Attempt: fmt.Sprint(attempt), Start: ns(now), End: ns(now + seconds), Bucket: b,
			})
		}
		now += seconds
		truth[b] += seconds
	}
	for attempt := 0; at < target; attempt++ {
		add(attempt, Startup, 5+20*rng.Float64())
		saved, kill := at, target
		if attempt < int(seed%5) {
			kill = at + rng.IntN(2*every) + 1 // in steps from here
			if rng.IntN(3) == 0 {
				kill = (at/every + 1) * every // exactly at a checkpoint
			}
		}
		for first := true; at < min(kill, target); first = false {
			excess := 0.0
			if first {
				excess = 10 + 20*rng.Float64()
			}
			d := step * (1 + 0.02*rng.NormFloat64())
			for r := range ranks {
				spans = append(spans, Span{
					Rank: int64(r), Attempt: fmt.Sprint(attempt), Start: ns(now), End: ns(now + d + excess), Step: true, Index: int64(at),
				})
			}
			now += d + excess
			truth[Compilation] += excess
			truth[Productive] += d
			if at++; at%every == 0 {
				add(attempt, Checkpoint, 1+rng.Float64())
				saved = at
			}
		}
		if at < target {
			// The steps since the checkpoint are done again.
			for _, s := range spans {
				if s.Rank == 0 && s.Step && s.Attempt == fmt.Sprint(attempt) && s.Index >= int64(saved) {
					d := float64(s.End-s.Start) / 1e9
					d = min(d, step)
					truth[Productive] -= d
					truth[Lost] += d
				}
			}
			at = saved
			down := 20 + 100*rng.Float64()
			now += down
			truth[Idle] += down
		}
	}
	for b := range truth {
		truth[b] *= float64(ranks)
	}
	return spans, truth, ranks
}

func TestJobsWithKillsAtRandomMoments(t *testing.T) {
	for seed := range uint64(40) {
		spans, truth, ranks := plan(seed)
		var j Job
		rand.New(rand.NewPCG(seed, 9)).Shuffle(len(spans), func(a, b int) { spans[a], spans[b] = spans[b], spans[a] })
		for _, s := range spans {
			require.True(t, j.Add(s))
		}
		got, restarts := j.Account()
		total := float64(ranks) * float64(j.End-j.Start) / 1e9
		require.InDelta(t, total, sum(got), 1e-6*total)
		for b := range Buckets {
			require.InDelta(t, truth[b], got[b], 0.01*total, "job %d, %s", seed, Names[b])
		}
		require.Equal(t, j.Ranks(), ranks)
		require.LessOrEqual(t, restarts, 4)
	}
}

func TestGapsAreHangsUnknownOrIdle(t *testing.T) {
	var j Job
	j.World = 2
	at := 1_790_000_000.0
	for i := range 20 {
		if i == 10 {
			at += 300 // hangs and goes on
		}
		j.Add(Span{Attempt: "a", Start: ns(at), End: ns(at + 1), Step: true, Index: int64(i), Data: ns(0.25)})
		at += 1.5
	}
	j.Add(Span{Attempt: "a", Start: ns(at), End: ns(at - 5), Bucket: Startup})
	got, restarts := j.Account()
	assert.Zero(t, restarts)
	assert.InDelta(t, 300.5, got[Hang], 1e-6)
	assert.InDelta(t, 18*0.5+329.5, got[Unknown], 1e-6, "and one silent rank")
	assert.InDelta(t, 15, got[Productive], 1e-6)
	assert.InDelta(t, 5, got[Data], 1e-6)
	assert.InDelta(t, 2*329.5, sum(got), 1e-6)
}

// Days of steps take bounded memory and keep their sums.
func TestMemoryIsBounded(t *testing.T) {
	var j Job
	at := 1_790_000_000.0
	for i := range 20_000 {
		j.Add(Span{Attempt: "a", Start: ns(at), End: ns(at + 1), Step: true, Index: int64(i), Data: ns(0.5)})
		at += 1.25
	}
	r := j.ranks[0]
	assert.LessOrEqual(t, len(r.segments), maxSegments)
	assert.LessOrEqual(t, len(r.steps), maxSteps*9/8)
	got, _ := j.Account()
	assert.InDelta(t, 10_000, got[Productive], 1e-3)
	assert.InDelta(t, 10_000, got[Data], 1e-3)
	assert.InDelta(t, 19_999*0.25, got[Unknown], 1e-3)
	j.Add(Span{Attempt: "b", Start: ns(at + 50), End: ns(at + 51), Step: true, Index: 19_000})
	got, _ = j.Account()
	assert.InDelta(t, 1000, got[Lost], 1e-3)
}
