// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"hash/maphash"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/otelgpu/otelgpu/internal/boundedmap"
	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/processor/gpujoinprocessor/internal/attribution"
)

// still is an engine on a clock that only the test advances.
type still struct {
	*engine
	t     *testing.T
	now   time.Time
	store *devicesamples.Store
	id    identifier
}

func newStill(t *testing.T, edit ...func(*Config)) *still {
	s := &still{t: t, now: time.Unix(1_700_000_000, 0), id: identifier{seed: maphash.MakeSeed()}}
	s.store = devicesamples.NewStore(devicesamples.NewDefaultConfig(), func() time.Time { return s.now })
	cfg := createDefaultConfig().(*Config)
	for _, e := range edit {
		e(cfg)
	}
	s.engine = &engine{
		cfg: cfg, reader: s.store, boards: map[string]*board{}, budget: attribution.Budget{Max: cfg.MaxSpans},
		undecided: undecided{since: boundedmap.NewRecent[uint64, int64](maxSums)},
	}
	return s
}

func (s *still) write(w devicesamples.DeviceWriter, from, to time.Time) {
	for ; !from.After(to); from = from.Add(100 * time.Millisecond) {
		w.Write(one(from, time.Unix(1_700_000_000, 0)))
	}
}

func (s *still) arriveOne(id uint64, start, end time.Time) *batch {
	td := newTraces("a")
	td.gpu(id, 0, start, end)
	b := new(batch)
	b.scan(td.Traces, s.id, s.now.UnixNano(), s.cfg.MaxWait)
	s.arrive(b, s.now, false)
	return b
}

func (s *still) shareOf(b *batch) attribution.Share {
	for _, on := range s.boards {
		share, ok := on.dev.Share(b.spans[0].Key, b.spans[0].at)
		require.True(s.t, ok)
		return share
	}
	s.t.Fatal("no board")
	return attribution.Share{}
}

// sampled returns a join with a device that has samples of 20 s, from zero on.
func sampled(t *testing.T) (s *still, w devicesamples.DeviceWriter, zero time.Time) {
	s = newStill(t)
	zero = s.now
	w, err := s.store.Register(writerID, nominal)
	require.NoError(t, err)
	s.write(w, zero, zero.Add(20*time.Second))
	s.now = zero.Add(20 * time.Second)
	return s, w, zero
}

func TestHostClockSetBackRestarts(t *testing.T) {
	s, w, zero := sampled(t)
	b := s.arriveOne(1, zero.Add(10*time.Second), zero.Add(11*time.Second))
	require.True(t, s.settled(b, s.now, false))
	assert.InDelta(t, 300, s.shareOf(b).Value, 1e-6)

	// One hour back: the samples restart there, and so does the join.
	s.now = zero.Add(-time.Hour)
	s.tick(s.now, nil, func(*board) {})
	back := s.now
	s.now = back.Add(20 * time.Second)
	for at := back; !at.After(s.now); at = at.Add(100 * time.Millisecond) {
		w.Write(one(at, back))
	}
	b = s.arriveOne(2, back.Add(10*time.Second), back.Add(11*time.Second))
	require.True(t, s.settled(b, s.now, false))
	assert.InDelta(t, 300, s.shareOf(b).Value, 1e-6)
}

// The reported energy continues after the host's clock was set back, without the interval between
// the two times.
func TestReportedEnergyContinuesWhenTheHostClockIsSetBack(t *testing.T) {
	s, w, zero := sampled(t)
	var sum [energyStates]float64
	report := func(b *board) {
		more, _ := b.energy.take(b)
		for i := range more {
			sum[i] += more[i]
		}
	}
	s.arriveOne(1, zero.Add(10*time.Second), zero.Add(11*time.Second))
	s.tick(s.now, nil, report)
	assert.InDelta(t, 300, sum[attributed], 1e-6)

	s.now = zero.Add(-time.Hour)
	s.tick(s.now, nil, report)
	back := s.now
	s.now = back.Add(20 * time.Second)
	for at := back; !at.After(s.now); at = at.Add(100 * time.Millisecond) {
		w.Write(one(at, back))
	}
	s.arriveOne(2, back.Add(12*time.Second), back.Add(13*time.Second))
	s.tick(s.now, nil, report)
	assert.InDelta(t, 600, sum[attributed], 1e-6)
	assert.Zero(t, sum[uncovered])
}

// Pending spans do not wait until a clock that was set back has caught up, because their device has
// restarted.
func TestSpansDoNotWaitAfterTheHostClockIsSetBack(t *testing.T) {
	s, _, zero := sampled(t)
	s.tick(s.now, nil, func(*board) {})
	b := s.arriveOne(1, zero.Add(18*time.Second), zero.Add(19*time.Second))
	require.False(t, s.settled(b, s.now, false))
	s.now = zero.Add(-time.Hour)
	require.True(t, s.settled(b, s.now, false))
	require.True(t, s.settled(b, s.now, false))
	for _, on := range s.boards {
		_, ok := on.dev.Share(b.spans[0].Key, b.spans[0].at)
		require.False(t, ok, "its share is not known any more")
	}
}

