// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package profiletrace

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/profiletrace/criticalpath"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/semconv"
)

// Stats counts what was read from a profile.
type Stats struct {
	Events       int64 // activities that were taken
	Kernels      int64
	Copies       int64
	Memsets      int64
	Steps        int64
	Spans        int64
	Cut          int64                // spans dropped by a limit on the trace
	DeepSteps    int64                // steps within 64 others, which have no totals of the device
	Forgotten    int64                // activities whose launch was evicted before they started
	NamesDropped int64                // distinct names that were not kept
	SpilledBytes int64                // written to the spill file
	Devices      []facts.Report       // of the window, by device
	Host         *finding.Finding     // where the host's time went, of a file without activities of a device
	Paths        []*criticalpath.Path // by process, if Options.Paths
	Graphs       Graphs
	Outliers     Outliers
	Unused
}

// Unused is what is in a file but not in its spans.
type Unused struct {
	Skipped map[string]int64 // skipped or lost events, by reason
	Faults  []string         // contradictions in the file's own statements
}

// Skip counts an event that is omitted.
func (u *Unused) Skip(why string) { u.Skipped[why]++ }

// Emit writes the profile as traces, in batches that the function owns. It stops at the function's first error and when
// the context ends. It may be called again, and writes the same.
func (p *Profile) Emit(ctx context.Context, emit consumer.ConsumeTracesFunc) (Stats, error) {
	s, err := p.emit(ctx, emit)
	s.Unused = Unused{maps.Clone(p.Skipped), slices.Concat(p.Faults, s.Outliers.Named)}
	for _, loss := range []struct {
		n      int64
		reason string
	}{
		{s.Outliers.Count, "time more than a day from all other events"},
		{s.DeepSteps, "totals of the device, of a step within 64 others"},
		{s.Forgotten, "launch that was dropped before its work started, because there was no room"},
		{s.NamesDropped, "name beyond the limit of memory"},
	} {
		if loss.n > 0 {
			s.Skipped[loss.reason] += loss.n
		}
	}
	return s, err
}

func (p *Profile) emit(ctx context.Context, emit consumer.ConsumeTracesFunc) (Stats, error) {
	st := Stats{NamesDropped: p.Names.Over, SpilledBytes: p.sorter.at}
	if p.seq == 0 {
		return st, nil
	}
	if err := p.bound(); err != nil {
		return st, err
	}
	st.Events, st.Outliers = int64(p.seq)-p.outliers.Count, p.outliers
	of := func(k Kind) int64 { return p.counts[k] - p.outliers.kinds[k] }
	st.Kernels, st.Copies, st.Memsets, st.Steps = of(KindKernel), of(KindCopy), of(KindMemset), of(KindStep)
	if p.first > p.last {
		p.first, p.last = 0, 0
	}
	// times without a known origin: OTLP has no instant before 1970, and 0 means none
	if p.Meta.Base == 0 && p.first <= 0 {
		p.Meta.Base = 1 - p.first
	}
	if p.Meta.Base > maxTime || p.Meta.Base < 0 || p.first+p.Meta.Base < 0 || p.last > 1<<63-1-p.Meta.Base {
		return st, fmt.Errorf("%w: events from %d to %d ns after the base of %d ns", ErrTimeRange, p.first, p.last,
			p.Meta.Base)
	}
	var root spanRef
	if p.Meta.TraceParent != "" {
		var err error
		if root, err = parseTraceParent(p.Meta.TraceParent); err != nil {
			return st, err
		}
	}
	replays, graphs, err := p.replaysOf(ctx)
	if err != nil {
		return st, err
	}
	st.Graphs = graphs
	r := p.newRule()
	sel := p.newSelection(r)
	if sel.limited() && !p.surelyFits(sel) {
		if err := p.newSweep(sel).run(ctx); err != nil {
			return st, err
		}
	}
	out := newSpans(ctx, p, emit)
	w := &writer{rule: r, sel: sel, out: out}
	sw := p.newSweep(w)
	sw.analyses, sw.replays = true, replays
	sw.followPaths()
	for _, proc := range sw.processes {
		p.openWindow(proc, root)
	}
	err = w.sweep(ctx, sw)
	if err == nil {
		err = w.flush()
	}
	if err == nil {
		err = out.windows(sw)
	}
	if err == nil {
		err = out.flush()
	}
	for _, proc := range sw.processes {
		st.DeepSteps += proc.deep
	}
	st.Spans, st.Cut, st.Forgotten, st.Devices = out.written, out.cut, sw.launches.forgotten, out.reports
	st.Host, st.SpilledBytes = out.noGPU, p.sorter.at
	if err == nil {
		st.Paths = sw.criticalPaths(out.shortName)
	}
	return st, err
}

