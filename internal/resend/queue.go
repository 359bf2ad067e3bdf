// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package resend

import (
	"context"

	"go.uber.org/zap"
)

// Rejections logs that the next component rejects data, once until it accepts data again. Both
// fields must be set.
type Rejections struct {
	What string // the items, in the plural
	Log  *zap.Logger

	last bool // rejected
}

// Note takes the outcome of sending n items.
func (r *Rejections) Note(n int, err error) {
	switch {
	case err != nil && !r.last:
		r.Log.Warn(r.What+" are rejected; further rejections are not logged", zap.Int("count", n), zap.Error(err))
	case err == nil && r.last:
		r.Log.Info(r.What + " are accepted again")
	}
	r.last = err != nil
}

// Queue keeps data that the next component rejects, the oldest first, to send it again with what
// follows. It is not safe for concurrent use.
type Queue[T interface{ CopyTo(T) }] struct {
	Rejections
	Empty func() T
	Send  func(context.Context, T) error // gets a copy, which it may change
	Count func(T) int                    // of the items
	Drop  func(ctx context.Context, items int)
	Max   int // batches that are kept after a rejection

	waiting []T
}

// Add appends a batch.
func (q *Queue[T]) Add(data T) { q.waiting = append(q.waiting, data) }

// Flush sends the batches until one is rejected, which stays in the queue unless the error is
// permanent.
func (q *Queue[T]) Flush(ctx context.Context) error {
	for len(q.waiting) > 0 {
		first := q.waiting[0]
		try := q.Empty()
		first.CopyTo(try)
		err := q.Send(ctx, try)
		q.Note(q.Count(first), err)
		switch {
		case err == nil:
		case Permanent(err):
			q.Drop(ctx, q.Count(first))
		default:
			for ; len(q.waiting) > q.Max; q.waiting = q.waiting[1:] {
				q.Drop(ctx, q.Count(q.waiting[0]))
			}
			return err
		}
		q.waiting = q.waiting[1:]
	}
	q.waiting = nil
	return nil
}

// Drain sends the batches for up to DrainTimeout, and drops the rest.
func (q *Queue[T]) Drain(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, DrainTimeout)
	defer cancel()
	_ = Until(limited, q.Flush)
	for _, lost := range q.waiting {
		q.Drop(ctx, q.Count(lost))
	}
	q.waiting = nil
}
