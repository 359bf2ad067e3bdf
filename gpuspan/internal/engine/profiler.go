// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/internal/export"
	"github.com/otelgpu/otelgpu/gpuspan/internal/record"
	"github.com/otelgpu/otelgpu/gpuspan/internal/timeline"
	"github.com/otelgpu/otelgpu/gpuspan/internal/tree"
	"github.com/otelgpu/otelgpu/gpuspan/report"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
)

// Profiler is a core with the goroutines that work for it. Tests of the packages reach the parts through it.
type Profiler struct {
	*record.Core
	Poller   *timeline.Poller
	Emitter  *export.Exporter
	Watchdog *timeline.Watchdog
	Metrics  *export.Metrics
	spare    *record.SpareNests

	down        chan struct{} // closed when Shutdown is over
	shutdownErr error
}

func (p *Profiler) summary() (s report.Summary) {
	defer p.Guard("summary of the recorder")
	s = p.Recorder.Summary()
	for _, st := range p.StreamList.All() {
		_, _, pending := st.Filled()
		s.Pending += int64(pending)
	}
	return s
}

func New(b backend.Backend, opts ...func(*record.Config)) (*Profiler, error) {
	set, err := settings.FromEnv()
	errs := []error{err}
	c := record.Config{Settings: set}
	for _, o := range opts {
		o(&c)
	}
	if err := c.Validate(); err != nil {
		errs = append(errs, err)
		c.Settings = c.Valid()
	}
	c.Fill()
	p := &Profiler{Core: &record.Core{Cfg: c}, down: make(chan struct{})}
	p.Errors.Handle = c.OnError
	if a := c.Annotator; a != nil && !p.Listens(a) {
		p.Cfg.Annotator = nil
	}
	errs = append(errs, p.Meet(b))
	p.Ops.Store(&[]*record.OpState{})
	p.Names.Init(c.Names, p.NewNamed)
	p.Phases.Init(tree.MaxPhases, tree.NewPhaseOperation)
	p.Steps.Init(c.Names, tree.NewStepOperation)
	p.TimeAll = c.Metrics == settings.MetricsAll
	p.SwitchedOn, p.Verbosity = c.Enabled, c.Verbosity
	p.SetLevel()

	p.Recorder = c.Recorder
	if p.Recorder == nil && c.Report {
		now := func() time.Time { return time.Unix(0, p.Clock.Wall(p.Clock.Now())) }
		p.Recorder = report.NewCollector(report.WithClock(now))
	}
	if p.Backend != nil {
		errs = append(errs, p.openBackend())
	} else if b == nil {
		p.Log(slog.LevelInfo, "gpuspan: no backend, sections get host times only")
	}
	p.Metrics = export.NewMetrics(p.Core)
	p.MetricsEmitted = p.Metrics.Emitted
	p.Scope = p.NewScope(func() []attribute.KeyValue { return nil })
	p.spare = &record.SpareNests{}
	p.Poller, p.Emitter = timeline.New(p.Core, p.Backend, p.spare), export.New(p.Core, p.Metrics, p.spare)
	go p.Poller.Run()
	go p.Emitter.Keep(p.Emitter.Loop)
	p.Watchdog = timeline.StartWatchdog(p.Core)
	return p, errors.Join(errs...)
}

// openBackend lists the devices. Without any, the profiler falls back to host times.
func (p *Profiler) openBackend() error {
	infos, err := timeline.Open(p.Core, p.Backend)
	if err != nil {
		p.Backend, p.SourceName = nil, record.SourceHost
		p.Log(slog.LevelWarn, "gpuspan: no device can be timed, sections get host times only", slog.Any("error", err))
		return fmt.Errorf("no device can be timed, sections get host times only: %w", err)
	}
	for _, info := range infos {
		p.DeviceList.Add(p.NewDevice(info))
	}
	return nil
}

func (p *Profiler) Stream(h uintptr, name string, opts ...func(*timeline.StreamConfig)) *record.Stream {
	if p == nil {
		return nil
	}
	return p.Poller.Stream(h, name, opts...)
}

func (p *Profiler) Loop(name string, s *record.Stream, opts ...func(*tree.LoopConfig)) *tree.Loop {
	if p == nil {
		return tree.NewLoop(nil, name, s, opts...)
	}
	return tree.NewLoop(p.Core, name, s, opts...)
}

func (p *Profiler) Snapshot() report.Summary {
	if p == nil || p.Recorder == nil {
		return report.Summary{}
	}
	p.catchUp()
	return p.summary()
}

// catchUp updates the statistics: finished sections, and counts of untimed ones. If the polling thread hangs in the
// driver, only the update is missing.
func (p *Profiler) catchUp() {
	if p.Stopped.Load() {
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

func (p *Profiler) Stats(o *record.Operation) (report.Figures, bool) {
	if p == nil || o == nil {
		return report.Figures{}, false
	}
	return p.Snapshot().ByName(o.Cfg.Info.Name)
}

func (p *Profiler) Flush(ctx context.Context) error {
	if p == nil || p.Stopped.Load() {
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
	if !p.Stopped.CompareAndSwap(false, true) {
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
	p.SetEnabled(false)
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
