// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package profiletrace

import (
	"context"
	"maps"
	"slices"

	"go.opentelemetry.io/collector/consumer"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/profiletrace/criticalpath"
	"github.com/otelgpu/otelgpu/internal/profiletrace/emit"
	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/internal/profiletrace/link"
	"github.com/otelgpu/otelgpu/internal/profiletrace/rules"
)

// Stats counts what was read from a profile, and holds the results of its analysis.
type Stats struct {
	Records      int64 // events or rows that a reader found in the file, of all kinds
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
	Graphs       link.Graphs
	event.WrongTimes
	event.Unused
}

// Emit writes the profile as traces, in batches that the function owns. It stops at the function's
// first error and when the context ends. It may be called again, and writes the same.
func (p *Profile) Emit(ctx context.Context, next consumer.ConsumeTracesFunc) (Stats, error) {
	s, err := p.emit(ctx, next)
	s.Unused = event.Unused{
		Skipped: maps.Clone(p.Skipped), Faults: slices.Concat(p.Faults, s.Outliers.Named, s.Untimed.Named, s.Overlong.Named),
	}
	for _, loss := range []struct {
		n      int64
		reason string
	}{
		{s.Outliers.Count, "time more than a day from all other events"},
		{s.Untimed.Count, "activity of a device that starts before its launch"},
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

func (p *Profile) emit(ctx context.Context, next consumer.ConsumeTracesFunc) (Stats, error) {
	st := Stats{NamesDropped: p.Names.Over, SpilledBytes: p.Spilled()}
	if p.Len() == 0 {
		return st, nil
	}
	if err := p.Bound(); err != nil {
		return st, err
	}
	if p.opts.Accept != nil {
		if err := p.opts.Accept(p.Identity()); err != nil {
			return st, err
		}
	}
	st.WrongTimes = p.WrongTimes()
	st.Events = p.Len() - st.Outliers.Count - st.Untimed.Count
	st.Kernels, st.Copies = p.Count(event.KindKernel), p.Count(event.KindCopy)
	st.Memsets, st.Steps = p.Count(event.KindMemset), p.Count(event.KindStep)
	replays, err := p.Replays(ctx)
	if err != nil {
		return st, err
	}
	st.Graphs = replays.Graphs
	var observer link.Observer
	if p.opts.Observe != nil {
		observer = p.opts.Observe(&p.Input)
	}
	if err := p.write(ctx, p.opts.Detail, next, replays, observer, &st); err != nil || p.opts.All == nil {
		return st, err
	}
	// The second sweep writes more spans, and finds the same. It does not search for critical paths
	// again.
	first := st
	paths := p.Paths
	p.Paths = false
	err = p.write(ctx, emit.LevelKernels, p.opts.All, replays, nil, &st)
	p.Paths = paths
	st.Spans, st.Cut, st.Paths = first.Spans, first.Cut, first.Paths
	return st, err
}

// write writes the profile at a level of detail, and sets what the analysis found.
func (p *Profile) write(
	ctx context.Context, level emit.Level, next consumer.ConsumeTracesFunc, replays link.Replays,
	observer link.Observer, st *Stats,
) error {
	e, err := emit.NewEmitter(&p.Input, p.emitConfig(level), &p.offers)
	if err != nil {
		return err
	}
	if err := e.Select(ctx); err != nil {
		return err
	}
	w := e.Writer(ctx, next)
	sw := p.Analysis(w, replays)
	sw.Observe(observer)
	err = w.Run(sw)
	devices := judged(sw)
	st.Devices = nil
	for _, d := range devices {
		st.Devices = append(st.Devices, d.Report)
	}
	st.Host = rules.NoDevice(sw.HostOnly(), p.Meta.Framework)
	if err == nil {
		err = w.Windows(sw, devices, st.Host)
	}
	st.Spans, st.Cut = w.Written()
	st.DeepSteps, st.Forgotten, st.SpilledBytes = sw.DeepSteps(), sw.Forgotten(), p.Spilled()
	if err == nil {
		st.Paths = sw.CriticalPaths()
	}
	return err
}

// judged returns the facts about each device, with the findings that follow from them.
func judged(sw *link.Sweep) []*link.DeviceFacts {
	list := sw.Devices()
	for _, d := range list {
		d.Report.Findings = rules.Device(d.Totals, d.Context, &d.Report)
	}
	return list
}
