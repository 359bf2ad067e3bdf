// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gputrace

// writer is the second sweep: it makes spans.
type writer struct {
	rule  *rule
	sel   *selection
	out   *spans
	queue []*node // nodes that still gather, in the order of their starts
	head  int
	steps int64 // step spans
}

// gathering is how many nodes may gather at one time; past it those that ended long ago are written, and what their
// late kernels add goes to the next above.
const (
	gathering  = 20_000
	longAgo    = int64(2_000_000_000)
	writeAhead = 1_000
)

func (w *writer) host(r *record, depth int, p *process, st *step) bool {
	if !w.rule.host(r, depth) {
		return false
	}
	keep, bySize := w.sel.keeps(w.sel.key(p, st), w.sel.hostCandidate(r))
	if !keep {
		at := p.window
		if st != nil && st.node != nil {
			at = st.node.live()
		}
		at.sum.cut++
		at.sum.cutSize = bySize
	}
	return keep
}

func (w *writer) device(a *activity, above *node, p *process) {
	if st := a.launch.step; st != nil && st.node != nil && a.kind == KindKernel {
		st.node.launched++
	}
	if !w.rule.device(a) {
		above.sum.add(a)
		return
	}
	if keep, bySize := w.sel.keeps(w.sel.key(p, a.launch.step), w.sel.deviceCandidate(a)); !keep {
		at := above
		if st := a.launch.step; st != nil && st.node != nil {
			at = st.node.live()
		}
		at.sum.cut++
		at.sum.cutTime += a.duration
		at.sum.cutSize = bySize
		above.sum.add(a)
		return
	}
	w.out.device(a, above, p)
}

func (w *writer) open(n *node, r *record) {
	w.queue = append(w.queue, n)
	if len(w.queue)-w.head <= gathering {
		return
	}
	for range writeAhead {
		if w.head == len(w.queue) || w.queue[w.head].end+longAgo > r.key {
			break
		}
		w.out.host(w.queue[w.head])
		w.queue[w.head] = nil
		w.head++
	}
	if w.head > gathering {
		w.queue = append(w.queue[:0], w.queue[w.head:]...)
		w.head = 0
	}
}

// flush writes the nodes that are left.
func (w *writer) flush() error {
	for _, n := range w.queue[w.head:] {
		w.out.host(n)
		if w.out.err != nil {
			return w.out.err
		}
	}
	w.queue, w.head = nil, 0
	return w.out.err
}
