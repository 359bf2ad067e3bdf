// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"math"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/otelgpu/otelgpu/gpuspan/report"
)

// maxOperations bounds the operations of one profiler. A program that makes an operation per request would otherwise
// grow without end; what is too many shares the state "(other)".
const maxOperations = 4096

const overflowName = "(other)"

// opState is what one profiler knows of one operation. What the goroutines that start sections write is apart from what
// the polling thread writes, so that neither takes lines of the cache from the other.
type opState struct {
	op *Operation

	inner     shared[*place] // within other sections
	outermost place          // as an outermost section

	// sections that took a slot, added by the polling thread when they are read back; and all steps, those without a slot
	// when they end
	timed tally

	metricAttrs atomic.Pointer[metricAttrs]

	// polling thread
	durations map[durationKey]*[]metric.RecordOption
	constants []streamConstant // for a sink
}

// metricAttrs are the attribute sets of an operation's data points, made once.
type metricAttrs struct {
	base  []attribute.KeyValue
	count []metric.ObserveOption
	items []metric.ObserveOption
	io    [directions][]metric.ObserveOption
	flops [precisions][]metric.ObserveOption
}

// tally adds up the declared work of sections. Each word is zero until used, so most sections touch one or two.
type tally struct {
	count   atomic.Int64
	items   atomic.Int64
	read    atomic.Int64
	written atomic.Int64
	copied  [directions]atomic.Int64  // bytes; with DirectionUnset those of device memory whose split is not known
	flops   [precisions]atomic.Uint64 // bits of a float64
}

// add adds work whose plain bytes moved in direction d.
func (t *tally) add(w *Work, d Direction) {
	if w.Items != 0 {
		t.items.Add(w.Items)
	}
	n := w.Bytes
	if d != DirectionUnset {
		n += w.Read + w.Written
	} else {
		if w.Read != 0 {
			t.read.Add(w.Read)
		}
		if w.Written != 0 {
			t.written.Add(w.Written)
		}
	}
	if n != 0 && d < directions {
		t.copied[d].Add(n)
	}
	if w.FLOPs != 0 {
		addFloat(&t.flops[int(w.Precision)%precisions], w.FLOPs)
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

type tallySnapshot struct {
	count, items, read, written int64
	copied                      [directions]int64
	flops                       [precisions]float64
}

func (t *tally) load() (s tallySnapshot) {
	s.count, s.items = t.count.Load(), t.items.Load()
	s.read, s.written = t.read.Load(), t.written.Load()
	for i := range s.copied {
		s.copied[i] = t.copied[i].Load()
	}
	for i := range s.flops {
		s.flops[i] = math.Float64frombits(t.flops[i].Load())
	}
	return s
}

func newOpState(o *Operation) *opState {
	st := &opState{op: o}
	st.outermost.st = st
	return st
}

// state finds the profiler's state of an operation: an index into a slice that is replaced, never changed.
func (p *Profiler) state(o *Operation) *opState {
	if st := p.known(o); st != nil {
		return st
	}
	return p.register(o)
}

// known is state without a first time; it is small enough to be inlined into what only counts.
func (p *Profiler) known(o *Operation) *opState {
	if ops := *p.ops.Load(); int(o.id) < len(ops) {
		return ops[o.id]
	}
	return nil
}

func (p *Profiler) register(o *Operation) *opState {
	p.mu.Lock()
	defer p.mu.Unlock()
	old := *p.ops.Load()
	if int(o.id) < len(old) && old[o.id] != nil {
		return old[o.id]
	}
	if p.opCount >= maxOperations {
		if p.overflow == nil {
			p.overflow = newOpState(NewOperation(overflowName))
			p.opList.add(p.overflow)
		}
		p.misuse.operationOverflow.Add(1)
		return p.overflow
	}
	p.opCount++
	ops := make([]*opState, max(len(old), int(o.id)+1))
	copy(ops, old)
	st := newOpState(o)
	ops[o.id] = st
	p.opList.add(st)
	p.ops.Store(&ops)
	return st
}

// io splits work into what moved over device memory and over PCIe, as reports do.
func (w *Work) io(d Direction, copied *[directions]int64) (memory, pcie report.IO) {
	add := func(d Direction, read, written, unsplit int64) {
		switch d {
		case HostToDevice:
			pcie.Written += read + written + unsplit
		case DeviceToHost:
			pcie.Read += read + written + unsplit
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

// shared is a list that any goroutine reads, and one that holds the profiler's mutex adds to. Readers have the shorter
// slices, so the array can be shared.
type shared[T any] struct{ list atomic.Pointer[[]T] }

func (s *shared[T]) all() []T {
	if list := s.list.Load(); list != nil {
		return *list
	}
	return nil
}

func (s *shared[T]) set(list []T) { s.list.Store(&list) }
func (s *shared[T]) add(v T)      { s.set(append(s.all(), v)) }

// atomicFloat is a float64 that is read and written by different goroutines.
type atomicFloat struct{ bits atomic.Uint64 }

func (f *atomicFloat) Load() float64   { return math.Float64frombits(f.bits.Load()) }
func (f *atomicFloat) Store(v float64) { f.bits.Store(math.Float64bits(v)) }
