// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.uber.org/zap"

	"github.com/otelgpu/otelgpu/internal/resend"
	"github.com/otelgpu/otelgpu/internal/sharedcomponent"
	"github.com/otelgpu/otelgpu/processor/gpujoinprocessor/internal/attribution"
)

// lossReason is why accepted spans were dropped.
type lossReason uint8

const (
	rejected lossReason = iota
	retriesEnded
	lostAtShutdown
	losses
)

var lossNames = [losses]string{"rejected", "retries_ended", "shutdown"}

// lossRemedies are logged the first time.
var lossRemedies = [losses]string{
	rejected:     "the next component rejects them permanently, see the error",
	retriesEnded: "the next component rejects them (raise `retry_on_failure::max_elapsed_time`)",
}

// deliver sends a batch until the next component accepts it. Each attempt sends other data, because
// the next component may have shared or changed what it rejected. An error means that the batch is
// dropped or, with a storage, stays there.
func (p *joinProcessor) deliver(ctx context.Context, b *batch) error {
	to := sendContext{p.ending, ctx}
	retry := resend.Delay{Config: &p.cfg.RetryOnFailure}
	var first time.Time
	for {
		err := p.next.ConsumeTraces(to, b.build(&p.attrs))
		if err == nil {
			p.stats.delivered(ctx, b)
			p.acceptsAgain()
			return nil
		}
		if first.IsZero() {
			first = time.Now()
		}
		b.only = failed(err, b.only)
		var why lossReason
		delay := retry.Next()
		limit := p.cfg.RetryOnFailure.MaxElapsedTime
		switch {
		case resend.Permanent(err):
			why = rejected
		case p.ending.Err() != nil:
			why = lostAtShutdown
		case !p.cfg.RetryOnFailure.Enabled, limit > 0 && time.Since(first)+delay > limit:
			why = retriesEnded
		case !p.pause(delay):
			why = lostAtShutdown
		default:
			p.rejects(err)
			continue
		}
		return p.drop(ctx, b, why, err)
	}
}

// pause waits before the next attempt. It returns false if the time for a shutdown has passed.
func (p *joinProcessor) pause(delay time.Duration) bool {
	draining := p.draining
	select {
	case <-draining:
		draining, delay = nil, min(delay, maxDrainDelay)
	default:
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-draining:
	case <-p.ending.Done():
		return false
	}
	return true
}

// drop counts a batch that is not sent again.
func (p *joinProcessor) drop(ctx context.Context, b *batch, why lossReason, err error) error {
	if why == lostAtShutdown && p.cfg.Queue.Storage != nil {
		return err // the queue keeps it
	}
	n := len(b.packed.spans)
	if b.only != nil {
		n = len(b.only)
	}
	p.stats.lost(ctx, b, n, why)
	if why == lostAtShutdown {
		p.lostAtShutdown.Add(int64(n))
	} else {
		p.dropped[why].Do(func() {
			p.logger.Error("spans are dropped: "+lossRemedies[why]+"; further ones are counted, not logged",
				zap.String("reason", lossNames[why]), zap.Int("spans", n), zap.Error(err))
		})
	}
	return consumererror.NewPermanent(err) // for the queue
}

// calm is how long the next component accepts everything until an outage counts as ended: a full
// queue rejects and accepts in turn.
const calm = time.Minute

// rejects and acceptsAgain log the beginning and the end of an outage. The queue has one consumer,
// which calls them.
func (p *joinProcessor) rejects(err error) {
	if !p.rejecting {
		p.logger.Warn("the next component rejects spans, which are sent again; further rejections are not logged",
			zap.Error(err))
	}
	p.rejecting, p.rejected = true, time.Now()
}

func (p *joinProcessor) acceptsAgain() {
	if p.rejecting && time.Since(p.rejected) >= calm {
		p.rejecting = false
		p.logger.Info("the next component accepts spans again")
	}
}

// failed returns the spans that an error names as not accepted, nil for all. An exporter that has
// written a part of a batch, such as chrome_trace on a full disk, names the rest. was has the spans
// that were sent.
func failed(err error, was map[attribution.Key]bool) map[attribution.Key]bool {
	only := map[attribution.Key]bool{}
	if !collectFailed(err, only) {
		return was
	}
	return only
}

// collectFailed adds the spans that an error names. It returns false if a part of it that is not
// permanent names none.
func collectFailed(err error, only map[attribution.Key]bool) bool {
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range several.Unwrap() {
			if !resend.Permanent(e) && !collectFailed(e, only) {
				return false
			}
		}
		return true
	}
	if part, ok := err.(consumererror.Traces); ok { //nolint:errorlint // every wrapped error is visited, not the first one
		for _, rs := range part.Data().ResourceSpans().All() {
			for _, ss := range rs.ScopeSpans().All() {
				for _, s := range ss.Spans().All() {
					only[attribution.Key{Trace: s.TraceID(), Span: s.SpanID()}] = true
				}
			}
		}
		return true
	}
	inner := errors.Unwrap(err)
	return inner != nil && collectFailed(inner, only)
}

// sendContext has the values of a request and the end of the processor: an exporter with
// `block_on_overflow` must not delay the shutdown beyond its limit.
type sendContext struct {
	context.Context
	values context.Context
}

func (c sendContext) Value(key any) any { return c.values.Value(key) }

// maxDrainDelay is the maximum delay between attempts during the shutdown.
const maxDrainDelay = 100 * time.Millisecond

// drainPatience is how long a shutdown with a storage waits for the next batch to be accepted: the
// others stay there.
const drainPatience = time.Second

// drain sends the queue's batches until the limit. A queue in memory drains by itself; one in a
// storage would end with the current batch, and the others would be read after the restart, when
// their samples no longer exist. The error is sharedcomponent.ErrRunning if the next component does
// not return.
func (p *joinProcessor) drain(limit context.Context) error {
	defer context.AfterFunc(limit, p.end)()
	if p.cfg.Queue.Storage != nil {
		p.awaitDelivery(limit)
		p.end()
	}
	err := sharedcomponent.Within(limit, func() error { return p.queue.Shutdown(context.WithoutCancel(limit)) })
	if errors.Is(err, sharedcomponent.ErrRunning) {
		p.logger.Error("spans are lost or stay in the storage: the next component does not return",
			zap.Int64("gpu_spans", p.stats.held.Load()))
		return err
	}
	if n := p.lostAtShutdown.Load(); n > 0 {
		p.logger.Error("spans are lost: the next component did not accept them before the end of the shutdown "+
			"(raise `shutdown_timeout`, or set `queue::storage`)", zap.Int64("spans", n))
	} else if n := p.stats.held.Load(); n > 0 {
		p.logger.Warn("spans stay in the storage: the next component did not accept them before the end of the shutdown",
			zap.Int64("gpu_spans", n))
	}
	return err
}

// awaitDelivery waits until all batches have been accepted, the next component stops accepting, or
// the limit.
func (p *joinProcessor) awaitDelivery(limit context.Context) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	held, left := p.stats.held.Load(), time.Now()
	for held > 0 && time.Since(left) < drainPatience {
		select {
		case <-limit.Done():
			return
		case <-tick.C:
		}
		if n := p.stats.held.Load(); n != held {
			held, left = n, time.Now()
		}
	}
}
