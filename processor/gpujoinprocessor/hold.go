// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"context"
	"time"

	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/xpdata/pref"

	"github.com/otelgpu/otelgpu/internal/spanfacts"
)

// join returns the queue's consumer: it waits, writes and sends.
func (p *joinProcessor) join(ctx context.Context, td ptrace.Traces) error {
	passes := false
	b := pendingBatch(ctx, td, p.engine)
	if b == nil {
		b = p.batches.Get().(*batch)
		now := p.now()
		b.scan(td, p.ident, now.UnixNano(), p.cfg.MaxWait)
		if p.engine.arrive(b, now, true) && p.cfg.Queue.Storage != nil {
			p.stats.held.Add(int64(b.waiting)) // from the storage
			passes = b.waiting == 0            // after a restart, before its devices are known
		}
	}
	if n := b.waiting; n > 0 {
		reason := p.wait(b)
		b.unpack(td, &p.attrs)
		p.write(ctx, b, td)
		p.stats.released(ctx, b, n, reason, p.now())
	}
	if !passes {
		p.put(b)
	}
	if p.cfg.Queue.Storage != nil {
		// Data read from a storage has no owner yet. The pipeline would otherwise take ownership and release it when the next
		// component returns, and then the queue would release it again, which panics.
		pref.MarkPipelineOwnedTraces(td)
	}
	err := p.next.ConsumeTraces(ctx, td)
	if passes {
		if err == nil { // otherwise it arrives again
			p.stats.unplaced(ctx, b)
		}
		p.put(b)
	}
	return err
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
		// Until the latest end is `settle` ago no sample can complete the batch; after that any may.
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

// drainPatience is how long a drain waits for the next batch to be released.
const drainPatience = time.Second

// drain lets the consumer continue while batches are released. A queue in memory drains by itself; one in a storage
// would end with the current batch, and the others would be read after the restart, when their samples no longer exist.
func (p *joinProcessor) drain(ctx context.Context) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	held, left := p.stats.held.Load(), time.Now()
	for held > 0 && time.Since(left) < drainPatience {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if n := p.stats.held.Load(); n != held {
			held, left = n, time.Now()
		}
	}
}

// write joins the spans under one lock of the samples, and removes duplicates from the request.
func (p *joinProcessor) write(ctx context.Context, b *batch, td ptrace.Traces) {
	e := p.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	view := e.reader.Acquire()
	defer view.Release()
	e.find(view, &b.targets)
	if p.attrs.level == spanfacts.Lean {
		b.mark()
	}
	var late, uncovered, untracked int64
	var again map[ptrace.Span]bool
	for i, at := range b.joinable() {
		g := &b.spans[i]
		span := b.wire[g.wire]
		share, shared := at.board.dev.Share(g.Key, g.at)
		if at.board.dev.Unpin(g.Key, g.at) {
			if again == nil {
				again = map[ptrace.Span]bool{}
			}
			again[span] = true
			continue
		}
		if g.step { // the only span whose children may be on other devices: a section is on one stream
			share.Value += e.elsewhere(at.board, g.Key)
		}
		wrote := false
		if len(at.more) > 0 && len(at.more) == int(g.further) {
			more := b.furtherHandles(g)
			wrote = p.attrs.writeSeveral(span, g, at, more, share, shared)
			for i, target := range more {
				at.more[i].board.dev.Unpin(g.Key, target)
			}
		} else {
			wrote = p.attrs.write(span, g, at, share, shared, &b.scopes[g.scope])
		}
		if !wrote {
			uncovered++
		}
		if share.Late > 0 {
			late++
		}
		if !shared {
			untracked++
		}
	}
	p.stats.joined(ctx, late, uncovered, untracked)
	if again != nil {
		p.stats.tb.ProcessorGpuJoinRepeatedSpans.Add(ctx, int64(remove(td, again)))
	}
}

// joinNow joins a request that cannot wait, with what is known by now.
func (p *joinProcessor) joinNow(ctx context.Context, td ptrace.Traces) error {
	b := p.batches.Get().(*batch)
	defer p.put(b)
	now := p.now()
	b.scan(td, p.ident, now.UnixNano(), p.cfg.MaxWait)
	p.engine.arrive(b, now, true)
	p.engine.settled(b, now, false)
	p.write(ctx, b, td)
	n := b.waiting
	p.stats.held.Add(int64(n))
	p.accepted(ctx, b)
	p.stats.released(ctx, b, n, oversize, p.now())
	err := p.next.ConsumeTraces(ctx, td)
	if err != nil {
		p.engine.giveBack(b) // the sender repeats it, which must not count as a lost response
	}
	return err
}
