// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine

// adopt adds a child's work to what its parent may say of its children.
func (r *record) adopt(child *record) {
	r.childFLOPs += child.flops()
	if child.flags&flagChunk == 0 {
		return
	}
	r.childChunks = max(r.childChunks, child.chunks)
	w, from := child.work, child.op.op.cfg.Direction
	if from != r.op.op.cfg.Direction {
		r.adoptCopied(from, w.Read+w.Written+w.Bytes)
		w.Read, w.Written, w.Bytes = 0, 0, 0
	}
	r.childWork.add(&w)
	if e := child.extra; e != nil && e.moved {
		for d, n := range e.copied {
			r.adoptCopied(Direction(d), n)
		}
	}
}

// adoptCopied adds bytes that chunks moved in a direction. Device memory traffic has no place on a copy.
func (r *record) adoptCopied(d Direction, n int64) {
	switch {
	case n == 0 || d == DirectionUnset:
	case d == r.op.op.cfg.Direction:
		r.childWork.Bytes += n
	default:
		if r.childCopied == nil {
			r.childCopied = &[directions]int64{}
		}
		r.childCopied[d] += n
	}
}

// sumUp gives a section around chunks the sum of their work, unless it states some of its own.
func (r *record) sumUp() {
	if r.work.stated() || r.extra != nil && r.extra.moved {
		return
	}
	r.work, r.summed = r.childWork, true
	if r.childCopied == nil {
		return
	}
	if r.extra == nil {
		r.extra = &extra{}
	}
	r.extra.copied, r.extra.moved = *r.childCopied, true
}

// flops is what a section computed: its own statement, else the sum of its children's.
func (r *record) flops() float64 {
	if r.work.FLOPs != 0 && !r.summed { // chunks are some of the children
		return r.work.FLOPs
	}
	return r.childFLOPs
}
