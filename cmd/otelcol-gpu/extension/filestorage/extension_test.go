// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package filestorage

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/open-telemetry/opentelemetry-collector-contrib/extension/storage/filestorage"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/config/configretry"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
	"go.opentelemetry.io/collector/exporter/exportertest"
	"go.opentelemetry.io/collector/extension/extensiontest"
	"go.opentelemetry.io/collector/extension/xextension/storage"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A request that does not fit is rejected, and the others of the queue can still be read.
func TestAFullQueueCanBeRead(t *testing.T) {
	f, of := NewFactory(), filestorage.NewFactory()
	assert.Equal(t, of.Type(), f.Type())
	assert.Equal(t, of.Stability(), f.Stability())
	cfg := f.CreateDefaultConfig().(*filestorage.Config)
	cfg.Directory, cfg.MaxSize = t.TempDir(), 64<<10
	cfg.DirectoryPermissions = ""
	x, err := f.Create(t.Context(), extensiontest.NewNopSettings(f.Type()), cfg)
	require.NoError(t, err)
	require.NoError(t, x.Start(t.Context(), componenttest.NewNopHost()))
	id := component.MustNewID("otlp_http")
	c, err := x.(storage.Extension).GetClient(t.Context(), component.KindExporter, id, "traces")
	require.NoError(t, err)
	require.NoError(t, c.Set(t.Context(), "0", []byte("request")))
	large := make([]byte, 1<<20)
	require.ErrorIs(t, c.Batch(t.Context(), storage.SetOperation("1", large)), storage.ErrStorageFull)
	get := storage.GetOperation("0")
	require.NoError(t, c.Batch(t.Context(), storage.SetOperation("position", large), get))
	assert.Equal(t, "request", string(get.Value))
	require.NoError(t, c.Close(t.Context()))
	require.NoError(t, x.Shutdown(t.Context()))
}

type host map[component.ID]component.Component

func (h host) GetExtensions() map[component.ID]component.Component { return h }

const consumers = 3

// life is an exporter whose queue is in a folder. Its store accepts some requests, and then blocks
// every consumer until the end.
type life struct {
	exporter.Traces
	ext      component.Component
	accepted chan string // the names of the spans
	blocked  chan struct{}
	end      chan struct{}
}

func begin(t *testing.T, folder string, accepts int) *life {
	t.Helper()
	f := NewFactory()
	cfg := f.CreateDefaultConfig().(*filestorage.Config)
	cfg.Directory, cfg.DirectoryPermissions, cfg.MaxSize = folder, "", 1<<20
	x, err := f.Create(t.Context(), extensiontest.NewNopSettings(f.Type()), cfg)
	require.NoError(t, err)
	require.NoError(t, x.Start(t.Context(), componenttest.NewNopHost()))
	l := &life{
		ext: x, accepted: make(chan string, accepts), blocked: make(chan struct{}, consumers), end: make(chan struct{}),
	}
	push := func(_ context.Context, td ptrace.Traces) error {
		select {
		case l.accepted <- td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0).Name():
			return nil
		default:
			select {
			case l.blocked <- struct{}{}:
			case <-l.end:
			}
			<-l.end
			return errors.New("unavailable")
		}
	}
	id, set := component.MustNewID("file_storage"), exportertest.NewNopSettings(component.MustNewType("otlp_http"))
	set.ID = component.MustNewID("otlp_http")
	l.Traces, err = exporterhelper.NewTraces(t.Context(), set, &struct{}{}, push,
		exporterhelper.WithTimeout(exporterhelper.TimeoutConfig{}), exporterhelper.WithRetry(configretry.NewDefaultBackOffConfig()),
		exporterhelper.WithQueue(configoptional.Some(exporterhelper.QueueBatchConfig{
			Sizer: exporterhelper.RequestSizerTypeRequests, QueueSize: 10_000, NumConsumers: consumers, StorageID: &id,
		})))
	require.NoError(t, err)
	require.NoError(t, l.Start(t.Context(), host{id: x}))
	return l
}

// kill returns a copy of the folder, as it is while all consumers are sending.
func (l *life) kill(t *testing.T, folder string) (left string) {
	for range consumers {
		receive(t, l.blocked)
	}
	left = t.TempDir()
	require.NoError(t, os.CopyFS(left, os.DirFS(folder)))
	l.stop(t)
	return left
}

func receive[T any](t *testing.T, from chan T) (v T) {
	select {
	case v = <-from:
	case <-time.After(time.Minute):
		t.Fatal("a request in the queue is not sent")
	}
	return v
}

func (l *life) stop(t *testing.T) {
	close(l.end)
	require.NoError(t, l.Shutdown(t.Context()))
	require.NoError(t, l.ext.Shutdown(t.Context()))
}

// A queue on a full disk that is killed again and again sends each request once, apart from those
// that were being sent, and has space for new ones afterward. Sizes differ, because deletions write
// the neighbors of a request to other places of the database.
func TestKillsOnAFullDiskRepeatOnlyWhatWasBeingSent(t *testing.T) {
	folder, accepted, times := t.TempDir(), 0, map[string]int{}
	offer := func(l *life) bool {
		td := ptrace.NewTraces()
		s := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans().AppendEmpty()
		s.SetName(strconv.Itoa(accepted))
		s.Attributes().PutStr("text", strings.Repeat("x", 5000+700*(accepted*accepted%7)))
		if l.ConsumeTraces(t.Context(), td) != nil {
			return false
		}
		accepted++
		return true
	}
	l := begin(t, folder, 0)
	for offer(l) {
	}
	require.Greater(t, accepted, 50)
	folder = l.kill(t, folder)
	const accepts = 7
	for accepted-len(times) >= accepts+consumers {
		l = begin(t, folder, accepts)
		folder = l.kill(t, folder)
		for range accepts {
			times[receive(t, l.accepted)]++
		}
	}
	l = begin(t, folder, accepted)
	for range accepted - len(times) {
		times[receive(t, l.accepted)]++
	}
	assert.Len(t, times, accepted)
	for name, n := range times {
		assert.Equal(t, 1, n, name)
	}
	require.Eventually(t, func() bool { return offer(l) }, time.Minute, time.Millisecond, "space for new requests")
	assert.Equal(t, strconv.Itoa(accepted-1), receive(t, l.accepted))
	l.stop(t)
}

// A queue has space even if others fill the disk from its start on.
func TestAQueueTakesItsReserveAtOnce(t *testing.T) {
	folder := t.TempDir()
	l := begin(t, folder, 0)
	files, err := filepath.Glob(filepath.Join(folder, "*"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	info, err := os.Stat(files[0])
	require.NoError(t, err)
	assert.Greater(t, info.Size(), int64(2*(1<<20)/8), "twice an eighth of max_size")
	l.stop(t)
}
