// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/internal/record"
)

// orderly is a device that finishes events in the order in which they were recorded, as far as a test lets it.
type orderly struct {
	*scripted
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

// read lets the polling thread look once, after n sections of which the device has finished some.
func (b *orderly) read(t *testing.T, n, finished int) (p *Profiler, timed int64, pending, asked int) {
	p, err := New(b)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Shutdown(context.Background())) })
	s := p.Stream(3, "main", NeverCaptured())
	require.NoError(t, p.poller.Call(context.Background(), func() {
		b.order, b.asked, b.done = map[backend.Event]int{}, 0, 2*finished
		for range n {
			testOp.Start(context.Background(), s).End()
		}
		if b.captured != 0 {
			b.captured = backend.Event(s.Slots[s.Pending.At(n/2)].End.Args[0])
		}
		p.poller.Pass()
		timed, pending, asked = p.Statuses[record.StatusTimed].Load(), s.Pending.Size, b.asked
		b.done = 2 * n
	}))
	return p, timed, pending, asked
}

func TestOneQuestionAnswersForAllThatIsDone(t *testing.T) {
	for _, finished := range []int{0, 1, 2, 37, 98, 99, 100} {
		b := &orderly{scripted: newScripted(), order: map[backend.Event]int{}}
		_, timed, pending, asked := b.read(t, 100, finished)
		require.EqualValues(t, finished, timed)
		require.Equal(t, 100-finished, pending)
		require.LessOrEqual(t, asked, 2+7+1, "of a hundred; the first that is not done is queried for its error")
	}
}

// The newest event says that all before it are done, and nothing of one that a graph's capture took.
func TestACapturedEventAmongFinishedOnesIsFound(t *testing.T) {
	b := &orderly{scripted: newScripted(), order: map[backend.Event]int{}, captured: 1 << 40}
	p, timed, pending, _ := b.read(t, 100, 100)
	require.EqualValues(t, 99, timed)
	require.Zero(t, pending)
	require.EqualValues(t, 1, p.Statuses[record.StatusCaptured].Load())
	require.True(t, p.StreamList.All()[0].DeviceTimed(), "the stream is not retired")
}
