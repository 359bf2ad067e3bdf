// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/client"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/processor/processortest"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/otelgpu/otelgpu/internal/configtest"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/processor/gpujoinprocessor/internal/metadata"
)

func TestConfigFile(t *testing.T) {
	storage := component.MustNewID("file_storage")
	full := createDefaultConfig().(*Config)
	full.Samples, full.Settle, full.MaxWait = &samplesID, 2*time.Second, 4*time.Second
	full.Queue = QueueConfig{Size: 1 << 20, Storage: &storage}
	full.RetryOnFailure.Enabled, full.ShutdownTimeout = false, 20*time.Second
	full.MaxSpans, full.MaxSpanSize, full.Shift = 1000, 800_000, 50*time.Millisecond
	full.Ordinals = map[string]string{"0": gpu0}
	full.EnergyOnMIG, full.Events, full.Attributes = true, true, spanfacts.Full
	for name, want := range map[string]*Config{"gpu_join": createDefaultConfig().(*Config), "gpu_join/all": full} {
		cfg, err := configtest.Load[Config](t, name, createDefaultConfig)
		require.NoError(t, err)
		assert.Equal(t, want, cfg, name)
	}
}

func TestValidateReportsEveryProblem(t *testing.T) {
	c := createDefaultConfig().(*Config)
	c.Settle, c.MaxWait, c.Queue.Size, c.MaxSpans, c.MaxSpanSize, c.Shift = -time.Second, 0, 0, -1, 0,
		2*time.Hour
	c.Ordinals, c.ShutdownTimeout = map[string]string{"gpu0": gpu0, "1": ""}, 0
	err := c.Validate()
	for _, want := range []string{
		"`settle` must not be negative, found -1s",
		"`max_wait` must be positive, found 0s",
		"`queue::size` must be a positive number of bytes, found 0",
		"`shutdown_timeout` must be positive, found 0s",
		"`max_spans` must be positive, found -1",
		"`max_span_size` must be positive, found 0",
		"`shift` must be at most 1h0m0s in either direction, found 2h0m0s",
		"`ordinals` must have device ordinals as keys, found \"gpu0\"",
		"`ordinals::1` must be a hw.id (GPU-<uuid> or MIG-<uuid>), found nothing",
	} {
		assert.ErrorContains(t, err, want)
	}
	c = createDefaultConfig().(*Config)
	c.Settle, c.MaxWait = 6*time.Second, 5*time.Second
	assert.EqualError(t, c.Validate(), "`max_wait` (5s) must not be shorter than `settle` (6s)")
}

func TestWithoutSamplesSpansPassAndOneWarningReportsIt(t *testing.T) {
	core, logs := observer.New(zap.WarnLevel)
	set := processortest.NewNopSettings(metadata.Type)
	set.Logger = zap.New(core)
	sink := new(consumertest.TracesSink)
	p, err := NewFactory().CreateTraces(t.Context(), set, createDefaultConfig(), sink)
	require.NoError(t, err)
	require.NoError(t, p.Start(t.Context(), componenttest.NewNopHost()))
	td := newTraces("a")
	td.gpu(1, 0, time.Now().Add(-time.Second), time.Now())
	for range 3 {
		require.NoError(t, p.ConsumeTraces(t.Context(), td.Traces))
	}
	assert.Equal(t, 3, sink.SpanCount())
	assert.Equal(t, 1, logs.Len())
	require.NoError(t, p.Shutdown(t.Context()))
	require.NoError(t, p.Shutdown(t.Context()))
}

func TestMissingExtensionIsNamed(t *testing.T) {
	cfg := createDefaultConfig().(*Config)
	cfg.Samples = &samplesID
	p, err := NewFactory().CreateTraces(t.Context(), processortest.NewNopSettings(metadata.Type), cfg,
		consumertest.NewNop())
	require.NoError(t, err)
	assert.ErrorContains(t, p.Start(t.Context(), componenttest.NewNopHost()), `"gpu_samples"`)
	require.NoError(t, p.Shutdown(t.Context()), "safe without a start")
}

