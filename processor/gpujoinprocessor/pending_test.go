// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// pending adds a request, and returns its context and batch.
func (s *still) pending(td *traces) (context.Context, *batch) {
	b := new(batch)
	b.scan(td.Traces, s.id, s.now.UnixNano(), s.cfg.MaxWait)
	s.arrive(b, s.now, false)
	return context.WithValue(context.Background(), pendingKey{}, &pendingRequest{td: td.Traces, batch: b}), b
}

func TestARequestIsResumedOnceAndAsItArrived(t *testing.T) {
	s := newStill(t)
	w, err := s.store.Register(writerID, nominal)
	require.NoError(t, err)
	s.write(w, s.now, s.now.Add(20*time.Second))
	td, other := newTraces("a"), newTraces("a")
	td.host(1, 0, s.now, s.now.Add(time.Second))
	td.gpu(2, 1, s.now, s.now.Add(time.Second))
	ctx, was := s.pending(td)

	resumed := func(ctx context.Context, td *traces) *batch {
		b, _ := pendingBatch(ctx, td.Traces, s.engine)
		return b
	}
	assert.Nil(t, resumed(context.Background(), td), "from a storage: there is no such value")
	assert.Nil(t, resumed(ctx, other), "another request")
	assert.Same(t, was, resumed(ctx, td))
	assert.Equal(t, 1, was.waiting)
	assert.Nil(t, resumed(ctx, td), "it is in use by now")
}

func TestNothingIsResumedOnADeviceThatRestarted(t *testing.T) {
	s, _, zero := sampled(t)
	td := newTraces("a")
	td.gpu(1, 0, zero.Add(10*time.Second), zero.Add(11*time.Second))
	ctx, b := s.pending(td)
	want := wire(t, td.Traces)
	b.pack(td.Traces)
	require.True(t, s.settled(b, s.now, false))
	s.now = zero.Add(-time.Hour) // the host's clock is set back
	s.tick(s.now, nil, func(*board) {})
	resumed, whole := pendingBatch(ctx, td.Traces, s.engine)
	assert.Nil(t, resumed)
	assert.Equal(t, want, wire(t, whole), "it is read again, whole")
}

// A host span of a pending request connects a later kernel to the step above.
func TestHostSpanOfAPendingRequestIsFollowed(t *testing.T) {
	s := newStill(t)
	w, err := s.store.Register(writerID, nominal)
	require.NoError(t, err)
	zero := s.now
	s.write(w, zero, zero.Add(20*time.Second))
	first, second := newTraces("a"), newTraces("a")
	first.gpu(1, 0, zero, zero.Add(2*time.Second))  // the step
	first.host(2, 1, zero, zero.Add(2*time.Second)) // an operator of the framework
	second.gpu(3, 2, zero, zero.Add(time.Second))   // its kernel
	ctx, _ := s.pending(first)
	s.pending(second)

	b, _ := pendingBatch(ctx, first.Traces, s.engine)
	require.NotNil(t, b)
	s.now = zero.Add(20 * time.Second)
	require.True(t, s.settled(b, s.now, false))
	got := s.shareOf(b)
	assert.InDelta(t, 600, got.Value, 1e-6)
	assert.InDelta(t, 300, got.Own, 1e-6, "the kernel's half is not the step's own")
}
