// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package emit

import (
	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
	"github.com/otelgpu/otelgpu/internal/profiletrace/link"
)

// Writer is the visitor of the second sweep: it writes spans.
type Writer struct {
	p     *Emitter
	sel   *selection
	out   *spans
	queue []*node // nodes that are still open, in the order of their starts
	next  int     // length of queue at which ended nodes are searched

	builder *builder // makes the spans; nil: the writer does
}

// maxOpenNodes is how many nodes may be open at one time. If there are more, nodes that ended
// flushAfter ago are written, and what a late kernel would add to them is added to the next open
// ancestor.
const (
	maxOpenNodes    = 20_000
	flushAfter      = int64(100_000_000)    // ns of the profile
	flushStepsAfter = int64(10_000_000_000) // for steps, which are what late kernels go to
)

// Range keeps the range if it becomes a span.
func (w *Writer) Range(r *event.Record, above *link.Node, depth int, p *link.Process, st *link.Step) *link.Node {
	if !w.p.wantsRange(r, depth) || !w.keeps(r, p, st) {
		kept(above).below().ranges++
		return nil
	}
	n := w.p.nodeOf(r, above, st, p)
	w.opened(n, r.Key)
	return n.Node
}

func (w *Writer) keeps(r *event.Record, p *link.Process, st *link.Step) bool {
	keep, bySize := w.sel.keeps(w.sel.key(p, st), w.sel.hostCandidate(r))
	if !keep {
		at := p.Window
		if st != nil && st.Node != nil {
			at = st.Node.Live()
		}
		sum := kept(at).below()
		sum.cut++
		sum.cutSize = bySize
	}
	return keep
}

// Activity writes the activity, or adds it to the summary of the node above.
func (w *Writer) Activity(a *link.Activity, above *link.Node, p *link.Process) {
	w.project(a, kept(above))
	if !w.p.wants(a) {
		kept(above).below().add(a)
		return
	}
	if keep, bySize := w.sel.keeps(w.sel.key(p, a.Launch.Step), w.sel.deviceCandidate(a)); !keep {
		at := above
		if st := a.Launch.Step; st != nil && st.Node != nil {
			at = st.Node.Live()
		}
		sum := kept(at).below()
		sum.cut++
		sum.cutTime += a.Duration
		sum.cutSize = bySize
		kept(above).below().add(a)
		return
	}
	if w.builder != nil {
		w.builder.device(above, p)
	} else {
		w.out.device(a, kept(above), p)
	}
}

// write writes the span of a node and closes it.
func (w *Writer) write(n *node) {
	if n.Release(); w.builder != nil {
		w.builder.host(n)
	} else {
		w.out.host(n)
	}
}

// opened adds a node that starts now.
func (w *Writer) opened(n *node, now int64) {
	w.queue = append(w.queue, n)
	if len(w.queue) < max(w.next, maxOpenNodes) {
		return
	}
	keep := w.queue[:0]
	for _, n := range w.queue {
		wait := flushAfter
		if n.Kind == event.KindStep {
			wait = flushStepsAfter
		}
		if n.End+wait > now {
			keep = append(keep, n)
		} else {
			w.write(n)
		}
	}
	clear(w.queue[len(keep):])
	w.queue = keep
	w.next = 2 * len(keep) // if most are still open, another search would soon find nothing
}

// flush writes the nodes that are left.
func (w *Writer) flush() error {
	for _, n := range w.queue {
		w.write(n)
		if w.out.err != nil {
			return w.out.err
		}
	}
	w.queue = nil
	return w.out.err
}

// Run sweeps over the events, and writes all spans except the spans of windows.
func (w *Writer) Run(s *link.Sweep) error {
	for _, proc := range s.Processes {
		w.p.openWindow(proc, w.p.root)
	}
	if err := w.sweep(w.out.ctx, s); err != nil {
		return err
	}
	return w.flush()
}

// Windows writes the spans of the processes and devices, and the last batch.
func (w *Writer) Windows(s *link.Sweep, devices []*link.DeviceFacts, host *finding.Finding) error {
	if err := w.out.windows(s, devices, host); err != nil {
		return err
	}
	return w.out.flush()
}

// Written returns how many spans were written, and dropped by a limit.
func (w *Writer) Written() (spans, cut int64) { return w.out.written, w.out.cut }
