// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"context"
	"hash/maphash"
	"strconv"
	"sync"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/processor"
	"go.uber.org/zap"

	"github.com/otelgpu/otelgpu/extension/gpusamplesextension"
)

// tickEvery is how often idle devices are settled and the energy is reported.
const tickEvery = time.Second

// joinProcessor is the processor: a synchronous way past and a queue with one consumer, which joins.
type joinProcessor struct {
	cfg    *Config
	id     component.ID
	logger *zap.Logger
	next   consumer.Traces
	stats  *stats
	ident  identifier

	queue   exporter.Traces // nil without samples: everything passes
	engine  *engine
	batches sync.Pool
	attrs   attributes // of the consumer

	release  func()
	unsub    func()
	wake     <-chan struct{}
	draining chan struct{}
	ticker   sync.WaitGroup
	stop     chan struct{}
	down     sync.Once
	started  bool
}

func newProcessor(ctx context.Context, set processor.Settings, cfg *Config, next consumer.Traces) (*joinProcessor, error) {
	p := &joinProcessor{
		cfg:      cfg,
		id:       set.ID,
		logger:   set.Logger,
		next:     next,
		ident:    identifier{maphash.MakeSeed()},
		attrs:    attributes{shift: int64(cfg.Shift), energyOnMIG: cfg.EnergyOnMIG, spanEvents: cfg.Events},
		draining: make(chan struct{}),
		stop:     make(chan struct{}),
	}
	p.batches.New = func() any { return new(batch) }
	p.engine = &engine{cfg: cfg, boards: map[string]*board{}, ordinals: map[int64]string{}}
	p.engine.budget.Max = cfg.MaxSpans
	for ordinal, id := range cfg.Ordinals {
		n, err := strconv.ParseInt(ordinal, 10, 64)
		if err != nil {
			return nil, err
		}
		p.engine.ordinals[n] = id
	}
	var err error
	if p.stats, err = newStats(set.TelemetrySettings, p.engine); err != nil {
		return nil, err
	}
	if cfg.Samples == nil {
		return p, nil
	}
	p.queue, err = exporterhelper.NewTraces(ctx,
		exporter.Settings{ID: set.ID, TelemetrySettings: set.TelemetrySettings, BuildInfo: set.BuildInfo},
		cfg, p.join,
		exporterhelper.WithCapabilities(consumer.Capabilities{MutatesData: true}),
		exporterhelper.WithTimeout(exporterhelper.TimeoutConfig{}), // a batch waits as long as it has to
		exporterhelper.WithRetry(cfg.RetryOnFailure),
		exporterhelper.WithQueue(configoptional.Some(exporterhelper.QueueBatchConfig{
			Sizer:        exporterhelper.RequestSizerTypeBytes,
			QueueSize:    cfg.Queue.Size,
			StorageID:    cfg.Queue.Storage,
			NumConsumers: 1, // the order of batches is kept, and T only moves forward
		})))
	return p, err
}

// Capabilities implements consumer.Traces.
func (*joinProcessor) Capabilities() consumer.Capabilities {
	return consumer.Capabilities{MutatesData: true}
}

// Start implements component.Component.
func (p *joinProcessor) Start(ctx context.Context, host component.Host) error {
	if p.cfg.Samples == nil {
		p.logger.Warn("`samples` is not set: GPU spans pass without device samples (name a gpu_samples extension)")
		return nil
	}
	reader, err := gpusamplesextension.FindReader(host, *p.cfg.Samples)
	if err != nil {
		return err
	}
	if p.release, err = reader.Lease(p.id); err != nil {
		return err
	}
	p.engine.reader = reader
	p.wake, p.unsub = reader.Subscribe()
	if err := p.queue.Start(ctx, host); err != nil {
		p.unsub()
		p.release()
		p.release, p.unsub = nil, nil
		return err
	}
	p.started = true
	p.ticker.Go(p.tick)
	return nil
}

// Shutdown implements component.Component. What is held is joined with the samples that are there and sent on; with
// `queue::storage` it stays in the storage.
func (p *joinProcessor) Shutdown(ctx context.Context) error {
	var err error
	p.down.Do(func() {
		close(p.draining)
		if p.queue != nil && p.started {
			err = p.queue.Shutdown(ctx)
		}
		close(p.stop)
		p.ticker.Wait()
		if p.started {
			p.engine.tick(time.Now(), nil, p.stats.energy)
			p.unsub()
			p.release()
		}
		p.stats.shutdown()
	})
	return err
}

func (p *joinProcessor) tick() {
	t := time.NewTicker(tickEvery)
	defer t.Stop()
	var views []gpusamplesextension.DeviceView
	for {
		select {
		case <-p.stop:
			return
		case <-t.C:
			views = p.engine.tick(time.Now(), views, p.stats.energy)
		}
	}
}

