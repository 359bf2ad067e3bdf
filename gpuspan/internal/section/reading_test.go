// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package section_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/internal/engine"
	"github.com/otelgpu/otelgpu/gpuspan/internal/engine/enginetest"
	"github.com/otelgpu/otelgpu/gpuspan/internal/section"
	"github.com/otelgpu/otelgpu/gpuspan/internal/work"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
)

// orderly is a device that finishes events in the order of their records, up to a limit set by the
// test.
type orderly struct {
	*enginetest.Backend
	order    map[backend.Event]int
	done     int // events that are finished
	asked    int
	captured backend.Event
}

func (b *orderly) Record(c *backend.Call) backend.Status {
	if c.Args[1] != 99 {
		b.order[backend.Event(c.Args[0])] = len(b.order) + 1
	}
	return backend.StatusOK
}

func (b *orderly) Query(e backend.Event) backend.Status {
	at, ours := b.order[e]
	switch {
	case !ours:
		return backend.StatusOK
	case e == b.captured:
		return backend.StatusCapturedEvent
	}
	if b.asked++; at > b.done {
		return backend.StatusNotReady
	}
	return backend.StatusOK
}

func (b *orderly) Elapsed(from, to backend.Event) (float64, backend.Status) {
	if b.captured != 0 && (from == b.captured || to == b.captured) {
		return 0, backend.StatusCapturedEvent
	}
	return 1000, backend.StatusOK
}

// read polls once, after n sections of which the device has finished some.
func (b *orderly) read(t *testing.T, n, finished int) (p *engine.Profiler, timed int64, pending, asked int) {
	p, err := engine.New(b)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Shutdown(context.Background())) })
	s := p.Stream(3, "main", enginetest.NeverCaptured())
	require.NoError(t, p.Poller.Call(context.Background(), func() {
		b.order, b.asked, b.done = map[backend.Event]int{}, 0, 2*finished
		for range n {
			enginetest.Op.Start(context.Background(), s).End()
		}
		if b.captured != 0 {
			b.captured = backend.Event((*(*s.Pending()).At(n / 2).End()).Args[0])
		}
		p.Poller.Pass()
		timed, pending, asked = p.Statuses()["ok"], (*(*s.Pending()).Size()), b.asked
		b.done = 2 * n
	}))
	return p, timed, pending, asked
}

func TestOneQueryCoversAllFinishedEvents(t *testing.T) {
	for _, finished := range []int{0, 1, 2, 37, 98, 99, 100} {
		b := &orderly{Backend: enginetest.NewBackend(), order: map[backend.Event]int{}}
		_, timed, pending, asked := b.read(t, 100, finished)
		require.EqualValues(t, finished, timed)
		require.Equal(t, 100-finished, pending)
		require.LessOrEqual(t, asked, 2+7+1, "of a hundred; the first that is not done is queried for its error")
	}
}

// A finished event means that all earlier ones are finished, except those recorded during a graph
// capture.
func TestACapturedEventAmongFinishedOnesIsFound(t *testing.T) {
	b := &orderly{Backend: enginetest.NewBackend(), order: map[backend.Event]int{}, captured: 1 << 40}
	p, timed, pending, _ := b.read(t, 100, 100)
	require.EqualValues(t, 99, timed)
	require.Zero(t, pending)
	require.EqualValues(t, 1, p.Statuses()["captured"])
	require.True(t, p.Streams()[0].DeviceTimed(), "the stream is not retired")
}

