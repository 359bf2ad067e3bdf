// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package queuestorage_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/config/configretry"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
	"go.opentelemetry.io/collector/exporter/exportertest"
	"go.opentelemetry.io/collector/extension/xextension/storage"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/otelgpu/otelgpu/internal/queuestorage"
	"github.com/otelgpu/otelgpu/internal/sinktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var id = component.MustNewID("file_storage")

type host map[component.ID]component.Component

func (h host) GetExtensions() map[component.ID]component.Component { return h }

func hostOf(s *sinktest.Storage) host { return host{id: s, component.MustNewID("other"): nil} }

// start returns an exporter with a queue in the storage and three consumers, as exporterhelper
// makes it.
func start(t *testing.T, s *sinktest.Storage, to *sinktest.Sink, log *zap.Logger) exporter.Traces {
	t.Helper()
	set := exportertest.NewNopSettings(component.MustNewType("otlp_http"))
	set.ID = component.MustNewID("otlp_http") // otherwise random, and the storage another
	retry := configretry.NewDefaultBackOffConfig()
	retry.MaxElapsedTime = 0
	push := func(ctx context.Context, td ptrace.Traces) error {
		assert.NotZero(t, td.SpanCount(), "a request that was not written is skipped")
		own := ptrace.NewTraces()
		td.CopyTo(own)
		return to.ConsumeTraces(ctx, own)
	}
	e, err := exporterhelper.NewTraces(t.Context(), set, &struct{}{}, push, exporterhelper.WithRetry(retry),
		exporterhelper.WithQueue(configoptional.Some(exporterhelper.QueueBatchConfig{
			Sizer: exporterhelper.RequestSizerTypeRequests, QueueSize: 1000, NumConsumers: 3, StorageID: &id,
		})))
	require.NoError(t, err)
	reserve := func() int { return 10 }
	require.NoError(t, e.Start(t.Context(), host{id: queuestorage.Extension(s, log, reserve)}))
	return e
}

func request(n byte) ptrace.Traces {
	td := ptrace.NewTraces()
	s := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans().AppendEmpty()
	s.SetTraceID(pcommon.TraceID{1})
	s.SetSpanID(pcommon.SpanID{n + 1})
	return td
}

// The disk becomes full and has space again, the store is away and returns, and the process is
// killed or stopped, at random. In the end every accepted request has arrived, and nothing is left
// in the storage but the position and the reserve.
func TestRequestsOfAQueueOnAFullDiskArrive(t *testing.T) {
	rejected, repeated := 0, 0
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			s := &sinktest.Storage{DeletesFail: seed%2 == 0}
			var up atomic.Bool
			sink := &sinktest.Sink{Reject: func() error {
				if up.Load() {
					return nil
				}
				return sinktest.ErrRejected
			}}
			accepted := byte(0)
			e := start(t, s, sink, zap.NewNop())
			full := error(nil)
			for range 12 {
				switch r.IntN(5) {
				case 0, 1:
					full = syscall.ENOSPC
				case 2:
					full = nil
				case 3:
					up.Store(!up.Load())
				case 4: // a kill; before, the store goes away
					left, was := s.Copy(), up.Swap(false)
					_ = e.Shutdown(context.Background())
					up.Store(was)
					s = left
					s.Fail(full)
					e = start(t, s, sink, zap.NewNop())
				}
				s.Fail(full)
				for range r.IntN(3) * r.IntN(10) {
					if e.ConsumeTraces(t.Context(), request(accepted)) == nil {
						accepted++
					} else {
						rejected++
					}
				}
				time.Sleep(time.Duration(r.IntN(100)) * time.Second)
				if r.IntN(5) == 0 { // stopped
					require.NoError(t, e.Shutdown(context.Background()))
					e = start(t, s, sink, zap.NewNop())
				}
			}
			if r.IntN(2) == 0 { // otherwise everything is sent on a full disk
				s.Fail(nil)
			}
			up.Store(true)
			time.Sleep(time.Hour)
			s.Fail(nil)
			require.NoError(t, e.ConsumeTraces(t.Context(), request(accepted)))
			time.Sleep(time.Hour)
			require.NoError(t, e.Shutdown(context.Background()))
			for n := range accepted + 1 {
				times := sink.Accepted()[pcommon.TraceID{1}.String()+pcommon.SpanID{n + 1}.String()]
				assert.NotZero(t, times, "request %d of seed %d", n, seed)
				repeated += max(0, times-1)
			}
			assert.Len(t, sink.Accepted(), int(accepted)+1, "seed %d", seed)
			assert.LessOrEqual(t, s.Len(), 1+6, "seed %d", seed)
		})
	}
	assert.NotZero(t, rejected)
	assert.NotZero(t, repeated)
}

func TestFailuresAreLoggedNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(sinktest.Storage)
		core, logs := observer.New(zapcore.WarnLevel)
		queue, err := queuestorage.Extension(s, zap.New(core), nil).GetClient(t.Context(), component.KindExporter, id, "")
		require.NoError(t, err)
		set := storage.SetOperation("a", []byte{1})
		for _, want := range []int{1, 1, 2, 2} {
			s.Fail(syscall.ENOSPC)
			require.ErrorIs(t, queue.Batch(t.Context(), set), syscall.ENOSPC)
			assert.Equal(t, want, logs.Len())
			s.Fail(nil)
			require.NoError(t, queue.Batch(t.Context(), set))
			time.Sleep(6 * time.Minute)
		}
	})
}

// A storage that cannot be read, either, is not hidden, and other components have the storage
// itself.
func TestOtherErrorsAndOtherComponentsAreLeftAlone(t *testing.T) {
	s := new(sinktest.Storage)
	all := queuestorage.Host(hostOf(s), id, zap.NewNop()).GetExtensions()
	ext := all[id].(storage.Extension)
	assert.Same(t, ext, queuestorage.Extension(ext, nil, nil), "once")
	assert.Nil(t, all[component.MustNewID("other")])
	require.NoError(t, ext.Start(t.Context(), componenttest.NewNopHost()))
	receiver, err := ext.GetClient(t.Context(), component.KindReceiver, id, "")
	require.NoError(t, err)
	own, err := s.GetClient(t.Context(), component.KindReceiver, id, "")
	require.NoError(t, err)
	assert.IsType(t, own, receiver)

	broken := queuestorage.Extension(failing{s}, zap.NewNop(), nil)
	queue, err := broken.GetClient(t.Context(), component.KindExporter, id, "")
	require.NoError(t, err)
	get, set := storage.GetOperation("a"), storage.SetOperation("b", nil)
	assert.ErrorIs(t, queue.Batch(t.Context(), set, get), errBroken)
	assert.ErrorIs(t, queue.Batch(t.Context(), get), errBroken)
	assert.ErrorIs(t, queue.Batch(t.Context(), set), errBroken)
	require.NoError(t, ext.Shutdown(t.Context()))
}

var errBroken = errors.New("database not open")

type failing struct{ *sinktest.Storage }

func (f failing) GetClient(context.Context, component.Kind, component.ID, string) (storage.Client, error) {
	return failingClient{}, nil
}

type failingClient struct{ storage.Client }

func (failingClient) Batch(context.Context, ...*storage.Operation) error { return errBroken }

// gpu_join in a Collector that others build warns about their file_storage.
func TestAFileStorageThatLosesRequestsIsNamed(t *testing.T) {
	core, logs := observer.New(zap.WarnLevel)
	log := zap.New(core)
	s, redis := new(sinktest.Storage), component.MustNewID("redis_storage")
	queuestorage.Host(host{redis: s}, redis, log)
	queuestorage.Host(host{id: queuestorage.Extension(s, log, nil)}, id, log)
	assert.Zero(t, logs.Len())
	queuestorage.Host(host{id: s}, id, log)
	require.Equal(t, 1, logs.Len())
	assert.Equal(t, "file_storage", logs.All()[0].ContextMap()["storage"])
}
