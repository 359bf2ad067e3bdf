// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package emit

import (
	"slices"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
	"github.com/otelgpu/otelgpu/internal/profiletrace/link"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/semconv"
)

// node is a host range that has a span, and summarizes what is below it without a span.
type node struct {
	*link.Node
	corr      int64
	detail    []byte
	seq       uint32
	thread    int64 // of the host; negative: a track that is no thread, as of ranges that end on any
	process   *link.Process
	step      *link.Step // the step that it is or belongs to
	self      spanRef
	up        pcommon.SpanID // parent span; empty for a root
	link      []spanLink
	sum       *summary // see below
	projected []projection
}

// newNode returns what is kept of a node, which refers to it.
func newNode(of *link.Node, proc *link.Process) *node {
	n := &node{Node: of, process: proc}
	of.Kept = n
	return n
}

// kept returns what is kept of a node; nil for nil.
func kept(n *link.Node) *node {
	if n == nil {
		return nil
	}
	return n.Kept.(*node)
}

// below returns the summary of what is below the node without a span; most nodes need none.
func (n *node) below() *summary {
	if n.sum == nil {
		n.sum = &summary{}
	}
	return n.sum
}

// windowNumber makes windows of one job and rank differ.
func (p *Emitter) windowNumber(pid int64) int64 {
	n := p.FirstStep()
	if main, _ := p.MainProcess(); pid != main {
		n ^= int64(event.Mix(uint64(pid) + 1))
	}
	return n
}

// openWindow sets the parent of a process's root: a live trace, or a new trace.
func (p *Emitter) openWindow(proc *link.Process, root spanRef) {
	n := p.windowNumber(proc.Pid)
	w := newNode(proc.Window, proc)
	w.self = spanRef{p.jobIDs.trace(idWindow, n), p.jobIDs.span(idWindow, n)}
	if !root.trace.IsEmpty() {
		w.self.trace, w.up = root.trace, root.span
		w.self.span = p.ids.span(idWindow, n)
	}
	w.link = p.rankLink(func(rank0 idSource) spanRef {
		return spanRef{rank0.trace(idWindow, n), rank0.span(idWindow, n)}
	})
}

// rankLink returns the link from a rank to the same step or window of rank 0: none for rank 0, and
// none if the job is unknown.
func (p *Emitter) rankLink(at func(idSource) spanRef) []spanLink {
	job := p.job()
	if job == "" || !p.Meta.HasRank || p.Meta.Rank == 0 || p.Meta.TraceParent != "" {
		return nil
	}
	return []spanLink{{at(jobIDs(job, 0)), semconv.GPULinkTypeRank}}
}

// nodeOf returns the node of a range that is written as a span below another one.
func (p *Emitter) nodeOf(r *event.Record, above *link.Node, st *link.Step, proc *link.Process) *node {
	n := newNode(&link.Node{Kind: r.Kind, Start: r.Key, End: r.Key + r.Duration, Name: r.Name, Parent: above}, proc)
	n.corr, n.seq, n.detail, n.step, n.thread = r.Correlation, r.Seq, slices.Clone(r.Detail), st, p.tracks[r.Track].Inner
	up := kept(above)
	n.up = up.self.span
	n.self = spanRef{up.self.trace, p.ids.span(idEvent, int64(r.Seq))}
	if r.Kind == event.KindStep {
		p.placeStep(n, st, proc)
	}
	if r.Kind == event.KindStep || r.Kind == event.KindAnnotation {
		var d event.Detail
		if d.Decode(r.Detail); d.TraceParent != "" {
			if c, err := parseTraceParent(d.TraceParent); err == nil {
				n.link = append(n.link, spanLink{up.self, semconv.GPULinkTypeWindow})
				n.self.trace, n.up = c.trace, c.span
			}
		}
	}
	return n
}

func (p *Emitter) hasJob() bool { return p.job() != "" && p.Meta.HasRank }

// stepIDs returns what the identifiers of a step are functions of.
func (p *Emitter) stepIDs(st *link.Step) (ids idSource, number int64) {
	switch {
	case p.hasJob() && !st.Leads:
		return p.ids, st.Ordinal
	case st.HasIndex:
		return p.jobIDs, st.Index
	}
	return p.jobIDs, st.Ordinal
}

// Key returns the identity of the span of an activity at a level where every step is a trace. Live
// parents of ranges around its launch are not considered.
func (p *Emitter) Key(a *link.Activity) spanfacts.Key {
	k := spanfacts.Key{Trace: p.root.trace, Span: p.ids.span(idEvent, int64(a.Seq))}
	var live spanRef
	if a.Detail.TraceParent != "" {
		live, _ = parseTraceParent(a.Detail.TraceParent)
	}
	switch st := a.Launch.Step; {
	case !live.span.IsEmpty():
		k.Trace = live.trace
	case !p.root.trace.IsEmpty():
	case st != nil:
		ids, number := p.stepIDs(st)
		k.Trace = ids.trace(idStep, number)
	default:
		pid, _ := p.MainProcess()
		if a.HasLaunch {
			pid = a.Launch.Process.Pid
		}
		k.Trace = p.jobIDs.trace(idWindow, p.windowNumber(pid))
	}
	return k
}

// placeStep makes a step the root of a separate trace if the level requires it. Under a live trace
// it stays there. If the job is known, identifiers are derived from job, rank and number, so that
// other ranks can link to them; steps with a repeated number, as of a second loop or of other
// processes, have identifiers derived from the content.
func (p *Emitter) placeStep(n *node, st *link.Step, proc *link.Process) {
	ids, number := p.stepIDs(st)
	byJob := p.hasJob() && st.Leads && p.Meta.TraceParent == ""
	if byJob {
		n.self.span = ids.span(idStep, number)
	}
	own := p.Detail.PerStep() && p.Meta.TraceParent == ""
	if own {
		n.self.trace, n.up = ids.trace(idStep, number), pcommon.SpanID{}
		n.link = append(n.link, spanLink{kept(proc.Window).self, semconv.GPULinkTypeWindow})
	}
	if !byJob {
		return
	}
	first := p.windowNumber(proc.Pid)
	n.link = append(n.link, p.rankLink(func(rank0 idSource) spanRef {
		if own {
			return spanRef{rank0.trace(idStep, number), rank0.span(idStep, number)}
		}
		return spanRef{rank0.trace(idWindow, first), rank0.span(idStep, number)}
	})...)
}