func TestSecondJoinOnTheSameSamplesIsRefusedUntilTheFirstStops(t *testing.T) {
	r := newRig(t).join()
	cfg := createDefaultConfig().(*Config)
	cfg.Samples = &samplesID
	set := processortest.NewNopSettings(metadata.Type)
	set.ID = component.MustNewIDWithName("gpu_join", "second")
	second, err := NewFactory().CreateTraces(t.Context(), set, cfg, consumertest.NewNop())
	require.NoError(t, err)
	err = second.Start(t.Context(), r.host)
	assert.ErrorContains(t, err, `"gpu_join"`)
	assert.ErrorContains(t, err, `"gpu_join/second"`)
	require.NoError(t, second.Shutdown(t.Context()))

	first := r.proc
	require.NoError(t, first.Shutdown(t.Context()))
	r.join()
	r.close()
}

func TestFullQueueRejectsWithARetryableErrorAndKeepsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig, zero time.Time) {
		time.Sleep(time.Second)
		fill := newTraces("a")
		for i := range uint64(8) {
			fill.gpu(i+1, 0, zero, time.Now())
		}
		r.consume(fill.Traces)
		td := newTraces("b")
		for i := range uint64(8) {
			td.gpu(101+i, 0, zero, time.Now())
		}
		td.scope("http").host(200, 0, zero, time.Now())
		err := r.proc.ConsumeTraces(t.Context(), td.Traces)
		require.ErrorIs(t, err, exporterhelper.ErrQueueIsFull)
		assert.False(t, consumererror.IsPermanent(err))
		assert.Equal(t, 9, td.SpanCount(), "the caller has all of it")
		assert.Empty(t, r.spans(), "nothing of it went on")
		assert.EqualValues(t, 8, r.gauge("held_spans"))

		time.Sleep(8 * time.Second)
		assert.Zero(t, r.gauge("held_spans"))
		r.consume(td.Traces)
		time.Sleep(time.Second)
		s := r.spans()
		require.Len(t, s, 17)
		// A rejected request may never be sent again, so it must have no share: the eight spans of
		// the first request have all of the energy.
		assert.InDelta(t, 300./8, energy(t, s[1]), 1e-6)
		assert.InDelta(t, 0, energy(t, s[101]), 1e-6)
		assert.Contains(t, s[101].Attributes().AsRaw(), "gpu.join.late.duration")
	}, func(c *Config) { c.Queue.Size = 1500 })
}

func TestRequestLargerThanTheQueueIsJoinedWithAvailableSamples(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig, zero time.Time) {
		time.Sleep(20 * time.Second)
		td := newTraces("a")
		td.gpu(1, 0, zero.Add(sec(1)), zero.Add(sec(2)))
		td.gpu(2, 0, zero.Add(sec(18)), zero.Add(sec(19)))
		td.gpu(3, 0, zero.Add(sec(10)), zero.Add(sec(19)))
		r.consume(td.Traces)
		s := r.spans()
		require.Len(t, s, 3)
		assert.InDelta(t, 300, energy(t, s[1]), 1e-6)
		assert.NotContains(t, s[2].Attributes().AsRaw(), "gpu.energy", "not settled yet")
		assert.NotContains(t, s[3].Attributes().AsRaw(), "gpu.energy", "settled in part")
		assert.InDelta(t, 0.75, attr(t, s[2], "gpu.utilization"), 1e-9)
		assert.EqualValues(t, 3, r.count("released_spans", "oversize"))
		assert.Zero(t, r.gauge("held_spans"))
	}, func(c *Config) { c.Queue.Size = 100 })
}

