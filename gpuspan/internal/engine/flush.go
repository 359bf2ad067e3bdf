// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/otelgpu/otelgpu/gpuspan/internal/section"
	"github.com/otelgpu/otelgpu/gpuspan/internal/worker"
)

// flush waits until everything that had ended at the call is read and its spans have ended. Later
// sections do not delay it.
func (p *Profiler) flush(ctx context.Context) error {
	t := p.Poller
	var targets map[*section.Stream]uint64
	var until int64
	left := -1 // not known
	for {
		n := 0
		err := t.Call(ctx, func() {
			if targets == nil {
				targets = t.Ended()
			}
			t.Pass()
			t.AnchorNow()
			t.Place(false)
			if n = t.Unread(targets); n == 0 && until == 0 {
				until = p.Clock.Now()
			}
			n += t.CountUnplaced(until)
		})
		if err == nil && until != 0 {
			waiting := 0
			err = p.Emitter.Call(ctx, func() {
				waiting = p.Emitter.DrainUntil(until)
				p.Emitter.ReportUntimed()
			})
			if err == nil {
				n += waiting
			}
		}
		switch {
		case err == nil && n == 0, errors.Is(err, worker.ErrStopped):
			return nil
		case err == nil:
			left = n
			select {
			case <-time.After(section.MinSleep):
				continue
			case <-ctx.Done():
				err = context.Cause(ctx)
			}
		}
		if left < 0 {
			return fmt.Errorf("flush: the polling thread did not respond: %w", err)
		}
		return fmt.Errorf("flush: the times of %d sections were not read: %w", left, err)
	}
}

// stop flushes, drops the rest, and frees everything. If the driver or a span processor of the
// application hangs, memory is left until the process ends.
func (p *Profiler) stop(ctx context.Context) error {
	t, e := p.Poller, p.Emitter
	err := p.flush(ctx)
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), section.CloseLimit) // flushing may use up ctx
	defer cancel()
	if until, ok := ctx.Deadline(); ok && time.Until(until) > section.CloseLimit && ctx.Err() == nil {
		limit = ctx
	}
	hangs := t.Call(limit, t.GiveUpAll)
	close(e.Quit)
	select {
	case <-e.Done:
	case <-limit.Done():
		err = errors.Join(err, errors.New("shutdown: a span processor or sink does not return, and some spans are lost"))
	}
	if hangs == nil {
		hangs = t.Call(limit, t.Close)
	}
	close(t.Quit)
	if hangs != nil && !errors.Is(hangs, worker.ErrStopped) {
		return errors.Join(err, errors.New("shutdown: the polling thread is blocked in the driver and was abandoned"))
	}
	<-t.Done
	return err
}