func TestDeviceThatVanishesIsReleased(t *testing.T) {
	s := newStill(t)
	zero := s.now
	w, err := s.store.Register(writerID, nominal)
	require.NoError(t, err)
	s.write(w, zero, zero.Add(time.Second))
	b := s.arriveOne(1, zero, zero.Add(time.Second))
	require.False(t, s.settled(b, s.now, false))
	w.Close()
	s.now = zero.Add(time.Hour)
	other := nominal
	other.ID = "GPU-eeeeeeee-0000-0000-0000-000000000000"
	_, err = s.store.Register(writerID, other) // sweeps
	require.NoError(t, err)
	assert.True(t, s.settled(b, s.now, false))
	assert.Empty(t, s.boards)
	assert.Zero(t, s.known(), "the budget is given back")
}

func TestInactiveInstanceDelaysNothing(t *testing.T) {
	s := newStill(t, settleIn6s)
	zero := s.now
	w, err := s.store.Register(writerID, nominal)
	require.NoError(t, err)
	mig, err := s.store.Register(writerID, devicesamples.Device{
		ID: "MIG-1", Parent: gpu0,
		Interval: 100 * time.Millisecond,
	})
	require.NoError(t, err)
	s.write(w, zero, zero.Add(9*time.Second))
	s.write(mig, zero, zero.Add(8900*time.Millisecond))
	s.now = zero.Add(15 * time.Second)
	td := newTraces("a")
	td.gpu(1, 0, zero, zero.Add(time.Second)).Attributes().PutStr("hw.id", "MIG-1")
	b := new(batch)
	b.scan(td.Traces, s.id, s.now.UnixNano(), s.cfg.MaxWait)
	s.arrive(b, s.now, false)
	s.settled(b, s.now, false)
	at, _ := b.boards[0].board.dev.Settled()
	assert.Equal(t, zero.Add(8900*time.Millisecond).UnixNano(), at, "the instance is a sample behind and is waited for")

	s.write(w, zero.Add(9100*time.Millisecond), zero.Add(12*time.Second))
	s.now = zero.Add(20 * time.Second)
	s.settled(b, s.now, false)
	at, _ = b.boards[0].board.dev.Settled()
	assert.Equal(t, zero.Add(12*time.Second).UnixNano(), at, "the instance has no samples")
}

func TestMaxSpansBoundsAttributionOnly(t *testing.T) {
	s := newStill(t, func(c *Config) { c.MaxSpans = 2 })
	zero := s.now
	w, err := s.store.Register(writerID, nominal)
	require.NoError(t, err)
	s.write(w, zero, zero.Add(time.Second))
	s.now = zero.Add(time.Second)
	td := newTraces("a")
	for i := range uint64(5) {
		td.gpu(i+1, 0, zero, zero.Add(time.Second))
	}
	b := new(batch)
	b.scan(td.Traces, s.id, s.now.UnixNano(), s.cfg.MaxWait)
	s.arrive(b, s.now, false)
	assert.Equal(t, 2, s.known())
	assert.Equal(t, 5, b.waiting)
}

func TestDeviceNumbersOfOtherHostsDoNotMatch(t *testing.T) {
	s := newStill(t)
	s.ordinals = map[int64]string{0: gpu0}
	_, err := s.store.Register(writerID, nominal)
	require.NoError(t, err)
	td := newTraces("a")
	g := td.gpu(1, 0, s.now.Add(-time.Second), s.now)
	g.Attributes().PutStr("hw.id", "GPU-ffffffff-0000-0000-0000-000000000000")
	g.Attributes().PutInt("gpu.device.ordinal", 0)
	b := new(batch)
	b.scan(td.Traces, s.id, s.now.UnixNano(), s.cfg.MaxWait)
	s.arrive(b, s.now, false)
	assert.Equal(t, unknownDevice, b.targets.list[b.spans[0].target].outcome)
	assert.True(t, b.targets.list[0].undecided, "it may come")
}

func TestProcessIdentity(t *testing.T) {
	id := identifier{seed: maphash.MakeSeed()}
	of := func(kv ...any) uint64 {
		m := pcommon.NewMap()
		for i := 0; i < len(kv); i += 2 {
			require.NoError(t, m.PutEmpty(kv[i].(string)).FromRaw(kv[i+1]))
		}
		return id.resource(m).process
	}
	same := func(a, b uint64) { t.Helper(); assert.Equal(t, a, b) }
	differ := func(a, b uint64) { t.Helper(); assert.NotEqual(t, a, b) }

	same(of("service.name", "s", "service.instance.id", "1"), of("service.instance.id", "1", "telemetry.sdk.language",
		"go", "service.name", "s"))
	differ(of("service.name", "s", "service.instance.id", "1"), of("service.name", "s", "service.instance.id", "2"))
	differ(of("service.name", "s", "service.instance.id", "1"), of("service.name", "t", "service.instance.id", "1"))
	same(of("process.pid", int64(7), "host.name", "n"), of("host.name", "n", "process.pid", int64(7), "os.type", "linux"))
	differ(of("process.pid", int64(7), "host.name", "n"), of("process.pid", int64(8), "host.name", "n"))
	differ(of("process.pid", int64(1), "container.id", "a"), of("process.pid", int64(1), "container.id", "b"))
	same(of("a", "1", "b", "2"), of("b", "2", "a", "1"))
	differ(of("a", "1", "b", "2"), of("a", "2", "b", "1"))
	differ(of("service.instance.id", "", "service.name", "s", "x", "1"),
		of("service.instance.id", "", "service.name", "s", "x", "2"))
	same(of(), of())
}
