// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"context"
	"slices"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/processor/gpujoinprocessor/internal/fairshare"
)

// carry is what is known of a request that waits, so that it need not be read and looked up again when it leaves, with
// its memory long out of the processor's caches. It goes through the queue beside the request, in its context; a storage
// keeps only the request.
type carry struct {
	td           ptrace.Traces
	spans        []gpuSpan // those that wait
	places       []place
	host         []hostSpan
	ends         []carriedEnd
	latest, seen int64
}

// carriedEnd is a boardEnd with the state of the board at the arrival.
type carriedEnd struct {
	boardEnd
	dev *fairshare.Device
}

type carryKey struct{}

// carried adds what is known of the request to the context that goes through the queue with it.
func (b *batch) carried(ctx context.Context, held ptrace.Traces) context.Context {
	c := &carry{
		td: held, spans: make([]gpuSpan, 0, b.waiting()), places: slices.Clone(b.places.list), host: slices.Clone(b.host),
		ends: make([]carriedEnd, 0, len(b.boards)), latest: b.latest, seen: b.seen,
	}
	for _, s := range b.scopes {
		if s.hold {
			c.spans = append(c.spans, b.spans[s.first:s.last]...)
		}
	}
	for _, e := range b.boards {
		c.ends = append(c.ends, carriedEnd{e, e.board.dev})
	}
	b.resources = nil // places point into it, so it is not the batch's to reuse any more
	return context.WithValue(ctx, carryKey{}, c)
}

// resume makes the batch what it was when the request arrived. False: nothing is known of this request, or a device
// has been replaced since then. It works once, for a request that is tried again was written to.
func (b *batch) resume(ctx context.Context, td ptrace.Traces, e *engine) bool {
	c, ok := ctx.Value(carryKey{}).(*carry)
	if !ok || c.td != td {
		return false
	}
	defer func() { *c = carry{} }()
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, x := range c.ends {
		if e.boards[x.board.id] != x.board || x.board.dev != x.dev {
			return false
		}
	}
	// Children of the request's host spans may have come since.
	for _, h := range c.host {
		for _, x := range c.ends {
			x.dev.Pass(h.key, h.parent)
		}
	}
	for _, x := range c.ends {
		b.boards = append(b.boards, x.boardEnd)
	}
	b.spans = append(b.spans, c.spans...)
	b.places.list = append(b.places.list, c.places...)
	b.latest, b.seen = c.latest, c.seen
	b.scopes = append(b.scopes, scope{last: len(b.spans), hold: true})
	return true
}
