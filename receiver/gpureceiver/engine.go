// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpureceiver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
)

// engine keeps one of several sources open and reads it. Calls of a source run in separate
// goroutines, one at a time for each source, because a call can block for a minute (a hung host
// engine) or forever: the engine waits callTimeout, reports that the call is late, and continues
// with other work.
type engine struct {
	candidates  []*candidate
	callTimeout time.Duration
	retryMax    time.Duration
	retryMin    time.Duration
	handler     handler
}

func newEngine(cfg *Config, sources []gpudata.Source, h handler) *engine {
	e := &engine{
		callTimeout: cfg.CallTimeout, retryMin: min(time.Second, cfg.RetryInterval), retryMax: cfg.RetryInterval, handler: h,
	}
	for _, s := range sources {
		e.candidates = append(e.candidates, &candidate{src: s})
	}
	return e
}

// handler is notified of events, from the engine's goroutine.
type handler interface {
	// opened: the source responds; devices are its devices (maybe none), skipped is why earlier
	// sources were skipped.
	opened(source string, devices []devicesamples.Device, skipped error)
	// read: a read returned after d. The batch belongs to the engine again when read returns.
	read(source string, devices []devicesamples.Device, b *gpudata.Batch, d time.Duration)
	// late: the call has not returned within the call timeout. A later opened or read revokes it.
	late(source, op string)
	// lost: an open source failed and was closed.
	lost(source string, err error)
	// unavailable: no source could be opened; the next attempt is after d.
	unavailable(err error, d time.Duration)
	// finished: a finite source has ended.
	finished(source string)
}

type candidate struct {
	src     gpudata.Source
	pending chan error // of the call in progress; nil if there is none
	op      string
	since   time.Time
	opened  bool
}

// errLate is returned by a call that is no longer waited for.
var errLate = errors.New("no answer")

func (c *candidate) start(op string, fn func() error) {
	pending := make(chan error, 1)
	c.pending, c.op, c.since = pending, op, time.Now()
	go func() { pending <- fn() }()
}

// wait waits for the running call; errLate if it takes longer than d, the context's error if that
// ends.
func (c *candidate) wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case err := <-c.pending:
		c.pending = nil
		return err
	case <-timer.C:
		return errLate
	case <-ctx.Done():
		return ctx.Err()
	}
}

