// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"sync/atomic"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/embedded"
)

// farewell is the callback of a profiler's instruments, which its MeterProvider keeps. The provider collects once more
// when it shuts down, which is after the profiler does, and counters must not fall: so after Shutdown it goes on to
// tell the last figures, without holding the profiler, and takes itself out after a few collections.
type farewell struct {
	live  atomic.Pointer[metrics]
	last  atomic.Pointer[[]func(metric.Observer)]
	told  atomic.Int32
	entry atomic.Pointer[metric.Registration]
}

// lastCollections is how many collections, by any reader, tell the figures of a profiler that is shut down.
const lastCollections = 4

func (f *farewell) observe(ctx context.Context, o metric.Observer) error {
	if m := f.live.Load(); m != nil {
		return m.observe(ctx, o)
	}
	if last := f.last.Load(); last != nil {
		for _, tell := range *last {
			tell(o)
		}
	}
	if entry := f.entry.Load(); entry != nil && f.told.Add(1) == lastCollections {
		go func() { _ = (*entry).Unregister() }() // not from within: the provider holds its lock
	}
	return nil
}

// freeze keeps the figures and lets go of the profiler.
func (f *farewell) freeze(ctx context.Context) {
	m := f.live.Load()
	if m == nil {
		return
	}
	var n notes
	_ = m.observe(ctx, &n)
	f.last.Store(&n.list)
	f.live.Store(nil)
}

// notes are observations to be told later.
type notes struct {
	embedded.Observer
	list []func(metric.Observer)
}

func (n *notes) ObserveFloat64(i metric.Float64Observable, v float64, opts ...metric.ObserveOption) {
	n.list = append(n.list, func(o metric.Observer) { o.ObserveFloat64(i, v, opts...) })
}

func (n *notes) ObserveInt64(i metric.Int64Observable, v int64, opts ...metric.ObserveOption) {
	n.list = append(n.list, func(o metric.Observer) { o.ObserveInt64(i, v, opts...) })
}