func TestShutdownDrainsWithTheSamplesThatAreThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		zero := time.Now()
		r := newRig(t).join()
		r.run(r.device(nominal), steady(zero, 300))
		time.Sleep(2 * time.Second)
		for i := range uint64(10) {
			td := newTraces("a")
			td.gpu(i+1, 0, zero.Add(sec(float64(i)*0.1)), zero.Add(sec(float64(i+1)*0.1)))
			r.consume(td.Traces)
		}
		assert.Empty(t, r.spans())
		start := time.Now()
		r.close()
		assert.Less(t, time.Since(start), time.Second, "no wait for settle at shutdown")
		s := r.spans()
		require.Len(t, s, 10)
		for id := range uint64(10) {
			assert.InDelta(t, 30, energy(t, s[id+1]), 1e-6)
		}
	})
}

func TestShutdownGivesEnergyOfTheCoveredPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		zero := time.Now()
		r := newRig(t).join()
		r.run(r.device(nominal), steady(zero, 300))
		time.Sleep(1980 * time.Millisecond)
		td := newTraces("a")
		td.gpu(1, 0, zero.Add(time.Second), time.Now())
		r.consume(td.Traces)
		r.close() // receivers stop first, so the newest sample is from 1.9 s
		s := r.spans()[1]
		assert.InDelta(t, 0.9*300, energy(t, s), 1e-6)
		assert.InDelta(t, 0.9/0.98, attr(t, s, "gpu.join.coverage"), 1e-6)
	})
}

func TestClientMetadataIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []string
		next, err := consumer.NewTraces(func(ctx context.Context, _ ptrace.Traces) error {
			got = append(got, client.FromContext(ctx).Metadata.Get("tenant")...)
			_, limited := ctx.Deadline()
			assert.False(t, limited, "no time was used up by waiting")
			return ctx.Err()
		})
		require.NoError(t, err)
		r := newRig(t).joinTo(next)
		defer r.close()
		r.run(r.device(nominal), steady(time.Now(), 300))
		ctx, cancel := context.WithCancel(client.NewContext(t.Context(), client.Info{
			Metadata: client.NewMetadata(map[string][]string{"tenant": {"blue"}}),
		}))
		td := newTraces("a")
		td.gpu(1, 0, time.Now().Add(-time.Second), time.Now())
		require.NoError(t, r.proc.ConsumeTraces(ctx, td.Traces))
		cancel() // as a receiver does after its response
		time.Sleep(8 * time.Second)
		synctest.Wait()
		assert.Equal(t, []string{"blue"}, got)
	})
}

func TestRefusalByTheNextComponentIsRetriedWithoutJoiningTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := new(consumertest.TracesSink)
		failures := 3
		next, err := consumer.NewTraces(func(ctx context.Context, td ptrace.Traces) error {
			if failures--; failures >= 0 {
				return errors.New("queue is full")
			}
			return sink.ConsumeTraces(ctx, td)
		})
		require.NoError(t, err)
		zero := time.Now()
		r := newRig(t).joinTo(next)
		defer r.close()
		r.sink = sink
		r.run(r.device(nominal), steady(zero, 300))
		time.Sleep(time.Second)
		td := newTraces("a")
		td.gpu(1, 0, zero, time.Now())
		r.consume(td.Traces)
		time.Sleep(30 * time.Second)
		require.Len(t, r.spans(), 1)
		assert.InDelta(t, 300, energy(t, r.spans()[1]), 1e-6)
		assert.EqualValues(t, 1, r.count("released_spans", "settled"))
	})
}