// run returns when the context ends (nil), or when the source has ended (io.EOF).
func (e *engine) run(ctx context.Context) error {
	defer e.release()
	backoff := e.retryMin
	for {
		c, err := e.open(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if c == nil {
			e.handler.unavailable(err, backoff)
			if !sleep(ctx, backoff) {
				return nil
			}
			backoff = min(2*backoff, e.retryMax)
			continue
		}
		backoff = e.retryMin
		for c != nil {
			e.handler.opened(c.src.Name(), c.src.Devices(), err)
			var better *candidate
			better, err = e.read(ctx, c)
			if ctx.Err() != nil {
				return nil
			}
			if errors.Is(err, io.EOF) {
				e.handler.finished(c.src.Name())
				return io.EOF
			}
			if better == nil {
				e.handler.lost(c.src.Name(), err)
			}
			c.close()
			_ = c.wait(ctx, e.callTimeout)
			c = better
		}
		if !sleep(ctx, e.retryMin) {
			return nil
		}
	}
}

// better returns a candidate before the one that is read, if one has opened since: a host engine
// often starts after the Collector. From time to time it calls Open of the idle ones, without
// waiting for the result.
func (e *engine) better(reading *candidate, next *time.Time) *candidate {
	due := !time.Now().Before(*next)
	if due {
		*next = time.Now().Add(e.retryMax)
	}
	for _, c := range e.candidates[:slices.Index(e.candidates, reading)] {
		if c.pending == nil {
			if due {
				c.start("open", c.src.Open)
			}
			continue
		}
		select {
		case err := <-c.pending:
			c.pending = nil
			switch {
			case c.op != "open" || err != nil:
			case len(c.src.Devices()) == 0:
				c.close()
			default:
				c.opened = true
				return c
			}
		default:
		}
	}
	return nil
}

// open tries the candidates in order. Together with a candidate, the error states why earlier ones
// were skipped. A candidate whose last call still runs is waited for, not called again.
func (e *engine) open(ctx context.Context) (*candidate, error) {
	var errs []error
	for _, c := range e.candidates {
		if c.pending != nil && c.op == "close" {
			if err := c.wait(ctx, e.callTimeout); c.pending != nil {
				errs = append(errs, e.describe(c, err))
				continue
			}
		}
		if c.pending == nil {
			c.start("open", c.src.Open)
		}
		err := c.wait(ctx, e.callTimeout)
		if ctx.Err() != nil && c.pending != nil {
			return nil, ctx.Err()
		}
		if err == nil {
			c.opened = true
			for _, other := range e.candidates {
				if other != c && other.pending != nil && other.op == "open" {
					other.abandon()
				}
			}
			return c, errors.Join(errs...)
		}
		errs = append(errs, e.describe(c, err))
	}
	return nil, errors.Join(errs...)
}

func (e *engine) describe(c *candidate, err error) error {
	if errors.Is(err, errLate) {
		e.handler.late(c.src.Name(), c.op)
		return fmt.Errorf("%s: %s has not returned", c.src.Name(), c.op)
	}
	return fmt.Errorf("%s: %w", c.src.Name(), err)
}

// read reads until the source fails, ends, or the context does, or until a better one is open,
// which it returns. A late read is waited for: the source keeps the samples of that time, and there
// is nothing else to do.
func (e *engine) read(ctx context.Context, c *candidate) (better *candidate, err error) {
	var (
		b      = &gpudata.Batch{}
		timer  = time.NewTimer(0)
		next   = time.Now()
		search = next.Add(e.retryMax)
	)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-timer.C:
		}
		if o := e.better(c, &search); o != nil {
			return o, nil
		}
		b.Reset()
		c.start("read", func() error { return c.src.Read(b) })
		err = c.wait(ctx, e.callTimeout)
		if errors.Is(err, errLate) && c.pending != nil {
			e.handler.late(c.src.Name(), c.op)
			const forEver = 1 << 62
			err = c.wait(ctx, forEver)
		}
		if c.pending != nil {
			return nil, ctx.Err() // the batch is still being written
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		e.handler.read(c.src.Name(), c.src.Devices(), b, time.Since(c.since))
		if err != nil {
			return nil, err
		}
		next = next.Add(c.src.Pace())
		if now := time.Now(); next.Before(now) {
			next = now
		}
		timer.Reset(time.Until(next))
	}
}

// A shutdown waits for a running call for pendingTimeout, since a working source responds in
// milliseconds, and in all for releaseTimeout: an embedded host engine takes 2 s to stop.
const (
	pendingTimeout = time.Second
	releaseTimeout = 3 * time.Second
)

// release closes the open source. A call that does not return in time is left to a goroutine.
func (e *engine) release() {
	limit := min(e.callTimeout, releaseTimeout)
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	for _, c := range e.candidates {
		if c.pending != nil {
			if err := c.wait(ctx, min(limit, pendingTimeout)); c.pending != nil {
				e.handler.late(c.src.Name(), c.op)
				c.abandon()
				continue
			} else if c.op == "open" && err == nil {
				c.opened = true
			}
		}
		if c.opened {
			c.close()
			if _ = c.wait(ctx, limit); c.pending != nil {
				e.handler.late(c.src.Name(), c.op)
			}
		}
	}
}

// abandon leaves the running call to a goroutine that closes the source if it is open once the call
// has returned. Until then the candidate is busy.
func (c *candidate) abandon() {
	pending, done, op, src := c.pending, make(chan error, 1), c.op, c.src
	c.pending, c.opened = done, false
	go func() {
		err := <-pending
		if op == "read" || (op == "open" && err == nil) {
			err = src.Close()
		}
		done <- err
	}()
	c.op = "close"
}

func (c *candidate) close() {
	c.opened = false
	c.start("close", c.src.Close)
}

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
