// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package spans

import (
	"cmp"
	"slices"

	"go.opentelemetry.io/otel/attribute"

	"github.com/otelgpu/otelgpu/gpuspan/internal/hostclock"
	"github.com/otelgpu/otelgpu/gpuspan/internal/section"
	"github.com/otelgpu/otelgpu/gpuspan/internal/sink"
	"github.com/otelgpu/otelgpu/gpuspan/internal/spanattr"
	"github.com/otelgpu/otelgpu/gpuspan/internal/work"
	"github.com/otelgpu/otelgpu/semconv"
)

// adopt adds a child's work to the sums of its parent.
func adopt(r, child *section.Record) {
	r.ChildFLOPs += flopsOf(child)
	if child.Flags&section.FlagChunk == 0 {
		return
	}
	r.ChildChunks = max(r.ChildChunks, child.Chunks)
	w, from := child.Work, child.Op.Cfg.Direction
	if from != r.Op.Cfg.Direction {
		adoptCopied(r, from, w.Read+w.Written+w.Bytes)
		w.Read, w.Written, w.Bytes = 0, 0, 0
	}
	r.ChildWork.Add(&w)
	if e := child.Extra; e != nil && e.Moved {
		for d, n := range e.Copied {
			adoptCopied(r, work.Direction(d), n)
		}
	}
}

// adoptCopied adds bytes that chunks moved in a direction. Copies have no separate device memory
// traffic.
func adoptCopied(r *section.Record, d work.Direction, n int64) {
	switch {
	case n == 0 || d == work.DirectionUnset:
	case d == r.Op.Cfg.Direction:
		r.ChildWork.Bytes += n
	default:
		if r.ChildCopied == nil {
			r.ChildCopied = &[work.Directions]int64{}
		}
		r.ChildCopied[d] += n
	}
}

// sumUp gives a section around chunks the sum of their work, unless it states its own.
func sumUp(r *section.Record) {
	if r.Work.Stated() || r.Extra != nil && r.Extra.Moved {
		return
	}
	r.Work, r.Summed = r.ChildWork, true
	if r.ChildCopied == nil {
		return
	}
	if r.Extra == nil {
		r.Extra = &section.Extra{}
	}
	r.Extra.Copied, r.Extra.Moved = *r.ChildCopied, true
}

// flopsOf returns the FLOPs of a section: its own statement, otherwise the sum of its children's.
func flopsOf(r *section.Record) float64 {
	if r.Work.FLOPs != 0 && !r.Summed { // chunks are some of the children
		return r.Work.FLOPs
	}
	return r.ChildFLOPs
}

// assemble returns the sections of a nest, parents before children. The list is valid until the
// next call.
func (t *Exporter) assemble(n *section.Nest) []finished {
	root := n.Root
	t.list = append(t.list[:0], finished{record: root, stream: n.Stream})
	if len(n.Held) == 0 {
		return t.list
	}
	t.order = append(t.order[:0], root)
	t.order = append(t.order, n.Held...)
	slices.SortStableFunc(t.order, func(a, b *section.Record) int {
		return cmp.Or(cmp.Compare(a.Depth, b.Depth), cmp.Compare(a.StartNs, b.StartNs), cmp.Compare(a.ID, b.ID))
	})
	byID := t.byID
	clear(byID)
	for _, r := range t.order {
		byID[r.ID] = r
	}
	for _, r := range slices.Backward(t.order) { // children first: a parent's sums include them
		sumUp(r)
		if p := byID[r.Parent]; p != nil && p != r {
			adopt(p, r)
		}
	}
	t.list = t.list[:0]
	for _, r := range t.order {
		p := cmp.Or(byID[r.Parent], root) // root is its own parent, and the parent of orphans
		t.list = append(t.list, finished{record: r, stream: cmp.Or(r.HeldOn, n.Stream), parent: p})
	}
	clear(byID)
	clear(t.order)
	return t.list
}

// factsOf collects the facts of a section. Times are in seconds.
func factsOf(f *sink.Facts, r *section.Record, clock *hostclock.Clock) {
	f.Known = 0
	switch {
	case r.Flags&section.FlagGiven != 0:
		f.Float(sink.FactDuration, r.GPU/1e9)
	case r.Timed:
		f.Float(sink.FactDuration, r.GPU/1e9)
		placeFacts(f, r, clock)
	}
	w := &r.Work
	if w.FLOPs != 0 {
		f.Float(sink.FactFLOPs, w.FLOPs)
	}
	f.Stated(sink.FactRead, w.Read)
	f.Stated(sink.FactWritten, w.Written)
	if w.Bytes != 0 { // otherwise it is the sum of bytes read and written
		f.Stated(sink.FactIO, w.Read+w.Written+w.Bytes)
	}
	f.Stated(sink.FactItems, w.Items)
	if r.Occurrence == 1 { // the first, which may be slower than all others
		f.Stated(sink.FactOccurrence, 1)
	}
}

// placeFacts sets the error of the times of a section or step, and the delays after the calls of
// Start and End.
func placeFacts(f *sink.Facts, r *section.Record, clock *hostclock.Clock) {
	if r.Device.Unusual(r.ErrorNs) {
		f.Float(sink.FactTimingError, spanattr.Seconds(r.ErrorNs))
	}
	f.Float(sink.FactStartDelay, spanattr.Seconds(r.StartNs-clock.At(r.HostStart, r.Offset)))
	if d := r.EndNs - clock.At(r.HostEnd, r.Offset); waited(d, r.GPU) {
		f.Float(sink.FactEndDelay, spanattr.Seconds(d))
	}
}

// waited reports whether the device waited for the host in gpu ns that ended delay ns after the
// host's call of End: less than a tenth of the work was left then. If more was left, the queue hid
// the host's time, and no delay is reported.
func waited(delay int64, gpu float64) bool { return 10*float64(delay) < gpu }

// precisionAttrs is gpu.flop.precision for each Precision.
var precisionAttrs = func() (list [work.Precisions][]attribute.KeyValue) {
	for i := 1; i < work.Precisions; i++ {
		list[i] = []attribute.KeyValue{semconv.GPUFLOPPrecisionKey.String(work.Precision(i).String())}
	}
	return list
}()

// PrecisionOf returns the precision of stated FLOPs; empty if none are stated.
func PrecisionOf(w *work.Work) []attribute.KeyValue {
	if w.FLOPs == 0 || int(w.Precision) >= work.Precisions {
		return nil
	}
	return precisionAttrs[w.Precision]
}
