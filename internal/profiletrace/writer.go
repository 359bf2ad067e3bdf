// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package profiletrace

// writer is the second sweep: it writes spans.
type writer struct {
	rule  *rule
	sel   *selection
	out   *spans
	queue []*node // nodes that are still open, in the order of their starts
	next  int     // length of queue at which it is looked through again

	builder *builder // makes the spans; nil: the writer does
}

// gathering is how many nodes may be open at one time. If there are more, nodes that ended a while ago are written, and
// what a late kernel would add to them is added to the next open ancestor.
const (
	gathering   = 20_000
	awhile      = int64(100_000_000)    // ns of the profile
	awhileSteps = int64(10_000_000_000) // for steps, which are what late kernels go to
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
		at.below().cut++
		at.below().cutSize = bySize
	}
	return keep
}

func (w *writer) device(a *activity, above *node, p *process) {
	w.project(a, above)
	if !w.rule.device(a) {
		above.below().add(a)
		return
	}
	if keep, bySize := w.sel.keeps(w.sel.key(p, a.launch.step), w.sel.deviceCandidate(a)); !keep {
		at := above
		if st := a.launch.step; st != nil && st.node != nil {
			at = st.node.live()
		}
		at.below().cut++
		at.below().cutTime += a.duration
		at.below().cutSize = bySize
		above.below().add(a)
		return
	}
	if w.builder != nil {
		w.builder.device(above, p)
	} else {
		w.out.device(a, above, p)
	}
}

// write writes the span of a node and closes it.
func (w *writer) write(n *node) {
	if n.release(); w.builder != nil {
		w.builder.host(n)
	} else {
		w.out.host(n)
	}
}

func (w *writer) opened(n *node, r *record) {
	w.queue = append(w.queue, n)
	if len(w.queue) < max(w.next, gathering) {
		return
	}
	keep := w.queue[:0]
	for _, n := range w.queue {
		wait := awhile
		if n.kind == KindStep {
			wait = awhileSteps
		}
		if n.end+wait > r.key {
			keep = append(keep, n)
		} else {
			w.write(n)
		}
	}
	clear(w.queue[len(keep):])
	w.queue = keep
	w.next = 2 * len(keep) // where most are still open, looking again soon would find nothing
}

// flush writes the nodes that are left.
func (w *writer) flush() error {
	for _, n := range w.queue {
		w.write(n)
		if w.out.err != nil {
			return w.out.err
		}
	}
	w.queue = nil
	return w.out.err
}