// The next component rejects data for 3 minutes, and the sender retries: spans and energy arrive
// once.
func TestAMixedRequestIsTakenWholeOrNotAtAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := new(consumertest.TracesSink)
		var refuse atomic.Bool
		refuse.Store(true)
		next, err := consumer.NewTraces(func(ctx context.Context, td ptrace.Traces) error {
			if refuse.Load() {
				return errors.New("not now")
			}
			return sink.ConsumeTraces(ctx, td)
		})
		require.NoError(t, err)
		zero := time.Now()
		r := newRig(t).joinTo(next)
		defer r.close()
		r.sink = sink
		r.run(r.device(nominal), steady(zero, 150))
		time.Sleep(time.Second)
		const requests = 10
		for i := range uint64(requests) {
			td := newTraces("a")
			td.gpu(2*i+1, 0, time.Now().Add(-time.Second), time.Now())
			td.scope("http").host(2*i+2, 0, zero, time.Now())
			copied := ptrace.NewTraces()
			td.CopyTo(copied)
			for r.proc.ConsumeTraces(t.Context(), td.Traces) != nil {
				time.Sleep(time.Second)
				copied.CopyTo(td.Traces)
			}
			time.Sleep(time.Second)
		}
		time.Sleep(3 * time.Minute)
		refuse.Store(false)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		require.Len(t, r.spans(), 2*requests)
		assert.Equal(t, 2*requests, sink.SpanCount(), "each once")
		var joules float64
		for id, s := range r.spans() {
			if id%2 == 1 {
				joules += energy(t, s)
			}
		}
		assert.InDelta(t, 150*requests, joules, 1e-6)
	})
}

// A sender that missed the response resends spans that are pending, spans that were released, and
// some of both with new ones.
func TestRepeatedSpansAreDropped(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig, zero time.Time) {
		time.Sleep(time.Second)
		end := time.Now()
		request := func(ids ...uint64) ptrace.Traces {
			td := newTraces("a")
			for _, id := range ids {
				td.gpu(id, 0, zero, end)
			}
			td.scope("http").host(100+ids[0], 0, zero, end)
			return td.Traces
		}
		r.consume(request(1, 2))
		r.consume(request(1, 2)) // waits
		r.consume(request(2, 3)) // in part
		time.Sleep(8 * time.Second)
		r.consume(request(1, 2)) // gone
		time.Sleep(8 * time.Second)
		assert.Equal(t, 5, r.sink.SpanCount(), "three of the device and two others")
		require.Len(t, r.spans(), 5)
		assert.InDelta(t, 300, energy(t, r.spans()[1])+energy(t, r.spans()[2])+energy(t, r.spans()[3]), 1e-6)
		assert.EqualValues(t, 3+1+3, r.count("repeated_spans", ""))
		assert.Zero(t, r.gauge("held_spans"))
	})
}

// A rejected request that is never sent again gets no energy.
func TestARefusedRequestKeepsNoShare(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig, zero time.Time) {
		time.Sleep(time.Second)
		first, second := newTraces("a"), newTraces("b")
		for i := range uint64(8) {
			first.gpu(1+i, 0, zero, time.Now())
			second.gpu(101+i, 0, zero, time.Now())
		}
		r.consume(first.Traces)
		require.ErrorIs(t, r.proc.ConsumeTraces(t.Context(), second.Traces), exporterhelper.ErrQueueIsFull)
		time.Sleep(8 * time.Second)
		var joules float64
		for _, s := range r.spans() {
			joules += energy(t, s)
		}
		assert.InDelta(t, 300, joules, 1e-6)
	}, func(c *Config) { c.Queue.Size = 1500 })
}

// In an outage of three minutes nothing is dropped: the queue is bounded and rejects new data.
func TestNothingIsDroppedInAnOutage(t *testing.T) {
	assert.Zero(t, createDefaultConfig().(*Config).RetryOnFailure.MaxElapsedTime)
}

func TestSpansWithoutADeviceAreNamedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.WarnLevel)
		r := newRig(t)
		r.logger = zap.New(core)
		r.join()
		defer r.close()
		r.othersDevices()
		zero := time.Now()
		time.Sleep(time.Second)
		for i := range uint64(3) {
			td := newTraces("a")
			td.gpu(2*i+1, 0, zero, time.Now()) // on a device without samples
			td.gpu(2*i+2, 0, zero, time.Now()).Attributes().Remove("hw.id")
			r.consume(td.Traces)
		}
		time.Sleep(r.maxWait() + time.Millisecond)
		require.Len(t, r.spans(), 6, "they pass")
		require.Equal(t, 2, logs.Len())
		assert.Contains(t, logs.FilterField(zap.String("reason", "unknown_device")).All()[0].Message,
			"a Collector whose `gpu` receiver has `samples`")
		assert.Contains(t, logs.FilterField(zap.String("reason", "no_identity")).All()[0].Message, "hw.id on the span")
	})
}

// othersDevices registers devices of other hosts.
func (r *rig) othersDevices() {
	for _, host := range []string{"b", "c"} {
		d := nominal
		d.ID, d.HostName, d.HostID = "GPU-eeeeeeee-0000-0000-0000-00000000000"+host, host, "id-"+host
		r.device(d)
	}
}

// On a host without a device, spans are not to blame; once a device is added, they may be.
func TestSpansOnAHostWithoutADeviceAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.WarnLevel)
		r := newRig(t)
		r.logger = zap.New(core)
		r.join()
		defer r.close()
		consume := func() {
			td := newTraces("a")
			td.gpu(1, 0, time.Now().Add(-time.Second), time.Now()).Attributes().Remove("hw.id")
			td.gpu(2, 0, time.Now().Add(-time.Second), time.Now())
			r.consume(td.Traces)
			time.Sleep(r.maxWait() + time.Millisecond)
		}
		consume()
		consume()
		require.Equal(t, 1, logs.Len())
		require.Contains(t, logs.All()[0].Message, "no device is known here")
		require.Equal(t, "no_device", logs.All()[0].ContextMap()["reason"])
		r.othersDevices()
		consume()
		require.Len(t, logs.FilterMessageSnippet("hw.id on the span").All(), 1)
		require.Len(t, logs.FilterMessageSnippet("a device of this host").All(), 1)
	})
}

func TestManySendersAtOnceLoseNothing(t *testing.T) {
	const senders, batches, spans = 8, 40, 16
	r := newRig(t).join(func(c *Config) { c.Settle, c.MaxWait = 5*time.Millisecond, 5*time.Second })
	zero := time.Now().Add(-time.Second)
	w := r.device(nominal)
	w.Write(one(zero, zero))
	r.wg.Go(func() {
		for {
			select {
			case <-r.stop:
				return
			case now := <-time.After(time.Millisecond):
				w.Write(one(now, zero))
			}
		}
	})
	// the spans below start up to 16 ms before they are sent, and samples must surround them
	time.Sleep(20 * time.Millisecond)
	var wg sync.WaitGroup
	for s := range senders {
		wg.Go(func() {
			for b := range batches {
				td := newTraces(string(rune('a' + s)))
				for i := range spans {
					id := uint64(1 + i + spans*(b+batches*s))
					end := time.Now()
					td.gpu(id, id/2, end.Add(-time.Duration(i+1)*time.Millisecond), end)
				}
				td.scope("http").host(uint64(1e6+b+batches*s), 0, zero, time.Now())
				assert.NoError(t, r.proc.ConsumeTraces(context.Background(), td.Traces))
			}
		})
	}
	wg.Wait()
	// Not earlier, because a shutdown joins pending spans with the available samples, of which
	// there may be none yet.
	assert.Eventually(t, func() bool { return r.sink.SpanCount() == senders*batches*(spans+1) }, time.Minute,
		time.Millisecond)
	r.close()
	assert.Equal(t, senders*batches*(spans+1), r.sink.SpanCount())
	assert.Len(t, r.spans(), senders*batches*(spans+1))
	var total float64
	for _, s := range r.spans() {
		if v, ok := s.Attributes().Get("gpu.energy"); ok {
			assert.GreaterOrEqual(t, v.Double(), 0.)
			total += v.Double()
		}
	}
	assert.Positive(t, total)
}
