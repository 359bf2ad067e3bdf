// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package spans

import (
	"cmp"
	"fmt"

	"github.com/otelgpu/otelgpu/gpuspan/internal/section"
	"github.com/otelgpu/otelgpu/gpuspan/internal/statistics"
	"github.com/otelgpu/otelgpu/gpuspan/internal/work"
	"github.com/otelgpu/otelgpu/gpuspan/report"
)

// nodeOf returns the position's number in the report.
func nodeOf(pl *section.Position, rec section.Statistics) statistics.Node {
	if pl == nil {
		return 0
	}
	if pl.Number == 0 {
		pl.Number = rec.Node(nodeOf(pl.Parent, rec), pl.State.Cfg.Info)
	}
	return pl.Number
}

// reportPosition reports to the recorder the runs since the last report.
func reportPosition(pl *section.Position, rec section.Statistics) {
	since, ok := pl.TakeUntimed()
	if !ok {
		return
	}
	w := work.Work{Read: since.Read, Written: since.Written}
	var s statistics.Sample
	s.Memory, s.PCIe = w.Io(work.DirectionUnset, &since.Copied)
	s.Items = since.Items
	n, stated := since.Count, false
	for i, f := range since.FLOPs {
		if f == 0 {
			continue
		}
		s.FLOPs, s.Precision = f, work.Precision(i).String()
		reportSample(pl, rec, n, s)
		n, s.Items, s.Memory, s.PCIe, stated = 0, 0, statistics.IO{}, statistics.Transfer{}, true
	}
	if !stated {
		reportSample(pl, rec, n, s)
	}
}

// reportSample passes runs on, and the work of chunks also to the enclosing sections.
func reportSample(pl *section.Position, rec section.Statistics, n int64, s statistics.Sample) {
	rec.Untimed(nodeOf(pl, rec), n, s)
	for pl = pl.Around(); pl != nil; pl = pl.Around() {
		rec.Untimed(nodeOf(pl, rec), 0, s)
	}
}

// ReportUntimed reports to the recorder the untimed runs since the last report.
func (t *Exporter) ReportUntimed() {
	rec := t.p.Recorder
	if rec == nil {
		return
	}
	defer t.p.Guard("recorder's count of untimed sections")
	for _, st := range t.p.Operations() {
		reportPosition(&st.Outermost, rec)
	}
	for _, pl := range t.p.Positions() {
		reportPosition(pl, rec)
	}
	for reason, n := range t.p.Drops() {
		rec.SetDropped(reason, n)
	}
}

// nodeOf returns an outermost section's node in the report, also before it is counted.
func (t *Exporter) nodeOf(st *section.OpState) int32 {
	if t.p.Recorder == nil {
		return 0
	}
	return int32(t.p.Recorder.Node(0, st.Cfg.Info))
}

// print writes the report if an operation requests it.
func (t *Exporter) print(c *section.OperationConfig) {
	defer t.p.Guard("the report was printed")
	if t.p.Recorder == nil {
		return
	}
	t.ReportUntimed()
	s := t.p.Recorder.Summary()
	list := []report.Summary{s}
	if len(c.PrintOnly) > 0 {
		list = list[:0]
		for _, name := range c.PrintOnly {
			list = append(list, s.Category(name))
		}
	}
	var err error
	for _, s := range list {
		err = cmp.Or(err, s.WriteText(c.Print))
	}
	if err != nil {
		t.p.Errors.Report("print", fmt.Errorf("cannot print the report: %w", err))
	}
}
