// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package otlp encodes the spans of sections as they end and sends them as OTLP over HTTP, without
// the SDK:
//
//	sink, err := otlp.New(otlp.Endpoint("http://127.0.0.1:4318"), otlp.Resource(res.Attributes()...))
//	prof, err := gpuspan.New(backend, gpuspan.WithSink(sink))
//	…
//	prof.Shutdown(ctx)
//	sink.Shutdown(ctx)
//
// Attributes that all sections of an operation on a stream share are encoded once. A span then
// takes about a tenth of the CPU time of one that an SDK creates, batches and exports
// (benchmarks/figures.md). Features of the SDK are missing: span processors, attribute limits and
// samplers. A section below a span is recorded if that is sampled, a batch also if one of its
// requests is, and a section without a parent always.
//
// Requests wait in a bounded queue, are retried while the receiver requests it or is unreachable,
// and are dropped after [RetryFor]; [Sink.Stats] counts spans by outcome.
package otlp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"sync"
	"time"

	"go.opentelemetry.io/otel"

	"github.com/otelgpu/otelgpu/gpuspan/internal/options"
	"github.com/otelgpu/otelgpu/gpuspan/internal/sink"
)

// Sink encodes and sends the spans of sections. Any number of profilers may share one. Nil and zero
// Sinks drop all spans.
type Sink struct {
	cfg config

	mu     sync.Mutex
	batch  batch
	queue  []request
	spare  []byte // of a request that was sent
	stats  Stats
	closed bool
	said   time.Time // when an error was last reported

	timer *time.Timer   // of the interval that the first span of a batch begins
	work  chan struct{} // there is a request
	last  chan struct{} // closed when the newest request is over
	quit  chan struct{}
	done  chan struct{}
	abort context.CancelCauseFunc
	ctx   context.Context
}

type request struct {
	body  []byte
	spans int
	over  chan struct{} // closed when it is
}

// Stats counts spans by outcome.
type Stats struct {
	Sent int64 // accepted by the receiver
	// by reason: queue_full, rejected (permanently, by the receiver), retries (the receiver
	// requested a retry too often, or was unreachable), shutdown
	Dropped map[string]int64
}

// Reasons of [Stats].
const (
	queueFull = "queue_full"
	rejected  = "rejected"
	retries   = "retries"
	shutdown  = "shutdown"
)

// New creates a sink and starts its sender. It returns an error that lists invalid values. The
// result is never nil: invalid values are replaced by defaults; with an invalid endpoint all spans
// are dropped.
func New(opts ...Option) (*Sink, error) {
	c := config{headers: http.Header{}, interval: time.Second, batchSize: 2048, queue: 16, patience: time.Minute}
	options.All(opts, Option.apply)(&c)
	err := c.complete()
	s := &Sink{
		cfg: c, work: make(chan struct{}, 1), last: make(chan struct{}), quit: make(chan struct{}),
		done: make(chan struct{}), timer: time.NewTimer(c.interval),
	}
	if len(c.resource) > 0 {
		s.batch.resource = appendBytes(nil, 1, appendAttributes(nil, 1, c.resource))
	}
	s.stats.Dropped = map[string]int64{}
	s.ctx, s.abort = context.WithCancelCause(context.Background())
	close(s.last)
	if c.sender == nil {
		s.closed = true
		close(s.done)
		return s, err
	}
	go s.run()
	return s, err
}

func (s *Sink) made() bool { return s != nil && s.done != nil }

// fullRequest is the size of spans in bytes at which a request is complete: half of the 4 MiB that
// receivers accept by default.
const fullRequest = 2 << 20

// Section implements gpuspan.Sink.
func (s *Sink) Section(x *sink.Span) {
	if !s.made() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		s.stats.Dropped[shutdown]++
		return
	}
	s.batch.add(x)
	switch {
	case s.batch.spans >= s.cfg.batchSize || s.batch.bytes >= fullRequest:
		s.enqueue()
	case s.batch.spans == 1:
		s.timer.Reset(s.cfg.interval)
	}
}

// enqueue completes the current request. The mutex must be held.
func (s *Sink) enqueue() {
	n := s.batch.spans
	if n == 0 {
		return
	}
	if len(s.queue) >= s.cfg.queue {
		s.batch.clear()
		s.stats.Dropped[queueFull] += int64(n)
		return
	}
	s.last = make(chan struct{})
	s.queue = append(s.queue, request{s.batch.request(s.spare), n, s.last})
	s.spare = nil
	select {
	case s.work <- struct{}{}:
	default:
	}
}

