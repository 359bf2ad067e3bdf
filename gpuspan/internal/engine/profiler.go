// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/internal/section"
	"github.com/otelgpu/otelgpu/gpuspan/internal/spans"
	"github.com/otelgpu/otelgpu/gpuspan/report"
)

// Profiler is a core with the goroutines that work for it. Tests of the packages reach the parts
// through it.
type Profiler struct {
	*section.Core
	Poller   *section.Poller
	Emitter  *spans.Exporter
	Watchdog *section.Watchdog
	Metrics  *spans.Metrics

	down        chan struct{} // closed when Shutdown is over
	shutdownErr error
}

func (p *Profiler) summary() (s report.Summary) {
	defer p.Guard("summary of the recorder")
	s = p.Recorder.Summary()
	for _, st := range p.Streams() {
		_, _, pending := st.Filled()
		s.Pending += int64(pending)
	}
	return s
}

func New(b backend.Backend, opts ...func(*section.Config)) (*Profiler, error) {
	core, err := section.NewCore(b, opts...)
	p := &Profiler{Core: core, Metrics: spans.NewMetrics(core), down: make(chan struct{})}
	spare := &section.SpareNests{}
	p.Poller, p.Emitter = section.NewPoller(core, spare), spans.NewExporter(core, p.Metrics, spare)
	go p.Poller.Run()
	go p.Emitter.Keep(p.Emitter.Loop)
	p.Watchdog = section.StartWatchdog(core)
	return p, err
}

func (p *Profiler) Stream(h uintptr, name string, opts ...func(*section.StreamConfig)) *section.Stream {
	if p == nil {
		return nil
	}
	return p.Poller.RegisterStream(h, name, opts...)
}

func (p *Profiler) Loop(name string, s *section.Stream, opts ...func(*spans.LoopConfig)) *spans.Loop {
	if p == nil {
		return spans.NewLoop(nil, name, s, opts...)
	}
	return spans.NewLoop(p.Core, name, s, opts...)
}

func (p *Profiler) Snapshot() report.Summary {
	if p == nil || p.Recorder == nil {
		return report.Summary{}
	}
	p.catchUp()
	return p.summary()
}

// catchUp updates the statistics: finished sections, and counts of untimed ones. If the polling
// thread hangs in the driver, only the update is missing.
func (p *Profiler) catchUp() {
	if p.Stopped() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	_ = p.Poller.Call(ctx, func() {
		p.Poller.Pass()
		p.Poller.AnchorNow()
		p.Poller.Place(false)
	})
	_ = p.Emitter.Call(ctx, func() {
		p.Emitter.DrainUntil(p.Clock.Now())
		p.Emitter.ReportUntimed()
	})
}

func (p *Profiler) Reset() {
	if p == nil || p.Recorder == nil {
		return
	}
	p.catchUp()
	defer p.Guard("the recorder was reset")
	p.Recorder.Reset()
}

func (p *Profiler) Stats(o *section.Operation) (report.Figures, bool) {
	if p == nil || o == nil {
		return report.Figures{}, false
	}
	return p.Snapshot().ByName(o.Cfg.Info.Name)
}

func (p *Profiler) Flush(ctx context.Context) error {
	if p == nil || p.Stopped() {
		return nil
	}
	ctx, cancel := p.deadline(ctx)
	defer cancel()
	return p.flush(ctx)
}

func (p *Profiler) deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx = cmp.Or(ctx, context.Background())
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, p.Cfg.FlushDeadline,
		fmt.Errorf("`flush_deadline` of %s passed", p.Cfg.FlushDeadline))
}

func (p *Profiler) Shutdown(ctx context.Context) error {
	if p == nil {
		return nil
	}
	ctx, cancel := p.deadline(ctx)
	defer cancel()
	if !p.Stop() {
		select {
		case <-p.down:
		case <-ctx.Done():
			select {
			case <-p.down: // was already
			default:
				return fmt.Errorf("shutdown: another call is in progress: %w", context.Cause(ctx))
			}
		}
		return p.shutdownErr
	}
	defer close(p.down)
	p.Watchdog.Stop()
	p.shutdownErr = p.stop(ctx)
	p.Watchdog.Wait(ctx)
	p.Metrics.Callback.Freeze(ctx)
	if p.Cfg.PrintReport && p.Recorder != nil {
		if err := p.summary().WriteText(os.Stderr); err != nil {
			p.shutdownErr = errors.Join(p.shutdownErr, err)
		}
	}
	return p.shutdownErr
}
