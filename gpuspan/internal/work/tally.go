// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"math"
	"sync/atomic"

	"github.com/otelgpu/otelgpu/gpuspan/internal/statistics"
)

// Tally sums the declared work of sections. Each word is zero until used, so most sections touch
// one or two.
type Tally struct {
	Count   atomic.Int64
	items   atomic.Int64
	Read    atomic.Int64
	written atomic.Int64
	Copied  [Directions]atomic.Int64  // bytes; with DirectionUnset device memory whose split is not known
	flops   [Precisions]atomic.Uint64 // bits of a float64
}

// Once makes the bytes of a copy that were declared as read and as written, which are the same
// bytes, count once.
func (w *Work) Once(d Direction) {
	if d != DirectionUnset && w.Read != 0 && w.Written != 0 {
		w.Bytes += max(w.Read, w.Written)
		w.Read, w.Written = 0, 0
	}
}

// Add adds work whose plain bytes moved in direction d.
func (t *Tally) Add(w *Work, d Direction) {
	if w.Items != 0 {
		t.items.Add(w.Items)
	}
	n := w.Bytes
	if d != DirectionUnset {
		n += w.Read + w.Written
	} else {
		if w.Read != 0 {
			t.Read.Add(w.Read)
		}
		if w.Written != 0 {
			t.written.Add(w.Written)
		}
	}
	if n != 0 && d < Directions {
		t.Copied[d].Add(n)
	}
	if w.FLOPs != 0 {
		addFloat(&t.flops[int(w.Precision)%Precisions], w.FLOPs)
	}
}

func addFloat(a *atomic.Uint64, v float64) {
	for {
		old := a.Load()
		if a.CompareAndSwap(old, math.Float64bits(math.Float64frombits(old)+v)) {
			return
		}
	}
}

type TallySnapshot struct {
	Count, Items, Read, Written int64
	Copied                      [Directions]int64
	FLOPs                       [Precisions]float64
}

func (t *Tally) Load() (s TallySnapshot) {
	s.Count, s.Items = t.Count.Load(), t.items.Load()
	s.Read, s.Written = t.Read.Load(), t.written.Load()
	for i := range s.Copied {
		s.Copied[i] = t.Copied[i].Load()
	}
	for i := range s.FLOPs {
		s.FLOPs[i] = math.Float64frombits(t.flops[i].Load())
	}
	return s
}

// Io divides work into bytes moved over device memory and over PCIe, as in reports.
func (w *Work) Io(d Direction, copied *[Directions]int64) (memory statistics.IO, pcie statistics.Transfer) {
	add := func(d Direction, read, written, unsplit int64) {
		switch d {
		case HostToDevice:
			pcie.ToDevice += read + written + unsplit
		case DeviceToHost:
			pcie.FromDevice += read + written + unsplit
		case DeviceToDevice:
			n := read + written + unsplit // N bytes cost a read and a write of device memory
			memory.Read += n
			memory.Written += n
		case DirectionUnset:
			memory.Read += read
			memory.Written += written
			memory.Unsplit += unsplit
		}
	}
	add(d, w.Read, w.Written, w.Bytes)
	if copied != nil {
		for i, n := range copied {
			if n != 0 {
				add(Direction(i), 0, 0, n)
			}
		}
	}
	return memory, pcie
}

// Add adds another tally.
func (s *TallySnapshot) Add(o TallySnapshot) { s.plus(&o, 1) }

// Minus returns the difference to an earlier state.
func (s TallySnapshot) Minus(o *TallySnapshot) TallySnapshot {
	s.plus(o, -1)
	return s
}

func (s *TallySnapshot) plus(o *TallySnapshot, sign int64) {
	s.Count, s.Items = s.Count+sign*o.Count, s.Items+sign*o.Items
	s.Read, s.Written = s.Read+sign*o.Read, s.Written+sign*o.Written
	for i := range s.Copied {
		s.Copied[i] += sign * o.Copied[i]
	}
	for i := range s.FLOPs {
		s.FLOPs[i] += float64(sign) * o.FLOPs[i]
	}
}

func (t *Tally) Stated() bool {
	s := t.Load()
	s.Count = 0
	return s != TallySnapshot{}
}