// run sends requests, one at a time. If a sender ends the goroutine by runtime.Goexit another one
// continues.
func (s *Sink) run() {
	quit := false
	defer func() {
		if quit {
			s.timer.Stop()
			close(s.done)
		} else {
			go s.run()
		}
	}()
	for {
		if r, ok := s.next(); ok {
			s.send(r)
			continue
		}
		select {
		case <-s.work:
		case <-s.timer.C:
			s.mu.Lock()
			s.enqueue()
			s.mu.Unlock()
		case <-s.quit:
			s.mu.Lock()
			s.enqueue()
			s.mu.Unlock()
			for r, ok := s.next(); ok; r, ok = s.next() {
				s.send(r)
			}
			quit = true
			return
		}
	}
}

// next returns the oldest request.
func (s *Sink) next() (r request, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		return request{}, false
	}
	r = s.queue[0]
	s.queue[0] = request{}
	s.queue = s.queue[1:]
	return r, true
}

const (
	firstPause = 500 * time.Millisecond
	maxPause   = 30 * time.Second
)

var errNoReason = errors.New("the receiver rejected them without a reason")

// deliver tries until the request is accepted or dropped, and returns how many of its spans are
// dropped and why.
func (s *Sink) deliver(r request) (dropped int64, reason string, err error) {
	all, begin, pause := int64(r.spans), time.Now(), firstPause
	for {
		refused, err := s.cfg.sender.Send(s.ctx, r.body)
		var later *Later
		retry := errors.As(err, &later)
		switch refused = min(refused, all); {
		case refused > 0 && !retry:
			return refused, rejected, cmp.Or(err, errNoReason)
		case err == nil:
			return 0, rejected, nil
		case s.ctx.Err() != nil:
			return all, shutdown, err
		case !retry:
			return all, rejected, err
		}
		wait := max(pause, later.After)
		if time.Since(begin)+wait > s.cfg.patience {
			return all, retries, err
		}
		select {
		case <-time.After(wait):
		case <-s.ctx.Done():
			return all, shutdown, err
		}
		pause = min(2*pause, maxPause)
	}
}

// sayEvery is the minimum time between two reported errors.
const sayEvery = 10 * time.Second

// send delivers a request and counts its spans, whatever the result. Its memory is reused
// afterwards.
func (s *Sink) send(r request) {
	dropped, reason, err := int64(r.spans), rejected, errors.New("the sender did not return")
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("the sender panicked: %v", v)
		}
		s.settle(r, dropped, reason, err)
	}()
	dropped, reason, err = s.deliver(r)
}

func (s *Sink) settle(r request, dropped int64, reason string, err error) {
	s.mu.Lock()
	s.spare = r.body
	s.stats.Sent += int64(r.spans) - dropped
	if dropped > 0 {
		s.stats.Dropped[reason] += dropped
	}
	say := err != nil && time.Since(s.said) >= sayEvery
	if say {
		s.said = time.Now()
	}
	close(r.over)
	s.mu.Unlock()
	if say {
		defer func() { _ = recover() }() // the handler is the application's
		otel.Handle(fmt.Errorf("gpuspan/otlp: %d spans are dropped (%s): %w", dropped, reason, err))
	}
}

// Stats returns the numbers of spans by outcome so far.
func (s *Sink) Stats() Stats {
	if !s.made() {
		return Stats{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	out := Stats{Sent: s.stats.Sent, Dropped: map[string]int64{}}
	maps.Copy(out.Dropped, s.stats.Dropped)
	return out
}

// Flush sends pending spans and waits until they are accepted or dropped. If ctx is done first, it
// returns an error that wraps its cause. Flush the profiler first.
func (s *Sink) Flush(ctx context.Context) error {
	if !s.made() {
		return nil
	}
	s.mu.Lock()
	s.enqueue()
	over := s.last
	s.mu.Unlock()
	ctx = cmp.Or(ctx, context.Background())
	select {
	case <-over:
	case <-s.done:
	case <-ctx.Done():
		return fmt.Errorf("flush of gpuspan/otlp: %w", context.Cause(ctx))
	}
	return nil
}

// Shutdown sends pending spans until ctx is done; the others are dropped and counted, and it
// returns an error with their number. Later sections are dropped.
func (s *Sink) Shutdown(ctx context.Context) error {
	if !s.made() {
		return nil
	}
	s.mu.Lock()
	first := !s.closed
	s.closed = true
	s.mu.Unlock()
	if first {
		close(s.quit)
	}
	ctx = cmp.Or(ctx, context.Background())
	select {
	case <-s.done:
		return nil
	case <-ctx.Done():
	}
	s.abort(context.Cause(ctx))
	select {
	case <-s.done:
	case <-time.After(time.Second): // the sender ignores its context
		return fmt.Errorf("shutdown of gpuspan/otlp: the sender does not return, and its request is lost: %w",
			context.Cause(ctx))
	}
	if n := s.Stats().Dropped[shutdown]; n > 0 {
		return fmt.Errorf("shutdown of gpuspan/otlp: %d spans were not sent: %w", n, context.Cause(ctx))
	}
	return nil
}

var _ sink.Sink = (*Sink)(nil)