func (p *Profile) job() string { return cmp.Or(p.Meta.JobID, p.opts.JobID) }

func (p *Profile) newProcess(pid int64, known bool) *process {
	proc := &process{pid: pid, known: known, ids: p.ids()}
	if job := p.job(); job != "" && p.Meta.HasRank {
		proc.ids = jobIDs(job, p.Meta.Rank)
	}
	proc.window = &node{start: p.first, end: p.last, process: proc}
	return proc
}

// windowNumber makes windows of one job and rank differ.
func (p *Profile) windowNumber(pid int64) int64 {
	n := p.firstStep
	if pid != p.main {
		n ^= int64(mix(uint64(pid) + 1))
	}
	return n
}

// openWindow sets the parent of a process's root: a live trace, or a new trace.
func (p *Profile) openWindow(proc *process, root spanRef) {
	n := p.windowNumber(proc.pid)
	w := proc.window
	w.self = spanRef{proc.ids.trace(idWindow, n), proc.ids.span(idWindow, n)}
	if !root.trace.IsEmpty() {
		w.self.trace, w.up = root.trace, root.span
		w.self.span = p.ids().span(idWindow, n)
	}
	w.link = p.rankLink(func(rank0 idSource) spanRef {
		return spanRef{rank0.trace(idWindow, n), rank0.span(idWindow, n)}
	})
}

// rankLink returns the link from a rank to the same step or window of rank 0: none for rank 0, and none if the job is
// unknown.
func (p *Profile) rankLink(at func(idSource) spanRef) []link {
	job := p.job()
	if job == "" || !p.Meta.HasRank || p.Meta.Rank == 0 || p.Meta.TraceParent != "" {
		return nil
	}
	return []link{{at(jobIDs(job, 0)), semconv.GPULinkTypeRank}}
}

func (s *sweep) newNode(r *record, above *node, st *step, proc *process) *node {
	p := s.p
	n := &node{ // alone: a slab would stay for the one of its nodes that is needed for long
		kind: r.kind, start: r.key, end: r.key + r.duration, name: r.name, corr: r.correlation, seq: r.seq,
		detail: slices.Clone(r.detail), process: proc, parent: above, step: st, up: above.self.span,
		thread: p.trackList[r.track].inner,
	}
	n.self = spanRef{above.self.trace, p.ids().span(idEvent, int64(r.seq))}
	if r.kind == KindStep {
		p.placeStep(n, st, proc)
	}
	if r.kind == KindStep || r.kind == KindAnnotation {
		var d Detail
		if d.decode(r.detail); d.TraceParent != "" {
			if c, err := parseTraceParent(d.TraceParent); err == nil {
				n.link = append(n.link, link{above.self, semconv.GPULinkTypeWindow})
				n.self.trace, n.up = c.trace, c.span
			}
		}
	}
	return n
}

// placeStep makes a step the root of a separate trace if the level requires it. Under a live trace it stays there. If
// the job is known, identifiers are derived from job, rank and number, so that other ranks can link to them; steps with
// a repeated number, as of a second loop or of other processes, have identifiers derived from the content.
func (p *Profile) placeStep(n *node, st *step, proc *process) {
	hasJob := p.job() != "" && p.Meta.HasRank
	ids, number := proc.ids, st.ordinal
	switch {
	case hasJob && !st.leads:
		ids = p.ids()
	case st.hasIndex:
		number = st.index
	}
	byJob := hasJob && st.leads && p.Meta.TraceParent == ""
	if byJob {
		n.self.span = ids.span(idStep, number)
	}
	own := p.opts.Detail.perStep() && p.Meta.TraceParent == ""
	if own {
		n.self.trace, n.up = ids.trace(idStep, number), pcommon.SpanID{}
		n.link = append(n.link, link{proc.window.self, semconv.GPULinkTypeWindow})
	}
	if !byJob {
		return
	}
	first := p.windowNumber(proc.pid)
	n.link = append(n.link, p.rankLink(func(rank0 idSource) spanRef {
		if own {
			return spanRef{rank0.trace(idStep, number), rank0.span(idStep, number)}
		}
		return spanRef{rank0.trace(idWindow, first), rank0.span(idStep, number)}
	})...)
}
