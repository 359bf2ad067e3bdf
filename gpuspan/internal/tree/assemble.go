// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"cmp"
	"slices"

	"go.opentelemetry.io/otel/attribute"

	"github.com/otelgpu/otelgpu/gpuspan/internal/record"
	"github.com/otelgpu/otelgpu/gpuspan/internal/work"
)

// adopt adds a child's work to the sums of its parent.
func adopt(r, child *record.Record) {
	r.ChildFLOPs += flopsOf(child)
	if child.Flags&record.FlagChunk == 0 {
		return
	}
	r.ChildChunks = max(r.ChildChunks, child.Chunks)
	w, from := child.Work, child.Op.Op.Cfg.Direction
	if from != r.Op.Op.Cfg.Direction {
		adoptCopied(r, from, w.Read+w.Written+w.Bytes)
		w.Read, w.Written, w.Bytes = 0, 0, 0
	}
	r.ChildWork.Add(&w)
	if e := child.Extra; e != nil && e.Moved {
		for d, n := range e.Copied {
			adoptCopied(r, work.Direction(d), n)
		}
	}
}

// adoptCopied adds bytes that chunks moved in a direction. Copies have no separate device memory traffic.
func adoptCopied(r *record.Record, d work.Direction, n int64) {
	switch {
	case n == 0 || d == work.DirectionUnset:
	case d == r.Op.Op.Cfg.Direction:
		r.ChildWork.Bytes += n
	default:
		if r.ChildCopied == nil {
			r.ChildCopied = &[work.Directions]int64{}
		}
		r.ChildCopied[d] += n
	}
}

// sumUp gives a section around chunks the sum of their work, unless it states its own.
func sumUp(r *record.Record) {
	if r.Work.Stated() || r.Extra != nil && r.Extra.Moved {
		return
	}
	r.Work, r.Summed = r.ChildWork, true
	if r.ChildCopied == nil {
		return
	}
	if r.Extra == nil {
		r.Extra = &record.Extra{}
	}
	r.Extra.Copied, r.Extra.Moved = *r.ChildCopied, true
}

// flopsOf returns the FLOPs of a section: its own statement, otherwise the sum of its children's.
func flopsOf(r *record.Record) float64 {
	if r.Work.FLOPs != 0 && !r.Summed { // chunks are some of the children
		return r.Work.FLOPs
	}
	return r.ChildFLOPs
}

// Finished is a section that is ready to become a span: placed on the wall clock, with its parent and the sums of what
// it contains.
type Finished struct {
	Record *record.Record
	Stream *record.Stream
	Parent *record.Record // nil: the section is outermost
}

// Assembler builds trees of placed sections. It belongs to the exporter's goroutine.
type Assembler struct {
	p       *record.Core
	endStep func(FinishedStep)
	Sealed  []*Step // ended steps that wait for their sections

	attrs []attribute.KeyValue
	list  []Finished
	order []*record.Record
	byID  map[uint64]*record.Record
}

func NewAssembler(p *record.Core, endStep func(FinishedStep)) *Assembler {
	return &Assembler{p: p, endStep: endStep, byID: map[uint64]*record.Record{}}
}

// Assemble returns the sections of a nest, parents before children. The list is valid until the next call.
func (t *Assembler) Assemble(n *record.Nest) []Finished {
	root := n.Root
	t.list = append(t.list[:0], Finished{Record: root, Stream: n.Stream})
	if len(n.Held) == 0 {
		return t.list
	}
	t.order = append(t.order[:0], root)
	t.order = append(t.order, n.Held...)
	slices.SortStableFunc(t.order, func(a, b *record.Record) int {
		return cmp.Or(cmp.Compare(a.Depth, b.Depth), cmp.Compare(a.StartNs, b.StartNs), cmp.Compare(a.ID, b.ID))
	})
	byID := t.byID
	clear(byID)
	for _, r := range t.order {
		byID[r.ID] = r
	}
	for _, r := range slices.Backward(t.order) { // children first: a parent's sums include them
		sumUp(r)
		if p := byID[r.Parent]; p != nil && p != r {
			adopt(p, r)
		}
	}
	t.list = t.list[:0]
	for _, r := range t.order {
		p := cmp.Or(byID[r.Parent], root) // root is its own parent, and the parent of orphans
		t.list = append(t.list, Finished{Record: r, Stream: cmp.Or(r.HeldOn, n.Stream), Parent: p})
	}
	clear(byID)
	clear(t.order)
	return t.list
}

// Release drops the sections of the last nest.
func (t *Assembler) Release() { clear(t.list) }
