// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package resend_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/otelgpu/otelgpu/internal/resend"
)

// batch is a number of items.
type batch struct{ items int }

func (b *batch) CopyTo(to *batch) { *to = *b }

func TestQueueSendsWhatWasRejectedInOrderAndCountsWhatIsLost(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	var sent []int
	dropped, answer := 0, errors.New("full")
	q := resend.Queue[*batch]{
		Rejections: resend.Rejections{What: "items", Log: zap.New(core)},
		Empty:      func() *batch { return &batch{} },
		Send: func(_ context.Context, b *batch) error {
			if answer == nil {
				sent = append(sent, b.items)
			}
			b.items = -1 // the next component may change what it gets
			return answer
		},
		Count: func(b *batch) int { return b.items },
		Drop:  func(_ context.Context, n int) { dropped += n },
		Max:   2,
	}
	for i := range 4 {
		q.Add(&batch{1 << i})
		require.Equal(t, answer, q.Flush(t.Context()))
	}
	assert.Equal(t, 1+2, dropped, "the oldest are dropped")
	assert.Equal(t, 1, logs.FilterMessageSnippet("items are rejected").Len(), "not once for each")
	answer = nil
	q.Add(&batch{16})
	require.NoError(t, q.Flush(t.Context()))
	assert.Equal(t, []int{4, 8, 16}, sent)
	assert.Equal(t, 1, logs.FilterMessage("items are accepted again").Len())

	answer = consumererror.NewPermanent(errors.New("too large"))
	q.Add(&batch{32})
	require.NoError(t, q.Flush(t.Context()))
	assert.Equal(t, 3+32, dropped, "what is rejected permanently is not sent again")

	answer = errors.New("full")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	q.Add(&batch{64})
	q.Drain(ended)
	assert.Equal(t, 3+32+64, dropped)
	answer = nil
	require.NoError(t, q.Flush(t.Context()))
	assert.Len(t, sent, 3, "dropped batches are not sent")
}