func TestWhichSectionsArePlain(t *testing.T) {
	f := enginetest.New(t, enginetest.NewBackend())
	s, ctx := f.P.Stream(3, "main"), context.Background()
	for name, c := range map[string]struct {
		run   func()
		plain bool
	}{
		"work":         {func() { enginetest.Op.Start(ctx, s).EndWith(work.Work{Items: 1, FLOPs: 2, Precision: work.BF16}) }, true},
		"waited for":   {func() { section.NewOperation("w", enginetest.Sync(settings.SyncImmediate)).Start(ctx, s).End() }, true},
		"attributes":   {func() { x := enginetest.Op.Start(ctx, s); x.SetAttributes(attribute.Int("a", 1)); x.End() }, false},
		"a link":       {func() { x := enginetest.Op.Start(ctx, s); x.Link(enginetest.Sampled()); x.End() }, false},
		"asked for":    {func() { x := enginetest.Op.Start(ctx, s); x.Elapsed(); x.End() }, false},
		"a chunk":      {func() { x := enginetest.Op.Start(ctx, s); x.Chunk(0, 2); x.End() }, false},
		"in another":   {func() { x := enginetest.Op.Start(ctx, s); x.Start(enginetest.Op).End(); x.End() }, false},
		"of host time": {func() { section.NewOperation("h", enginetest.Sync(settings.SyncNone)).Start(ctx, s).End() }, false},
	} {
		enginetest.Paused(f.P, func() {
			c.run()
			f.P.Poller.Pass()
			require.Len(t, s.Unplaced, 1, name)
			require.Equal(t, c.plain, s.Unplaced[0].Nest == nil, name)
			f.P.Poller.Place(true)
		})
		f.Flush(t)
		require.Len(t, s.Free, len(s.Slots), name)
	}
}

func TestPlainSectionsAreNumberedInOrder(t *testing.T) {
	a, b := section.NewOpState(section.NewOperation("a")), section.NewOpState(section.NewOperation("b"))
	(*a.Outermost.Untimed()).Count.Add(10)
	a.Timed.Count.Add(1)
	var c section.Counted
	var got []int64
	for _, x := range []struct {
		op *section.OpState
		w  work.Work
	}{
		{a, work.Work{Items: 1}},
		{a, work.Work{Items: 2, FLOPs: 4}},
		{a, work.Work{FLOPs: 8, Precision: work.BF16}},
		{b, work.Work{Read: 3}},
		{a, work.Work{Items: 5}},
	} {
		got = append(got, c.Number(x.op, &x.w))
	}
	require.EqualValues(t, 4, a.Timed.Count.Load(), "the last one is not added yet")
	c.Add()
	c.Add()
	require.Equal(t, []int64{12, 13, 14, 1, 15}, got)
	sum := a.Timed.Load()
	require.EqualValues(t, []int64{5, 8}, []int64{sum.Count, sum.Items})
	require.Equal(t, []float64{4, 8}, []float64{sum.FLOPs[work.PrecisionUnset], sum.FLOPs[work.BF16]})
	require.EqualValues(t, []int64{1, 3}, []int64{b.Timed.Count.Load(), b.Timed.Read.Load()})
}

// A device that lags fills slots faster than they come back: they double until 4,096, and the order
// of what is pending is kept. What finds none is reported once, with the setting.
func TestSlotsDoubleWhileHalfArePending(t *testing.T) {
	b := &orderly{Backend: enginetest.NewBackend(), order: map[backend.Event]int{}}
	var errs []string
	p, err := engine.New(b,
		enginetest.WithErrorHandler(func(err error) { errs = append(errs, err.Error()) }))
	require.NoError(t, err)
	s := p.Stream(3, "main", enginetest.NeverCaptured())
	require.NoError(t, p.Poller.Call(context.Background(), func() {
		b.order, b.done = map[backend.Event]int{}, 0
		for i := range 4196 {
			enginetest.Op.Start(context.Background(), s).End()
			if i%100 == 99 {
				p.Poller.Pass()
			}
		}
		all, used, pending := s.Filled()
		require.Equal(t, []int{4096, 4096, 4096}, []int{all, used, pending})
		require.EqualValues(t, 100, p.Drops()["pool_full"])
		for i := range 4096 {
			require.EqualValues(t, i+1, (*s.Pending()).At(i).Rec.ID&(1<<40-1), "the order of the stream")
		}
		b.done = 2 * 4096
	}))
	enginetest.Flush(t, p)
	require.NoError(t, p.Shutdown(context.Background()))
	require.EqualValues(t, 4096, p.Statuses()["ok"])
	require.Len(t, errs, 1)
	require.Contains(t, errs[0], "sections were counted and not timed")
	require.Contains(t, errs[0], "raise `slots`")
}
