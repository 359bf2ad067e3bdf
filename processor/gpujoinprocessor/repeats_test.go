// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"context"
	"encoding/binary"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/spanfacts"
)

// flaky rejects the first requests and passes the others to the rig's sink.
func flaky(t *testing.T, r *rig, times int) consumer.Traces {
	next, err := consumer.NewTraces(func(ctx context.Context, td ptrace.Traces) error {
		if times--; times >= 0 {
			return errors.New("not now")
		}
		return r.sink.ConsumeTraces(ctx, td)
	})
	require.NoError(t, err)
	return next
}

// A sender puts retried spans into one request with first attempts.
func TestASpanTwiceInOneRequestLeavesOnce(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig, zero time.Time) {
		time.Sleep(time.Second)
		end := time.Now()
		td := newTraces("a")
		td.gpu(1, 0, zero, end)
		td.host(2, 0, zero, end)
		td.gpu(1, 0, zero, end)
		td.resource("a")
		td.gpu(1, 0, zero, end)
		r.consume(td.Traces)
		settle()
		require.Equal(t, 2, r.sink.SpanCount())
		assert.InDelta(t, 300, energy(t, r.spans()[1]), 1e-6)
		assert.EqualValues(t, 2, r.count("repeated_spans", ""))
		assert.Zero(t, r.gauge("held_spans"))
	})
}

// A process that seeds its generator of IDs again sends other spans with the same IDs: all are
// kept, two have energy.
func TestAnotherSpanWithTheSameIDIsNoRepetition(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig, zero time.Time) {
		time.Sleep(3 * time.Second)
		for i := range 3 {
			td := newTraces("a")
			td.gpu(1, 0, zero.Add(sec(float64(i))), zero.Add(sec(float64(i+1))))
			r.consume(td.Traces)
		}
		time.Sleep(8 * time.Second)
		require.Equal(t, 3, r.sink.SpanCount())
		joules := 0.
		for _, td := range r.sink.AllTraces() {
			for s := range spansOf(td) {
				if v, ok := s.Attributes().Get("gpu.energy"); ok {
					joules += v.Double()
				}
			}
		}
		assert.InDelta(t, 600, joules, 1e-6)
		_, err := r.tel.GetMetric("otelcol_processor_gpu_join_repeated_spans")
		assert.Error(t, err, "none was counted")
		assert.EqualValues(t, 1, r.count("untracked_spans", ""))
	})
}

// Two connections send the same request concurrently: neither sees the other's in the queue.
func TestTheSameRequestTwiceAtOnceLeavesOnce(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig, zero time.Time) {
		time.Sleep(time.Second)
		p := r.proc.(*joinProcessor)
		now := time.Now()
		var through []context.Context
		var all []*traces
		var batches []*batch
		for range 2 {
			td := newTraces("a")
			td.gpu(1, 0, zero, now)
			b := new(batch)
			b.scan(td.Traces, p.ident, now.UnixNano(), p.cfg.MaxWait)
			known, _ := p.engine.look(b, time.Now())
			assert.Zero(t, known)
			pending := &pendingRequest{td: td.Traces, size: 100, batch: b}
			through = append(through, context.WithValue(t.Context(), pendingKey{}, pending))
			all, batches = append(all, td), append(batches, b)
		}
		for i := range all {
			p.engine.arrive(batches[i], now, false)
			batches[i].pack(all[i].Traces)
			p.stats.held.Add(int64(batches[i].waiting))
		}
		for i := range all {
			require.NoError(t, p.queue.ConsumeTraces(through[i], all[i].Traces))
		}
		time.Sleep(8 * time.Second)
		assert.Equal(t, 1, r.sink.SpanCount())
		assert.InDelta(t, 300, energy(t, r.spans()[1]), 1e-6)
		assert.EqualValues(t, 1, r.count("repeated_spans", ""))
		assert.Zero(t, r.gauge("held_spans"))
	})
}

