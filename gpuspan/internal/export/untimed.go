// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package export

import (
	"github.com/otelgpu/otelgpu/gpuspan/internal/record"
	"github.com/otelgpu/otelgpu/gpuspan/internal/work"
	"github.com/otelgpu/otelgpu/gpuspan/report"
)

// nodeOf returns the position's number in the report.
func nodeOf(pl *record.Position, rec report.Recorder) report.Node {
	if pl == nil {
		return 0
	}
	if pl.Number == 0 {
		pl.Number = rec.Node(nodeOf(pl.Parent, rec), pl.State.Op.Cfg.Info)
	}
	return pl.Number
}

// reportPosition reports to the recorder the runs since the last report. Polling thread.
func reportPosition(pl *record.Position, rec report.Recorder) {
	now, last := pl.Untimed.Load(), pl.Reported
	if now == last {
		return
	}
	pl.Reported = now
	w := work.Work{Read: now.Read - last.Read, Written: now.Written - last.Written}
	var copied [work.Directions]int64
	for d := range copied {
		copied[d] = now.Copied[d] - last.Copied[d]
	}
	var s report.Sample
	s.Memory, s.PCIe = w.Io(work.DirectionUnset, &copied)
	s.Items = now.Items - last.Items
	n, stated := now.Count-last.Count, false
	for i := range now.FLOPs {
		f := now.FLOPs[i] - last.FLOPs[i]
		if f == 0 {
			continue
		}
		s.FLOPs, s.Precision = f, work.Precision(i).String()
		reportSample(pl, rec, n, s)
		n, s.Items, s.Memory, s.PCIe, stated = 0, 0, report.IO{}, report.Transfer{}, true
	}
	if !stated {
		reportSample(pl, rec, n, s)
	}
}

// reportSample passes runs on, and the work of chunks also to the enclosing sections, unless an untimed section around
// them declares work.
func reportSample(pl *record.Position, rec report.Recorder, n int64, s report.Sample) {
	rec.Untimed(nodeOf(pl, rec), n, s)
	for pl.Chunked.Load() && pl.Parent != nil && !pl.Parent.Untimed.Stated() {
		pl = pl.Parent
		rec.Untimed(nodeOf(pl, rec), 0, s)
	}
}
