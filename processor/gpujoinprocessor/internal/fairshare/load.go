// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package fairshare

import (
	"cmp"
	"math"
	"slices"
)

// Load reads how many spans a process ran, as the process itself states it. A [Meter] may implement it. Spans that a
// process ran and that never arrive (their sender dropped or never made them) then keep their parts, which nobody else
// gets: an innermost span has 1/max(spans that arrived, spans that ran) of what its process has.
type Load interface {
	// Levels appends the levels of a process over [from, to] in time order, the first at from. Nothing is appended for a
	// process that states none.
	Levels(process uint64, from, to int64, dst []Level) []Level
}

// Level is the number of spans that a process runs from a time on.
type Level struct {
	Time    int64   // ns
	Running float64 // 0: not known
}

// change is a Level of one of the device's processes.
type change struct {
	Level
	proc int32
}

// collectChanges reads the levels of all processes with pending spans up to a time.
func (d *Device) collectChanges(to int64, m Meter) {
	d.changes = d.changes[:0]
	load, ok := m.(Load)
	if !ok {
		return
	}
	for id, i := range d.procs.byID {
		d.levels = load.Levels(id, d.settled, to, d.levels[:0])
		for _, l := range d.levels {
			d.changes = append(d.changes, change{l, i})
		}
	}
	slices.SortFunc(d.changes, func(a, b change) int { return cmp.Compare(a.Time, b.Time) })
}

// changeUntil applies the levels up to a time.
func (s *sweep) changeUntil(t int64) {
	d := s.d
	for ; s.changed < len(d.changes) && d.changes[s.changed].Time <= t; s.changed++ {
		c := &d.changes[s.changed]
		p := &d.procs.all[c.proc]
		if p.running == c.Running {
			continue
		}
		s.advance(c.Time)
		p.advance(d.v)
		p.running = c.Running
	}
}

// collectUnseen moves what spans had that never arrive from the attributed total to its own.
func (d *Device) collectUnseen() {
	for i := range d.procs.all {
		p := &d.procs.all[i]
		if p.running > 0 || p.unseen > 0 || p.weight != [2]float64{float64(p.inner[0]), float64(p.inner[1])} {
			p.advance(d.v)
			d.totals.Attributed -= p.unseen
			d.totals.Unseen += p.unseen
			p.unseen = 0
		}
	}
}

// crowd is how many spans share a piece of time that was free when a late span arrived.
func (d *Device) crowd(s Span, p interval, m Meter) float64 {
	n := max(1, s.Weight)
	load, ok := m.(Load)
	if !ok {
		return n
	}
	// The reciprocal is averaged: the span has 1/running of each instant.
	d.levels = load.Levels(s.Process, p.from, p.to, d.levels[:0])
	if len(d.levels) == 0 {
		return n
	}
	var share float64
	for i, l := range d.levels {
		end := p.to
		if i+1 < len(d.levels) {
			end = d.levels[i+1].Time
		}
		share += float64(end-l.Time) / max(n, l.Running)
	}
	return float64(p.to-p.from) / share
}

// maxWeights bounds the different weights of a device's spans; further ones become the nearest known one.
const maxWeights = 1 << 7

// weight returns the index of a weight.
func (d *Device) weight(w float64) uint8 {
	if !(w > 1) || math.IsInf(w, 0) {
		return 0
	}
	best := 0
	for i, known := range d.weights {
		if known == w {
			return uint8(i)
		}
		if math.Abs(known-w) < math.Abs(d.weights[best]-w) {
			best = i
		}
	}
	if len(d.weights) == maxWeights {
		return uint8(best)
	}
	d.weights = append(d.weights, w)
	return uint8(len(d.weights) - 1)
}