// A request that exceeds the whole queue goes directly to the next component, whose error is
// returned to the sender. The sender's retry is then not a repetition.
func TestARefusedRequestLargerThanTheQueueIsTakenWhenItIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		zero := time.Now()
		r := newRig(t)
		r.joinTo(flaky(t, r, 2), func(c *Config) { c.Queue.Size = 100 })
		defer r.close()
		r.run(r.device(nominal), steady(zero, 300))
		time.Sleep(20 * time.Second)
		td := newTraces("a")
		td.gpu(1, 0, zero.Add(sec(1)), zero.Add(sec(2)))
		for range 2 {
			copied := ptrace.NewTraces()
			td.CopyTo(copied)
			require.Error(t, r.proc.ConsumeTraces(t.Context(), copied))
		}
		copied := ptrace.NewTraces()
		td.CopyTo(copied)
		r.consume(copied)
		require.Equal(t, 1, r.sink.SpanCount())
		assert.InDelta(t, 300, energy(t, r.spans()[1]), 1e-6)
		copied = ptrace.NewTraces()
		td.CopyTo(copied)
		r.consume(copied)
		assert.Equal(t, 1, r.sink.SpanCount(), "and now it is one")
		assert.Zero(t, r.gauge("held_spans"))
	})
}

// Retried spans are counted once, even if nothing could be written to them.
func TestRetriedRequestsAreCountedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		zero := time.Now()
		r := newRig(t)
		r.joinTo(flaky(t, r, 5), func(c *Config) { c.Attributes = spanfacts.Lean })
		defer r.close()
		silent := nominal
		silent.ID, silent.Source = "GPU-00000000-0000-4000-8000-000000000001", "another"
		r.device(silent).Write(one(time.Now(), zero))
		r.run(r.device(nominal), steady(zero, 300))
		time.Sleep(time.Minute)
		td := newTraces("a") // its spans have no common source, so the scope does not state that they are joined
		td.gpu(1, 0, time.Now().Add(-sec(0.5)), time.Now())
		td.gpu(2, 0, time.Now().Add(-sec(0.5)), time.Now()).Attributes().PutStr("hw.id", silent.ID)
		r.consume(td.Traces)
		time.Sleep(5 * time.Minute)
		require.Equal(t, 2, r.sink.SpanCount())
		assert.Contains(t, r.spans()[1].Attributes().AsRaw(), "gpu.energy")
		assert.NotContains(t, r.spans()[2].Attributes().AsRaw(), "gpu.energy")
		assert.Zero(t, r.gauge("held_spans"))
		assert.EqualValues(t, 1, r.count("uncovered_spans", ""))
		assert.EqualValues(t, 2, r.count("released_spans", ""))
	})
}

// A restarted sender retries spans in other requests: spans that arrived before are released once,
// and new ones in the same request are released, too.
func TestRepeatsInAnotherRequestLoseNoOtherSpans(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig, zero time.Time) {
		time.Sleep(time.Second)
		end := time.Now()
		request := func(gpu []uint64, others ...uint64) {
			td := newTraces("a")
			for _, id := range gpu {
				td.gpu(id, 0, zero, end)
			}
			for _, id := range others {
				td.host(id, 0, zero, end)
			}
			td.gpu(100+gpu[0], 0, zero, end).Attributes().PutStr("hw.id", "GPU-of-nobody")
			for range 2 { // and the response is lost
				copied := ptrace.NewTraces()
				td.CopyTo(copied)
				r.consume(copied)
			}
		}
		request([]uint64{1}, 10)
		request([]uint64{2}, 11)
		request([]uint64{2, 1}, 12)
		request([]uint64{1, 3}, 13)
		request([]uint64{3, 2, 1}, 14, 15)
		time.Sleep(r.maxWait() + time.Millisecond)
		joules, times := 0., map[uint64]int{}
		for _, td := range r.sink.AllTraces() {
			for s := range spansOf(td) {
				id := s.SpanID()
				times[binary.BigEndian.Uint64(id[:])]++
				if v, ok := s.Attributes().Get("gpu.energy"); ok {
					joules += v.Double()
				}
			}
		}
		assert.Equal(t, map[uint64]int{
			1: 1, 2: 1, 3: 1, 10: 1, 11: 1, 12: 1, 13: 1, 14: 1, 15: 1, 101: 1, 102: 1, 103: 1,
		}, times)
		assert.InDelta(t, 300, joules, 1e-6)
		assert.Zero(t, r.gauge("held_spans"))
	})
}
