// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumererror"
	otelstorage "go.opentelemetry.io/collector/extension/xextension/storage"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/otelgpu/otelgpu/internal/sharedcomponent"
	"github.com/otelgpu/otelgpu/internal/sinktest"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
)

// kept adds a storage whose contents survive the rig.
func (r *rig) kept(s *sinktest.Storage) *rig {
	r.host.ext[storageID] = s
	return r
}

func stored(c *Config) { c.Queue.Storage = &storageID }

// send sends n requests with 4 spans each: two of a device, one of an unknown device, one of the
// host.
func (r *rig) send(n int) {
	for i := range uint64(n) {
		now := time.Now()
		td := newTraces("a")
		td.gpu(4*i+1, 0, now.Add(-sec(0.5)), now.Add(-sec(0.25)))
		td.gpu(4*i+2, 0, now.Add(-sec(0.25)), now)
		td.gpu(4*i+3, 0, now.Add(-sec(0.5)), now).Attributes().PutStr("hw.id", "GPU-unknown")
		td.scope("http").host(4*i+4, 0, now.Add(-sec(0.5)), now)
		r.consume(td.Traces)
		time.Sleep(10 * time.Millisecond)
	}
}

// The next component shares and changes what it rejects. Every span arrives once, with one content,
// changed once, and counts once.
func TestRejectedSpansAreSentAgainAsTheyWere(t *testing.T) {
	for _, level := range []spanfacts.Level{spanfacts.Lean, spanfacts.Full} {
		for _, s := range []*sinktest.Sink{{}, {Shares: true}, {Changes: true}, {Shares: true, Changes: true}} {
			for _, storage := range []*sinktest.Storage{nil, {}} {
				name := fmt.Sprintf("%d/shares=%v/changes=%v/storage=%v", level, s.Shares, s.Changes, storage != nil)
				t.Run(name, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						sink := &sinktest.Sink{Shares: s.Shares, Changes: s.Changes, Reject: sinktest.Randomly(1, 0.6, 0)}
						r := newRig(t)
						edit := func(c *Config) { c.Attributes, c.Events = level, true }
						if storage != nil {
							r.kept(storage)
							r.joinTo(sink, edit, stored)
						} else {
							r.joinTo(sink, edit)
						}
						r.run(r.device(nominal), steady(time.Now(), 300))
						time.Sleep(2 * time.Second)
						r.send(20)
						time.Sleep(5 * time.Minute)
						sink.Check(t, 80, false)
						assert.NotZero(t, sink.Rejected())
						assert.EqualValues(t, 60, r.count("released_spans", "settled"))
						assert.EqualValues(t, 20, r.count("uncovered_spans", "unknown_device"))
						assert.Zero(t, r.gauge("held_spans"))
						r.close()
					})
				})
			}
		}
	}
}

// The values are found before the first attempt: later samples change nothing.
func TestValuesStayTheSameWhileSpansAreRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		zero := time.Now()
		sink := &sinktest.Sink{Changes: true, Reject: sinktest.First(5)}
		r := newRig(t).joinTo(sink, func(c *Config) { c.Settle, c.MaxWait = time.Second, time.Second })
		w := r.device(nominal)
		w.Write(one(zero, zero))
		time.Sleep(time.Second)
		td := newTraces("a")
		td.gpu(1, 0, zero.Add(sec(0.5)), time.Now())
		r.consume(td.Traces)
		time.Sleep(1010 * time.Millisecond)
		require.NotZero(t, sink.Rejected())
		for at := sec(0.1); at <= sec(2); at += sec(0.1) {
			w.Write(one(zero.Add(at), zero))
		}
		time.Sleep(time.Minute)
		sink.Check(t, 1, false)
		assert.EqualValues(t, 1, r.count("uncovered_spans", "no_samples"))
		r.close()
	})
}

// After a fan-out, a consumer that accepted the spans gets them again when another rejects them,
// with equal contents.
func TestAFanOutThatRejectsGetsTheSameSpansAgain(t *testing.T) {
	for _, storage := range []*sinktest.Storage{nil, {}} {
		synctest.Test(t, func(t *testing.T) {
			steadySink, shy := new(sinktest.Sink), &sinktest.Sink{Reject: sinktest.Randomly(2, 0.5, 0)}
			changing := &sinktest.Sink{Changes: true, Reject: sinktest.Randomly(3, 0.5, 0.5)}
			r := newRig(t)
			if storage != nil {
				r.kept(storage)
				r.joinTo(fanOut(t, steadySink, shy, changing), stored)
			} else {
				r.joinTo(fanOut(t, steadySink, shy, changing))
			}
			r.run(r.device(nominal), steady(time.Now(), 300))
			time.Sleep(2 * time.Second)
			r.send(10)
			time.Sleep(5 * time.Minute)
			for _, s := range []*sinktest.Sink{steadySink, shy, changing} {
				s.Check(t, 40, true)
			}
			assert.EqualValues(t, 40, 4*r.count("released_spans", "settled")/3+r.count("lost_spans", "rejected"), "each counts once")
			r.close()
		})
	}
}

