// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package spans

import (
	"github.com/otelgpu/otelgpu/gpuspan/internal/section"
	"github.com/otelgpu/otelgpu/gpuspan/internal/statistics"
	"github.com/otelgpu/otelgpu/gpuspan/internal/work"
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
