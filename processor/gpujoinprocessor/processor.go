// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
	"go.opentelemetry.io/collector/extension/xextension/storage"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/processor"
	"go.uber.org/zap"

	"github.com/otelgpu/otelgpu/internal/boundedmap"
	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/queuestorage"
	"github.com/otelgpu/otelgpu/internal/sharedcomponent"
)

// tickEvery is how often idle devices are settled and the energy is reported.
const tickEvery = time.Second

// joinProcessor is the processor: a queue with one consumer, which joins.
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
	said    [outcomes]sync.Once
	large   sync.Once
	// sharedIDs logs once that processes share IDs.
	sharedIDs sync.Once
	dropped   [losses]sync.Once

	rejecting      bool      // the next component rejects spans
	rejected       time.Time // when it did last
	lostAtShutdown atomic.Int64

	release  func()
	unsub    func()
	wake     <-chan struct{}
	draining chan struct{}
	ending   context.Context // ends when the shutdown has taken too long
	end      context.CancelFunc
	ticker   sync.WaitGroup
	stop     chan struct{}
	down     sync.Once
	started  bool
}

func newProcessor(ctx context.Context, set processor.Settings, cfg *Config, next consumer.Traces) (*joinProcessor,
	error,
) {
	p := &joinProcessor{
		cfg:    cfg,
		id:     set.ID,
		logger: set.Logger,
		next:   next,
		attrs: attributes{
			shift: int64(cfg.Shift), energyOnMIG: cfg.EnergyOnMIG, spanEvents: cfg.Events,
			level: cfg.Attributes,
		},
		draining: make(chan struct{}),
		stop:     make(chan struct{}),
	}
	p.ending, p.end = context.WithCancel(context.Background())
	p.batches.New = func() any { return new(batch) }
	p.engine = &engine{
		cfg: cfg, boards: map[string]*board{}, ordinals: map[int64]string{},
		beside:    boundedmap.NewRecent[uint64, struct{}](maxSums),
		undecided: undecided{since: boundedmap.NewRecent[uint64, int64](maxSums)},
	}
	p.ident, p.attrs.loads = identifier{maphash.MakeSeed(), &p.engine.loads, &p.engine.shared}, &p.engine.loads
	p.engine.loads.wait = int64(cfg.MaxWait)
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
	p.queue, err = p.newQueue(ctx, exporter.Settings{
		ID: set.ID, TelemetrySettings: set.TelemetrySettings, BuildInfo: set.BuildInfo,
	})
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
	reader, err := devicesamples.FindReader(host, *p.cfg.Samples)
	if err != nil {
		return err
	}
	if p.release, err = reader.Lease(p.id); err != nil {
		return err
	}
	p.engine.reader = reader
	p.engine.uses, _ = reader.(devicesamples.UseReader)
	p.engine.ledger, _ = reader.(devicesamples.Contradictions)
	p.engine.loads.reader, _ = reader.(devicesamples.LoadReader)
	p.engine.sharing, _ = reader.(devicesamples.ShareReader)
	p.wake, p.unsub = reader.Subscribe()
	if p.cfg.Queue.Storage != nil {
		host = queuestorage.Host(host, *p.cfg.Queue.Storage, p.logger)
	}
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

// Shutdown implements component.Component. Waiting batches are joined with the available samples
// and sent until the next component has accepted them, for at most ShutdownTimeout; the others stay
// in the storage or, without one, are lost. It returns an error soon after that time or the end of
// ctx if the next component does not return.
func (p *joinProcessor) Shutdown(ctx context.Context) error {
	var err error
	p.down.Do(func() {
		limit, cancel := context.WithTimeout(ctx, p.cfg.ShutdownTimeout)
		defer cancel()
		close(p.draining)
		if p.queue != nil && p.started {
			err = p.drain(limit)
		}
		p.end()
		close(p.stop)
		err = errors.Join(err, sharedcomponent.Wait(limit, &p.ticker))
		if errors.Is(err, sharedcomponent.ErrRunning) {
			err = fmt.Errorf("%s: %w", p.id, err)
			return
		}
		if p.started {
			p.engine.tick(p.now(), nil, p.report)
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
	var views []devicesamples.DeviceView
	for {
		select {
		case <-p.stop:
			return
		case <-t.C:
			views = p.engine.tick(p.now(), views, p.report)
		}
	}
}

// report reports the energy of a board. It is called for each board with each tick.
func (p *joinProcessor) report(b *board) {
	p.stats.energy(b)
	if every := b.meter.dev.Interval(); every >= p.cfg.MaxWait && !b.warned {
		b.warned = true
		p.logger.Warn(
			"samples come too rarely for `max_wait`: spans leave before the next sample "+
				"(set `max_wait` longer than the sampling interval)",
			zap.String("hw.id", b.meter.dev.Device().ID), zap.Duration("interval", every),
			zap.Duration("max_wait", p.cfg.MaxWait))
	}
}

// ConsumeTraces implements consumer.Traces. A request with GPU spans of a device that has samples
// is queued as a whole: the rest of it must not be refused alone, because senders repeat whole
// requests. Its GPU spans are added to the energy attribution immediately, while earlier requests
// still wait. Other requests pass.
func (p *joinProcessor) ConsumeTraces(ctx context.Context, td ptrace.Traces) error {
	size, dropped := p.dropLarge(td)
	repeated := int64(0)
	var err error
	switch {
	case size == 0:
	case p.queue == nil:
		err = p.next.ConsumeTraces(ctx, td)
	default:
		repeated, err = p.consume(ctx, td, size)
	}
	if err == nil { // otherwise the sender repeats the request, with the spans that were removed
		p.droppedLarge(ctx, dropped)
		sharedcomponent.Count(ctx, p.stats.tb.ProcessorGpuJoinRepeatedSpans, repeated, nil)
	}
	return err
}

// consume queues a request or passes it on, and returns how many of its spans were removed because
// they had arrived before.
func (p *joinProcessor) consume(ctx context.Context, td ptrace.Traces, size int) (repeated int64, err error) {
	now := p.now()
	b := p.batches.Get().(*batch)
	held := false
	defer func() {
		if !held {
			p.put(b)
		}
	}()
	b.scan(td, p.ident, now.UnixNano(), p.cfg.MaxWait)
	if len(b.spans) == 0 {
		p.engine.mu.Lock()
		p.engine.follow(b.host)
		p.engine.mu.Unlock()
		return 0, p.next.ConsumeTraces(ctx, td)
	}
	known, again := p.engine.look(b, now)
	if again {
		p.sharedIDs.Do(func() {
			p.logger.Warn("spans of one job or service have equal IDs and different times, so trace stores merge them " +
				"(give the SDK a generator of IDs that the program does not seed; in Python otelgpu.ids.UniqueIds(), or " +
				"OTEL_PYTHON_ID_GENERATOR=otelgpu); further ones are not logged")
		})
		b.reset()
		b.scan(td, p.ident, now.UnixNano(), p.cfg.MaxWait)
		known, _ = p.engine.look(b, now)
	}
	switch {
	case b.waiting == 0:
		if err = p.next.ConsumeTraces(ctx, td); err == nil {
			p.accepted(ctx, b)
		}
		return 0, err
	case known == b.waiting && p.engine.repeats(b):
		return int64(td.SpanCount()), nil // the response to the request, which the queue has accepted, was lost
	case known > 0:
		others := b.others()
		repeated = int64(p.engine.removeKnown(b, td))
		if known == b.waiting {
			if err = p.next.ConsumeTraces(ctx, td); err == nil {
				p.engine.passed(others)
				p.accepted(ctx, b)
			}
			return repeated, err
		}
		b.reset()
		b.scan(td, p.ident, now.UnixNano(), p.cfg.MaxWait)
		size = (&ptrace.ProtoMarshaler{}).TracesSize(td)
	}
	pending := &pendingRequest{td: td, size: size, batch: b}
	pending.mu.Lock()
	defer pending.mu.Unlock()
	if err := p.queue.ConsumeTraces(context.WithValue(ctx, pendingKey{}, pending), td); err != nil {
		if int64(size) > p.cfg.Queue.Size { // a retry cannot help
			return repeated, p.joinNow(ctx, td)
		}
		return 0, p.refused(ctx, td, err)
	}
	held = true
	b.stored = p.cfg.Queue.Storage != nil
	fresh, decided := p.engine.arrive(b, now, false)
	if decided {
		b.arrived()
	}
	if p.cfg.Queue.Storage == nil { // a storage has its own copy, and returns that
		b.pack(td)
	}
	if fresh || p.cfg.Queue.Storage == nil { // otherwise the consumer was first, with data from the storage
		p.stats.held.Add(int64(b.waiting))
	}
	p.accepted(ctx, b)
	if !b.stored {
		b.unplaced = [outcomes]int64{}
	}
	return repeated, nil
}

// refusal is why the queue does not accept a request.
type refusal uint8

const (
	queueFull refusal = iota
	storageFull
	storageFailed
	other
	refusals
)

var refusalNames = [refusals]string{"queue_full", "storage_full", "storage_failed", "other"}

// refused counts a request that the queue did not accept, and explains to the sender what can be
// changed.
func (p *joinProcessor) refused(ctx context.Context, td ptrace.Traces, err error) error {
	why := other
	switch {
	case errors.Is(err, exporterhelper.ErrQueueIsFull):
		why = queueFull
		err = fmt.Errorf("%s: queue full: %d bytes of spans wait for %s (raise `queue::size` or lower `settle`): %w",
			p.id, p.cfg.Queue.Size, p.cfg.Settle, err)
	case p.cfg.Queue.Storage == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, storage.ErrStorageFull):
		why = storageFull
		err = fmt.Errorf("%s: the disk of the storage %s is full (free space there): %w", p.id, p.cfg.Queue.Storage, err)
	default:
		why = storageFailed
		err = fmt.Errorf("%s: the storage %s failed: %w", p.id, p.cfg.Queue.Storage, err)
	}
	p.stats.tb.ProcessorGpuJoinRefusedSpans.Add(ctx, int64(td.SpanCount()), p.stats.reasons[refusalNames[why]])
	return err
}

// accepted counts the GPU spans of a request that will never have samples.
func (p *joinProcessor) accepted(ctx context.Context, b *batch) {
	p.stats.accepted(ctx, b)
	p.remedy(b.unplaced)
}

// remedy logs the remedy for spans whose device is not found, the first time.
func (p *joinProcessor) remedy(unplaced [outcomes]int64) {
	for i, n := range unplaced {
		if n > 0 && remedies[i] != "" {
			p.said[i].Do(func() {
				p.logger.Warn("GPU spans pass without device samples: "+remedies[i]+"; further ones are counted, not logged",
					zap.String("reason", outcomeNames[i]))
			})
		}
	}
}

// remedies are the remedies for spans whose device is not found.
var remedies = [outcomes]string{
	unknownDevice: "no samples of their device are received (set hw.id to a device of this host, or run a " +
		"Collector whose `gpu` receiver has `samples` on the host of the spans)",
	noDevice: "no device is known here (this host has no GPU, the `gpu` receiver cannot reach it and says why at log " +
		"level info, or the `gpu_samples` exporter receives metrics of unknown names, which it logs; " +
		"spans of services on other hosts must come to the Collector there)",
	noIdentity: "they name no device (OTEL_RESOURCE_ATTRIBUTES=hw.id=GPU-… of their service, hw.id on the span or its " +
		"scope, a PCI address, or `ordinals` here; a `gpu_derive` with presets must precede gpu_join)",
	severalDevices: "their process, pod or host has several devices (say which one by hw.id on the span or its scope)",
}

// now returns the time on the clock of spans.
func (p *joinProcessor) now() time.Time { return time.Now().Add(-p.cfg.Shift) }

func (p *joinProcessor) put(b *batch) {
	b.reset()
	p.batches.Put(b)
}