// Spans are read from a storage before the first sample of their device, are rejected, and could be
// joined by the time they are sent again.
func TestStoredSpansThatPassAreNotJoinedLater(t *testing.T) {
	for _, level := range []spanfacts.Level{spanfacts.Lean, spanfacts.Full} {
		synctest.Test(t, func(t *testing.T) {
			zero, storage := time.Now(), new(sinktest.Storage)
			edit := func(c *Config) {
				stored(c)
				c.Attributes = level
				c.Settle, c.MaxWait = 2*time.Second, 3*time.Second
			}
			down := &sinktest.Sink{Shares: true, Changes: true, Reject: func() error { return sinktest.ErrRejected }}
			r := newRig(t).kept(storage).joinTo(down, edit)
			r.run(r.device(nominal), steady(zero, 300))
			time.Sleep(2 * time.Second)
			r.send(5)
			time.Sleep(10 * time.Second)
			assert.EqualValues(t, 15, r.gauge("held_spans"))
			r.close()

			next := &sinktest.Sink{Shares: true, Changes: true, Reject: sinktest.First(8)}
			r = newRig(t).kept(storage).joinTo(next, edit)
			time.Sleep(time.Second)
			w := r.device(nominal)
			for at := zero; at.Before(time.Now()); at = at.Add(100 * time.Millisecond) {
				w.Write(one(at, zero))
			}
			time.Sleep(time.Minute)
			next.Check(t, 20, false)
			assert.Zero(t, r.gauge("held_spans"))
			r.close()
		})
	}
}

func TestPermanentlyRejectedSpansAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &sinktest.Sink{Shares: true, Reject: func() error { return consumererror.NewPermanent(errors.New("too large")) }}
		core, logs := observer.New(zap.WarnLevel)
		r := newRig(t)
		r.logger = zap.New(core)
		r.joinTo(sink)
		r.run(r.device(nominal), steady(time.Now(), 300))
		time.Sleep(time.Second)
		r.send(3)
		time.Sleep(time.Minute)
		assert.EqualValues(t, 12, r.count("lost_spans", "rejected"))
		assert.Zero(t, r.gauge("held_spans"))
		require.Equal(t, 1, logs.FilterMessageSnippet("spans are dropped").Len())
		assert.Zero(t, logs.FilterMessageSnippet("Exporting failed").Len())
		r.close()
	})
}

// An exporter that has written a part of a batch names the rest, which is sent again alone.
func TestOnlyTheFailedPartOfABatchIsSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := new(sinktest.Sink)
		attempts := 0
		partly, err := consumer.NewTraces(func(ctx context.Context, td ptrace.Traces) error {
			if attempts++; attempts > 1 {
				return sink.ConsumeTraces(ctx, td)
			}
			rest := ptrace.NewTraces()
			td.CopyTo(rest)
			first := func(s ptrace.Span) bool { return s.SpanID()[7] == 1 }
			rest.ResourceSpans().At(0).ScopeSpans().At(0).Spans().RemoveIf(first)
			td.ResourceSpans().At(0).ScopeSpans().RemoveIf(func(ss ptrace.ScopeSpans) bool { return ss.Scope().Name() == "http" })
			td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().RemoveIf(func(s ptrace.Span) bool { return !first(s) })
			require.NoError(t, sink.ConsumeTraces(ctx, td))
			return fmt.Errorf("no more retries left: %w", consumererror.NewTraces(errors.New("disk full"), rest))
		})
		require.NoError(t, err)
		r := newRig(t).joinTo(partly)
		r.run(r.device(nominal), steady(time.Now(), 300))
		time.Sleep(time.Second)
		td := newTraces("a")
		td.gpu(1, 0, time.Now().Add(-sec(0.5)), time.Now())
		td.gpu(2, 0, time.Now().Add(-sec(0.5)), time.Now()).Status().SetMessage("kept as it is")
		td.scope("http").host(3, 0, time.Now().Add(-sec(0.5)), time.Now())
		r.consume(td.Traces)
		time.Sleep(time.Minute)
		sink.Check(t, 3, false)
		assert.Equal(t, 2, attempts)
		assert.EqualValues(t, 2, r.count("released_spans", "settled"))
		r.close()
	})
}

