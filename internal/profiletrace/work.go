// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package profiletrace

import (
	"strconv"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/otelgpu/otelgpu/internal/profiletrace/timeline"
	"github.com/otelgpu/otelgpu/semconv"
)

// work is what one operator computes. It counts when the first kernel of the operator is met, so that operators that
// ran on the host do not, and once, however many kernels it launched.
type work struct {
	timeline.Work
	elements  float64 // of a type that the operator's record does not state
	op, shape uint32  // names
	counted   bool
	replaced  bool // by the work of an inner operator
	launches  int  // of kernels, so far: the sweep keeps the host ahead of the device
}

// statedWork decodes the work that an operator's record states; false for most.
func statedWork(r *record) (d Detail, ok bool) {
	if r.kind != KindOperator || len(r.detail) == 0 ||
		r.detail[0] != tagFLOPs && r.detail[0] != tagTraffic && r.detail[0] != tagElements {
		return d, false
	}
	d.decode(r.detail)
	return d, true
}

func (s *sweep) newWork(r *record, d *Detail) *work {
	if len(s.works) == 0 {
		s.works = make([]work, 64) // one allocation for many
	}
	w := &s.works[0]
	s.works = s.works[1:]
	*w = work{
		Work: timeline.Work{FLOPs: d.FLOPs, Bytes: d.Traffic, Precision: d.Precision}, elements: d.Elements, op: r.name,
		shape: d.Signature,
	}
	return w
}

// workOf returns the work that launches of the operator r do: the work of the outermost operator, of those around r,
// whose work is known. Mixed precision makes two exceptions, because an operator casts its inputs there and calls
// itself, or another one, with the results: casts are work of their own, and an inner operator that does most of the
// outer one's FLOPs in another precision replaces it.
func (s *sweep) workOf(r *record, f *frame, open []frame) *work {
	w := f.work
	if w != nil && !w.replaced && (w.counted || w.FLOPs == 0) {
		return w
	}
	d, ok := statedWork(r)
	switch {
	case !ok:
		return w
	case w == nil, w.replaced, movers[s.p.Names.Name(f.mover)] == timeline.MovesType:
	case d.Precision != w.Precision && 2*d.FLOPs > w.FLOPs:
		w.replace(open)
	default:
		return w
	}
	return s.newWork(r, &d)
}

// replace voids the work, also on the span of its operator, one of the open ranges.
func (w *work) replace(open []frame) {
	for i := range open {
		if n := open[i].node; open[i].work == w {
			if n.kind == KindOperator && n.name == w.op && n.end == open[i].end {
				n.replaced = true
			}
			break
		}
	}
	w.Work, w.elements, w.counted, w.replaced = timeline.Work{}, 0, true, true
}

// begin counts the work at its first kernel, whose name gives the type of elements if the operator does not.
func (w *work) begin(kernel string) {
	w.counted = true
	if w.elements > 0 && w.Bytes == 0 {
		w.Bytes = w.elements * float64(elementOf(kernel))
	}
}

// elementOf returns the element size of a PyTorch kernel for lists of tensors by its name: cat copies elements of one
// size whatever their type, the others are compiled for one type. 0 if the name does not state it.
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
	return ElementSize(strings.TrimRight(word, "> "))
}

// computed sums the work of operators over a step or a window.
type computed struct {
	flops float64
	by    map[string]float64 // precision: FLOPs
	time  int64              // of kernels below operators whose work is known
	all   int64              // of kernels
}

// add adds a kernel that is not a collective: collectives compute next to nothing.
func (c *computed) add(a *activity, first bool) {
	c.all += a.duration
	w := a.launch.work
	if w == nil || w.FLOPs == 0 {
		return
	}
	c.time += a.duration
	if !first {
		return
	}
	if c.by == nil {
		c.by = map[string]float64{}
	}
	c.by[w.Precision] += w.FLOPs
	c.flops += w.FLOPs
}

// samePrecision is the part of the FLOPs from which on their precision is the sum's: the rest, rotary embeddings
// in single precision among products in bfloat16, changes a utilization by no more than this.
const samePrecision = 0.99

// write writes the sum with the part of the kernel time that it covers. If no operator is known there is no sum.
func (c *computed) write(m pcommon.Map) {
	if c.flops == 0 {
		return
	}
	m.PutDouble(string(semconv.GPUFLOPCountKey), c.flops)
	for precision, flops := range c.by {
		if flops >= samePrecision*c.flops {
			putText(m, semconv.GPUFLOPPrecisionKey, precision)
		}
	}
	if c.all > 0 {
		m.PutDouble(string(semconv.GPUFLOPCoverageKey), c.coverage())
	}
}

func (c *computed) coverage() float64 { return float64(c.time) / float64(max(c.all, 1)) }
