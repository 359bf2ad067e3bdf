// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"context"
	"slices"
	"sync"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/processor/gpujoinprocessor/internal/fairshare"
)

// pendingRequest is what is known of a request that waits, so that it need not be read and looked up again when it
// leaves, with its memory long out of the processor's caches. It goes through the queue beside the request, in its
// context; a storage keeps only the request.
//
// Its spans take their place in the fair share after the queue has taken it, for what is refused may never come
// again. So it is locked until then, and the consumer waits for that.
type pendingRequest struct {
	mu           sync.Mutex
	td           ptrace.Traces
	spans        []gpuSpan
	scopes       []scope
	places       []place
	host         []hostSpan
	ends         []pendingEnd
	waiting      int
	latest, seen int64
}

// pendingEnd is a boardEnd with the state of the board at the arrival.
type pendingEnd struct {
	boardEnd
	dev *fairshare.Device
}

type pendingKey struct{}

// newPending makes a locked pendingRequest and adds it to the context that goes through the queue.
func newPending(ctx context.Context, td ptrace.Traces) (context.Context, *pendingRequest) {
	r := &pendingRequest{td: td}
	r.mu.Lock()
	return context.WithValue(ctx, pendingKey{}, r), r
}

// fill takes what is known of the request from the batch, and unlocks.
func (r *pendingRequest) fill(b *batch) {
	r.spans, r.places, r.host = slices.Clone(b.spans), slices.Clone(b.places.list), slices.Clone(b.host)
	r.scopes = slices.Clone(b.scopes)
	r.ends = make([]pendingEnd, 0, len(b.boards))
	for _, e := range b.boards {
		r.ends = append(r.ends, pendingEnd{e, e.board.dev})
	}
	r.waiting, r.latest, r.seen = b.waiting, b.latest, b.seen
	b.resources = nil // places point into it, so it is not the batch's to reuse any more
	r.mu.Unlock()
}

// resume makes the batch what it was when the request arrived. False: nothing is known of this request, or a device
// has been replaced since then. It works once, for a request that is tried again was written to.
func (b *batch) resume(ctx context.Context, td ptrace.Traces, e *engine) bool {
	r, ok := ctx.Value(pendingKey{}).(*pendingRequest)
	if !ok || r.td != td {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiting == 0 {
		return false
	}
	defer func() { r.spans, r.scopes, r.places, r.host, r.ends, r.waiting = nil, nil, nil, nil, nil, 0 }()
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, x := range r.ends {
		if e.boards[x.board.id] != x.board || x.board.dev != x.dev {
			return false
		}
	}
	// Children of the request's host spans may have come since.
	for _, h := range r.host {
		for _, x := range r.ends {
			x.dev.Pass(h.key, h.parent)
		}
	}
	for _, x := range r.ends {
		b.boards = append(b.boards, x.boardEnd)
	}
	b.spans = append(b.spans, r.spans...)
	b.scopes = append(b.scopes, r.scopes...)
	b.places.list = append(b.places.list, r.places...)
	b.waiting, b.latest, b.seen = r.waiting, r.latest, r.seen
	return true
}
