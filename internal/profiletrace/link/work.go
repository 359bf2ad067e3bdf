// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package link

import (
	"strconv"
	"strings"

	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
	"github.com/otelgpu/otelgpu/internal/profiletrace/timeline"
	"github.com/otelgpu/otelgpu/internal/profiletrace/vocabulary"
)

// Work is what one operator computes. It counts when the first kernel of the operator is met, so
// that operators that ran on the host do not, and once, however many kernels it launched.
type Work struct {
	timeline.Work
	elements  float64 // of a type that the operator's record does not state
	op, shape uint32  // names
	counted   bool
	replaced  bool // by the work of an inner operator
	Launches  int  // of kernels, so far: the sweep keeps the host ahead of the device
}

// OnlyWork returns the work of the operator whose only kernel the activity is so far; nil if there
// is none. Of several kernels, none does all of it.
func (a *Activity) OnlyWork() *timeline.Work {
	if w := a.Launch.Work; w != nil && w.Launches == 1 {
		return &w.Work
	}
	return nil
}

func (s *Sweep) newWork(r *event.Record, d *event.Detail) *Work {
	if len(s.works) == 0 {
		s.works = make([]Work, 64) // one allocation for many
	}
	w := &s.works[0]
	s.works = s.works[1:]
	*w = Work{
		Work: timeline.Work{FLOPs: d.FLOPs, Bytes: d.Traffic, Precision: d.Precision}, elements: d.Elements, op: r.Name,
		shape: d.Signature,
	}
	return w
}

// workOf returns the work that launches of the operator r do: the work of the outermost operator,
// of those around r, whose work is known. Mixed precision makes two exceptions, because an operator
// casts its inputs there and calls itself, or another one, with the results: casts are work of
// their own, and an inner operator that does most of the outer one's FLOPs in another precision
// replaces it.
func (s *Sweep) workOf(r *event.Record, f *frame, open []frame) *Work {
	w := f.Work
	if w != nil && !w.replaced && (w.counted || w.FLOPs == 0) {
		return w
	}
	d, ok := r.StatedWork()
	switch {
	case !ok:
		return w
	case w == nil, w.replaced, vocabulary.Movers[s.in.Names.Name(f.mover)] == timeline.MovesType:
	case d.Precision != w.Precision && 2*d.FLOPs > w.FLOPs:
		w.replace(open)
	default:
		return w
	}
	return s.newWork(r, &d)
}

// replace voids the work, also on the span of its operator, one of the open ranges.
func (w *Work) replace(open []frame) {
	for i := range open {
		if n := open[i].node; open[i].Work == w {
			if n.Kind == event.KindOperator && n.Name == w.op && n.End == open[i].end {
				n.Replaced = true
			}
			break
		}
	}
	w.Work, w.elements, w.counted, w.replaced = timeline.Work{}, 0, true, true
}

// stated sets the operator, its work and its modules where the activity itself states them, as in
// profiles of XLA.
func (s *Sweep) stated(a *Activity) {
	d, l := &a.Detail, &a.Launch
	if d.Operator == 0 {
		return
	}
	l.Op, l.opAt = d.Operator, a.Start
	l.Work = s.newWork(&event.Record{Name: d.Operator}, d)
	l.Work.Launches = 1
	if d.Modules == 0 {
		return
	}
	node, ok := s.stating[d.Modules]
	if !ok {
		for name := range strings.SplitSeq(s.in.Names.Name(d.Modules), "/") {
			node = s.modules.Node(node, s.in.Names.Find(name), s.in.Names.Name)
		}
		s.stating[d.Modules] = node
	}
	l.module, l.around, l.named = node, d.Modules, d.Operator
}

// begin counts the work at its first kernel, whose name gives the type of elements if the operator
// does not, and the engine.
func (w *Work) begin(kernel string) {
	w.counted = true
	w.Precision = vocabulary.PrecisionOf(w.Precision, kernel)
	if w.elements > 0 && w.Bytes == 0 {
		w.Bytes = w.elements * float64(elementOf(kernel))
	}
}

// elementOf returns the element size of a PyTorch kernel for lists of tensors by its name: cat
// copies elements of one size whatever their type, the others are compiled for one type. 0 if the
// name does not state it.
func elementOf(kernel string) int64 {
	if _, rest, ok := strings.Cut(kernel, "OpaqueType<"); ok {
		n, _ := strconv.ParseInt(rest[:len(rest)-len(strings.TrimLeft(rest, "0123456789"))], 10, 8)
		return n
	}
	_, rest, ok := strings.Cut(kernel, "Functor<")
	if !ok {
		return 0
	}
	word, _, _ := strings.Cut(rest, ",")
	return vocabulary.ElementSize(strings.TrimRight(word, "> "))
}

// Computed sums the work of operators over a step or a window.
type Computed struct {
	Flops float64
	By    map[string]float64 // precision: FLOPs
	time  int64              // of kernels below operators whose work is known
	All   int64              // of kernels
}

// add adds a kernel that is not a collective: collectives compute next to nothing.
func (c *Computed) add(a *Activity, first bool) {
	c.All += a.Duration
	w := a.Launch.Work
	if w == nil || w.FLOPs == 0 {
		return
	}
	c.time += a.Duration
	if !first {
		return
	}
	if c.By == nil {
		c.By = map[string]float64{}
	}
	c.By[w.Precision] += w.FLOPs
	c.Flops += w.FLOPs
}

// Coverage returns the part of the kernel time that the sum covers.
func (c *Computed) Coverage() float64 { return float64(c.time) / float64(max(c.All, 1)) }
