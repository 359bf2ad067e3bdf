// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package gcpace lets the garbage collector spend memory up to a budget, and CPU time beyond it.
package gcpace

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

// Start makes the heap grow to budget bytes between two collections while less is live, and by
// least percent of what is live when that is more. With a fixed percentage (GOGC), a small heap
// would be collected often, or a large one would grow far; a soft limit (GOMEMLIMIT) would spend
// all time in the collector once more than the limit is live. The returned function restores the
// percentage.
func Start(budget uint64, least int) (stop func()) {
	p := &pacer{budget: budget, least: least, live: []metrics.Sample{{Name: "/gc/heap/live:bytes"}}}
	p.percent = p.next()
	old := debug.SetGCPercent(p.percent)
	p.watch()
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.stopped = true
		debug.SetGCPercent(old)
	}
}

// most bounds the percentage while next to nothing is live, so that a later burst is noticed.
const most = 800

type pacer struct {
	budget uint64
	least  int

	mu      sync.Mutex
	live    []metrics.Sample
	percent int
	stopped bool
}

// watch adjusts the percentage after the next collection, which finds the object that is dropped
// here.
func (p *pacer) watch() {
	dropped := new(*pacer) // holds a pointer: objects without one share a block, which may never become free
	runtime.AddCleanup(dropped, (*pacer).collected, p)
}

func (p *pacer) collected() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return
	}
	// Setting it stops the world, so small changes are ignored.
	if next := p.next(); next < p.percent || next > p.percent+p.percent/8 {
		p.percent = next
		debug.SetGCPercent(next)
	}
	p.watch()
}

// next returns the percentage for what was live after the last collection.
func (p *pacer) next() int {
	metrics.Read(p.live)
	return percent(p.live[0].Value.Uint64(), p.budget, p.least)
}

func percent(live, budget uint64, least int) int {
	if live >= budget {
		return least
	}
	return int(min(max((budget-live)*100/max(live, 1), uint64(least)), most))
}
