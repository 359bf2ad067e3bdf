// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"slices"
	"sort"
)

// Piece is what a thread of the host did for some time, by its innermost range.
type Piece struct {
	Start, End int64
	Class      Range
	Name       uint32 // of the range; 0: none
	In         uint32 // named range around it, or, with InnerName, within it
}

// Vague reports whether the piece explains little: the thread was in no range, or in one that may
// wait for another thread.
func (p *Piece) Vague() bool { return p.Class.weight() < RangeOperator }

// History keeps what one thread did for longer than its Log does, until it is forgotten.
type History struct {
	// Merged is how many pieces were merged with a neighbor, because there were too many.
	Merged int64

	pieces []Piece
	log    *Log
	next   int // length of pieces at which neighbors are merged
}

// maxPieces is how many pieces a history keeps before it merges neighbors.
const maxPieces = 1 << 15

// Remember makes the log keep a history from now on.
func (l *Log) Remember() *History {
	l.history = &History{log: l, next: maxPieces}
	return l.history
}

// Len returns how many pieces are kept.
func (h *History) Len() int { return len(h.pieces) }

func (h *History) add(from, to int64, d hostState) {
	if n := len(h.pieces); n > 0 {
		p := &h.pieces[n-1]
		if p.End == from && p.Class == d.class && p.Name == d.name && p.In == d.in {
			p.End = to
			return
		}
		if n >= h.next {
			h.merge()
		}
	}
	h.pieces = append(h.pieces, Piece{from, to, d.class, d.name, d.in})
}

// merge merges each two neighboring pieces, under the name of the longer one. Waits stay.
func (h *History) merge() {
	keep := h.pieces[:0]
	for i := 0; i < len(h.pieces); i++ {
		p := h.pieces[i]
		if i+1 < len(h.pieces) && p.Class != CallWait {
			if n := h.pieces[i+1]; n.Start == p.End && n.Class != CallWait {
				start := p.Start
				if n.End-n.Start > p.End-p.Start {
					p = n
				}
				p.Start, p.End = start, n.End
				h.Merged++
				i++
			}
		}
		keep = append(keep, p)
	}
	h.pieces = keep
	h.next = max(maxPieces, len(keep)+maxPieces/2)
}

// Until returns the pieces up to a time before which all ranges have been added, by start and
// without overlap; between them the thread was in no range. The list is valid until the next range
// is added.
func (h *History) Until(t int64) []Piece {
	n := len(h.pieces)
	list := h.pieces
	for _, p := range h.log.over(nil, h.log.cursor, t) {
		if p.class != RangeNone {
			list = append(list, Piece{p.start, p.end, p.class, p.name, p.in})
		}
	}
	h.pieces = list[:n]
	return list
}

// Forget drops the pieces that end before a time.
func (h *History) Forget(before int64) {
	n := sort.Search(len(h.pieces), func(i int) bool { return h.pieces[i].End > before })
	h.pieces = rest(h.pieces, n)
	h.next = max(maxPieces, len(h.pieces)+maxPieces/2)
}

// rest returns what follows the first n elements, in the memory of the list unless that is far too
// large: of hundreds of threads, few do something at a time.
func rest[T any](list []T, n int) []T {
	if kept := list[n:]; cap(list) > 1024+4*len(kept) {
		return slices.Clone(kept)
	}
	return append(list[:0], list[n:]...)
}