func TestRetriesEndAsConfigured(t *testing.T) {
	for want, edit := range map[time.Duration]func(*Config){
		0: func(c *Config) { c.RetryOnFailure.Enabled = false },
		// Delays are 10, 20, … 640 ms, and 1 s from then on. The last attempt is at the limit.
		4270 * time.Millisecond: func(c *Config) {
			c.RetryOnFailure.MaxElapsedTime = 4270 * time.Millisecond
			c.RetryOnFailure.RandomizationFactor, c.RetryOnFailure.Multiplier = 0, 1
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			var attempts []time.Time
			sink := &sinktest.Sink{Reject: func() error {
				attempts = append(attempts, time.Now())
				return sinktest.ErrRejected
			}}
			r := newRig(t).joinTo(sink, edit)
			r.run(r.device(nominal), steady(time.Now(), 300))
			time.Sleep(time.Second)
			r.send(1)
			time.Sleep(time.Minute)
			assert.EqualValues(t, 4, r.count("lost_spans", "retries_ended"))
			assert.Equal(t, want, attempts[len(attempts)-1].Sub(attempts[0]))
			r.close()
		})
	}
}

// An exporter with a short queue accepts what fits, at a shutdown as after an outage.
func TestTheQueueDrainsAtTheRateOfTheNextComponent(t *testing.T) {
	const requests = 500
	for _, storage := range []*sinktest.Storage{nil, {}} {
		for _, when := range []string{"shutdown", "after an outage"} {
			t.Run(fmt.Sprintf("%s/storage=%v", when, storage != nil), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					accept := paced(20, 10*time.Millisecond)
					var down atomic.Bool
					down.Store(when != "shutdown")
					sink := &sinktest.Sink{Changes: true, Reject: func() error {
						if down.Load() {
							return sinktest.ErrRejected
						}
						return accept()
					}}
					r := newRig(t)
					edit := func(c *Config) { c.Settle = 6 * time.Second }
					if storage != nil {
						r.kept(storage)
						r.joinTo(sink, edit, stored)
					} else {
						r.joinTo(sink, edit)
					}
					r.run(r.device(nominal), steady(time.Now(), 300))
					time.Sleep(time.Second)
					r.send(requests)
					if down.Load() {
						time.Sleep(5 * time.Minute)
						down.Store(false)
						start := time.Now()
						for r.gauge("held_spans") > 0 {
							time.Sleep(100 * time.Millisecond)
							require.Less(t, time.Since(start), requests*20*time.Millisecond, "half of the rate of the next component")
						}
					}
					require.NoError(t, r.proc.Shutdown(t.Context()))
					sink.Check(t, 4*requests, false)
					assert.EqualValues(t, 3*requests, r.count("released_spans", ""))
					r.close()
				})
			})
		}
	}
}

// What cannot be delivered before the deadline is counted and logged, however the next component
// behaves.
func TestAShutdownEndsAndCountsWhatIsLost(t *testing.T) {
	for name, sink := range map[string]*sinktest.Sink{
		"rejects": {Reject: func() error { return sinktest.ErrRejected }},
		"blocks": {Wait: func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				core, logs := observer.New(zap.WarnLevel)
				r := newRig(t)
				r.logger = zap.New(core)
				r.joinTo(sink, func(c *Config) { c.ShutdownTimeout = 20 * time.Second })
				r.run(r.device(nominal), steady(time.Now(), 300))
				time.Sleep(time.Second)
				r.send(5)
				start := time.Now()
				require.NoError(t, r.proc.Shutdown(t.Context()))
				assert.Equal(t, 20*time.Second, time.Since(start))
				assert.EqualValues(t, 20, r.count("lost_spans", "shutdown"))
				lost := logs.FilterMessageSnippet("spans are lost").All()
				require.Len(t, lost, 1)
				assert.EqualValues(t, 20, lost[0].ContextMap()["spans"])
				r.close()
			})
		})
	}
}