// ConsumeTraces implements consumer.Traces. GPU spans take their place in the fair share here, while the batches before
// theirs still wait.
func (p *joinProcessor) ConsumeTraces(ctx context.Context, td ptrace.Traces) error {
	if p.queue == nil {
		return p.next.ConsumeTraces(ctx, td)
	}
	now := time.Now()
	b := p.batches.Get().(*batch)
	b.scan(td, p.ident, now.UnixNano(), p.cfg.MaxWait)
	if len(b.spans) == 0 {
		p.put(b)
		return p.next.ConsumeTraces(ctx, td)
	}
	p.engine.arrive(b, now)
	held, rest := b.split(td)
	n := b.waiting()
	var err error
	if n > 0 {
		if err = p.queue.ConsumeTraces(ctx, held); err != nil && p.oversize(held) {
			err = p.joinNow(ctx, held)
		}
	}
	if err == nil {
		p.stats.accepted(ctx, b, n)
	}
	p.put(b)
	switch {
	case err != nil && rest:
		// Refused: the caller may try again with what it has, so it gets all of it back.
		held.ResourceSpans().MoveAndAppendTo(td.ResourceSpans())
		return err
	case err != nil || !rest:
		return err
	}
	if err := p.next.ConsumeTraces(ctx, td); err != nil {
		if n == 0 {
			return err
		}
		return consumererror.NewTraces(err, td) // only the rest was refused
	}
	return nil
}

// oversize says that a request is larger than the whole queue, so that trying again can't help.
func (p *joinProcessor) oversize(td ptrace.Traces) bool {
	var m ptrace.ProtoMarshaler
	return int64(m.TracesSize(td)) > p.cfg.Queue.Size
}

// joinNow joins a request that can't wait, with what is known by now.
func (p *joinProcessor) joinNow(ctx context.Context, td ptrace.Traces) error {
	b := p.batches.Get().(*batch)
	defer p.put(b)
	now := time.Now()
	b.scan(td, p.ident, now.UnixNano(), p.cfg.MaxWait)
	p.engine.arrive(b, now)
	p.engine.settled(b, now, false)
	p.write(ctx, b)
	n := b.waiting()
	p.stats.released(ctx, b, n, oversize)
	return p.next.ConsumeTraces(ctx, td)
}

func (p *joinProcessor) put(b *batch) {
	b.reset()
	p.batches.Put(b)
}

// join is the queue's consumer: it waits, writes and sends on.
func (p *joinProcessor) join(ctx context.Context, td ptrace.Traces) error {
	now := time.Now()
	b := p.batches.Get().(*batch)
	b.scan(td, p.ident, now.UnixNano(), p.cfg.MaxWait)
	if p.engine.arrive(b, now) {
		p.stats.held.Add(int64(b.waiting())) // from the storage of the last run
	}
	if n := b.waiting(); n > 0 {
		reason := p.wait(b)
		p.write(ctx, b)
		p.stats.released(ctx, b, n, reason)
	}
	p.put(b)
	return p.next.ConsumeTraces(ctx, td)
}

// What lets a batch go.
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
	latest, seen := b.latest()
	last := time.Unix(0, min(latest, seen)).Add(p.cfg.MaxWait)
	for {
		now := time.Now()
		switch {
		case p.engine.settled(b, now, false):
			return settled
		case !now.Before(last):
			return deadline
		}
		// Before the latest end is `settle` ago no sample helps; after that any may.
		until, wake := time.Unix(0, latest).Add(p.cfg.Settle), (<-chan struct{})(nil)
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
			p.engine.settled(b, time.Now(), true)
			return shutdown
		}
	}
}

// write joins the spans under one lock of the samples.
func (p *joinProcessor) write(ctx context.Context, b *batch) {
	e := p.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	view := e.reader.Acquire()
	defer view.Release()
	l := lookup{e: e, view: view}
	var late, uncovered, untracked int64
	for i := range b.spans {
		g := &b.spans[i]
		if g.fault != sound || g.outcome != found || l.find(g) != found {
			continue
		}
		dev, board := l.place.dev, l.place.board
		share, shared := board.dev.Share(g.share.Key, g.at)
		if !p.attrs.write(g, dev, board, share, shared) {
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
}

// waiting is the number of GPU spans in scopes that wait.
func (b *batch) waiting() (n int) {
	for _, s := range b.scopes {
		if s.hold {
			n += s.last - s.first
		}
	}
	return n
}

// latest is the latest end of the spans that are waited for, and when the first of them was seen.
func (b *batch) latest() (end, seen int64) {
	first := true
	for i := range b.spans {
		g := &b.spans[i]
		if g.fault != sound || g.outcome != found {
			continue
		}
		if first {
			end, seen, first = g.share.End, g.seen, false
			continue
		}
		end, seen = max(end, g.share.End), min(seen, g.seen)
	}
	return end, seen
}
