// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"context"
	"time"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/processor/gpujoinprocessor/internal/attribution"
)

// join is the queue's consumer: it waits, decides what is joined, and sends.
func (p *joinProcessor) join(ctx context.Context, td ptrace.Traces) error {
	b, td := pendingBatch(ctx, td, p.engine)
	if b == nil {
		b = p.batches.Get().(*batch)
		now := p.now()
		b.scan(td, p.ident, now.UnixNano(), p.cfg.MaxWait)
		if fresh, _ := p.engine.arrive(b, now, true); fresh && p.cfg.Queue.Storage != nil {
			p.stats.held.Add(int64(b.waiting)) // from the storage
			b.tally.passes = b.waiting == 0    // after a restart, before its devices are known
		}
		b.pack(td)
	}
	defer p.put(b)
	if b.waiting > 0 {
		b.tally.released(p.wait(b), b, p.now())
		p.write(b)
		p.remedy(b.unplaced)
	}
	return p.deliver(ctx, b)
}

// Reasons why a batch is released.
type releaseReason uint8

const (
	settled releaseReason = iota
	deadline
	shutdown
	oversize
	reasons
)

var reasonNames = [reasons]string{"settled", "deadline", "shutdown", "oversize"}

// wait returns when all spans of the batch are settled, at its deadline, or at shutdown.
func (p *joinProcessor) wait(b *batch) releaseReason {
	last := time.Unix(0, min(b.latest, b.seen)).Add(p.cfg.MaxWait)
	for {
		now := p.now()
		switch {
		case p.engine.settled(b, now, false):
			return settled
		case !now.Before(last):
			return deadline
		}
		// Until the latest end is `settle` ago no sample can complete the batch; after that any
		// may.
		until, wake := time.Unix(0, b.latest).Add(p.cfg.Settle), (<-chan struct{})(nil)
		if !until.After(now) {
			until, wake = last, p.wake
		}
		if until.After(last) {
			until = last
		}
		timer := time.NewTimer(until.Sub(now))
		select {
		case <-timer.C:
		case <-wake:
			timer.Stop()
		case <-p.draining:
			timer.Stop()
			p.engine.settled(b, p.now(), true)
			return shutdown
		}
	}
}

// write joins the spans under one lock of the samples, and omits spans that are in the request a
// second time.
func (p *joinProcessor) write(b *batch) {
	e := p.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	view := e.reader.Acquire()
	defer view.Release()
	e.find(view, &b.targets)
	e.conclude(b, p.now())
	if p.attrs.level == spanfacts.Lean {
		b.mark()
	}
	b.results = resultScratch.Get().(*results)
	now := p.now().UnixNano()
	for i := range b.targets.list {
		t := &b.targets.list[i]
		t.ahead, t.behind = e.clocks.offset(t.res.process, now)
		if t.behind == 0 {
			t.behind = e.loads.behind(t.res, p.attrs.shift)
		}
	}
	others := e.awaiting()
	for i, at := range b.joinable() {
		g := &b.spans[i]
		share, shared := at.board.dev.Share(g.Key, g.at)
		if at.board.dev.Unpin(g.Key, g.at) {
			b.results.end(g, true)
			b.tally.repeated++
			continue
		}
		further, bound := elsewhere(others, at.board, g)
		var more []attribution.Handle
		if len(at.more) > 0 && len(at.more) == int(g.further) {
			more = b.furtherHandles(g)
		}
		if at.ahead {
			b.tally.ahead++
		}
		wrote := p.attrs.write(b.results, g, at, more, share, shared, further, bound, &b.scopes[g.scope])
		for i, target := range more {
			at.more[i].board.dev.Unpin(g.Key, target)
		}
		b.results.end(g, false)
		if !wrote {
			b.tally.uncovered++
		}
		if share.Late > 0 {
			b.tally.late++
		}
		if !shared {
			b.tally.untracked++
		}
	}
	b.tally.uncertain, b.results.withheld = b.results.withheld, 0
}

// joinNow joins a request that cannot wait, with what is known by now.
func (p *joinProcessor) joinNow(ctx context.Context, td ptrace.Traces) error {
	b := p.batches.Get().(*batch)
	defer p.put(b)
	now := p.now()
	b.scan(td, p.ident, now.UnixNano(), p.cfg.MaxWait)
	b.urgent = true
	p.engine.arrive(b, now, true)
	p.engine.settled(b, now, false)
	b.tally.released(oversize, b, now)
	b.pack(td)
	p.write(b)
	if err := p.next.ConsumeTraces(ctx, b.build(&p.attrs)); err != nil {
		p.engine.giveBack(b) // the sender repeats it, which must not count as a lost response
		return err
	}
	p.stats.held.Add(int64(b.waiting))
	p.accepted(ctx, b)
	p.stats.delivered(ctx, b)
	return nil
}