// A next component that neither returns nor respects the context does not keep the Collector from
// stopping the others.
func TestAShutdownEndsAlthoughTheNextComponentHangs(t *testing.T) {
	for name, change := range map[string]func(*Config){"in memory": func(*Config) {}, "with storage": stored} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				core, logs := observer.New(zap.ErrorLevel)
				release := make(chan struct{})
				r := newRig(t).kept(new(sinktest.Storage))
				r.logger = zap.New(core)
				r.joinTo(&sinktest.Sink{Wait: func(context.Context) error {
					<-release
					return nil
				}}, change, func(c *Config) { c.ShutdownTimeout = 20 * time.Second })
				r.run(r.device(nominal), steady(time.Now(), 300))
				time.Sleep(time.Second)
				r.send(5)
				start := time.Now()
				err := r.proc.Shutdown(t.Context())
				assert.ErrorIs(t, err, sharedcomponent.ErrRunning)
				assert.ErrorContains(t, err, "gpu_join")
				assert.LessOrEqual(t, time.Since(start), 22*time.Second)
				lost := logs.FilterMessageSnippet("the next component does not return").All()
				require.Len(t, lost, 1)
				assert.EqualValues(t, 15, lost[0].ContextMap()["gpu_spans"], "the others are not of a GPU")
				close(release)
				r.close()
			})
		})
	}
}

// A restart with a storage loses and repeats nothing, however often the next component rejects.
func TestRestartsWithStorageLoseAndRepeatNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		storage := new(sinktest.Storage)
		sink := &sinktest.Sink{Shares: true, Changes: true, Reject: sinktest.Randomly(4, 0.9, 0)}
		for round := range uint64(6) {
			r := newRig(t).kept(storage).joinTo(sink, stored)
			r.run(r.device(nominal), steady(time.Now(), 300))
			time.Sleep(time.Second)
			td := newTraces("a")
			td.gpu(round+1, 0, time.Now().Add(-sec(0.5)), time.Now())
			r.consume(td.Traces)
			time.Sleep(time.Duration(round) * 2 * time.Second)
			r.close()
		}
		r := newRig(t).kept(storage).joinTo(sink, stored)
		time.Sleep(5 * time.Minute)
		r.close()
		for id, n := range sink.Accepted() {
			assert.Equal(t, 1, n, id)
		}
		assert.Len(t, sink.Accepted(), 6)
	})
}

// While the disk is full, requests that were accepted before leave the queue.
func TestAFullStorageLosesNoAcceptedSpans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		storage, sink := new(sinktest.Storage), new(sinktest.Sink)
		r := newRig(t).kept(storage).joinTo(sink, stored)
		r.run(r.device(nominal), steady(time.Now(), 300))
		time.Sleep(time.Second)
		r.send(5)
		storage.Fail(syscall.ENOSPC)
		time.Sleep(time.Minute)
		storage.Fail(nil)
		sink.Check(t, 20, false)
		r.close()
	})
}

func TestAFailingStorageIsAReasonOfItsOwn(t *testing.T) {
	for err, reason := range map[error]string{
		&fs.PathError{Op: "write", Path: "/var/lib/otelcol/db", Err: syscall.ENOSPC}: "storage_full",
		syscall.EDQUOT:                  "storage_full",
		otelstorage.ErrStorageFull:      "storage_full",
		errors.New("database not open"): "storage_failed",
	} {
		synctest.Test(t, func(t *testing.T) {
			storage := new(sinktest.Storage)
			r := newRig(t).kept(storage).join(stored)
			r.run(r.device(nominal), steady(time.Now(), 300))
			time.Sleep(time.Second)
			storage.Fail(err)
			td := newTraces("a")
			td.gpu(1, 0, time.Now().Add(-sec(0.5)), time.Now())
			got := r.proc.ConsumeTraces(t.Context(), td.Traces)
			require.ErrorIs(t, got, err)
			assert.ErrorContains(t, got, "storage file_storage")
			assert.False(t, consumererror.IsPermanent(got), "senders retry")
			assert.EqualValues(t, 1, r.count("refused_spans", reason))
			storage.Fail(nil)
			td = newTraces("a")
			td.gpu(1, 0, time.Now().Add(-sec(0.5)), time.Now())
			r.consume(td.Traces)
			time.Sleep(time.Minute)
			require.Len(t, r.sink.AllTraces(), 1, "the request that was not stored leaves nothing behind")
			assert.Len(t, r.spans(), 1)
			r.close()
		})
	}
}

var (
	_ consumer.Traces     = (*sinktest.Sink)(nil)
	_ component.Component = (*sinktest.Storage)(nil)
)
