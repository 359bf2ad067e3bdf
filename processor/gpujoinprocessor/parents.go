// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"hash/maphash"

	"github.com/otelgpu/otelgpu/processor/gpujoinprocessor/internal/attribution"
)

// hosts are recent host spans, whose children on the GPU may arrive in other requests. All spans of
// a service pass, and few of them are ever searched, so a span is only appended to a ring; the ones
// that are new are indexed when a parent is searched. An index of each span when it arrives costs
// as much as reading the span, because its place is in no cache of the CPU.
type hosts struct {
	ring  []hostSpan
	next  int // where the next span is written
	fresh int // how many of the newest are not indexed
	seed  maphash.Seed
	lines []hostLine
}

// hostLine is a line of the CPU's cache: spans by their hashes, the newest first. Different spans of
// equal hashes are as unlikely as equal IDs.
type hostLine struct {
	keys    [hostWays]uint64
	parents [hostWays][8]byte
}

// maxHosts bounds the host spans that are remembered, with 48 bytes each.
const maxHosts, hostWays = 1 << 16, 4

// add remembers a host span.
func (h *hosts) add(s hostSpan) {
	if len(h.ring) < maxHosts {
		h.ring = append(h.ring, s)
	} else {
		h.ring[h.next%maxHosts] = s
	}
	h.next++
	h.fresh = min(h.fresh+1, maxHosts)
}

// line returns the line of a span and its hash.
func (h *hosts) line(k *attribution.Key) (*hostLine, uint64) {
	key := maphash.Comparable(h.seed, *k)
	return &h.lines[key%uint64(len(h.lines))], key
}

func (h *hosts) index() {
	if h.lines == nil {
		h.seed, h.lines = maphash.MakeSeed(), make([]hostLine, maxHosts/hostWays)
	}
	for ; h.fresh > 0; h.fresh-- {
		s := &h.ring[(h.next-h.fresh)%maxHosts]
		if l, key := h.line(&s.key); l.find(key) < 0 {
			copy(l.keys[1:], l.keys[:])
			copy(l.parents[1:], l.parents[:])
			l.keys[0], l.parents[0] = key, s.parent
		}
	}
}

func (l *hostLine) find(key uint64) int {
	for i, k := range l.keys {
		if k == key {
			return i
		}
	}
	return -1
}

// above returns the first of a span and its ancestors that is not a known host span.
func (h *hosts) above(k attribution.Key) [8]byte {
	if len(h.ring) == 0 {
		return k.Span
	}
	h.index()
	for range maxBridge {
		l, key := h.line(&k)
		i := l.find(key)
		if i < 0 || k.Span == ([8]byte{}) {
			break
		}
		k.Span = l.parents[i]
	}
	return k.Span
}

// follow remembers host spans, and moves what waits for them to their parents.
func (e *engine) follow(list []hostSpan) {
	for i := range list {
		e.hosts.add(list[i])
	}
	for _, b := range e.boards {
		if !b.dev.Awaiting() {
			continue
		}
		for i := range list {
			if k := list[i].key; b.dev.Awaits(k) {
				b.dev.Pass(k, e.hosts.above(k))
			}
		}
	}
}

// awaiting returns the physical GPUs where descendants of spans have arrived that have not arrived
// there themselves. The list is valid until the next call.
func (e *engine) awaiting() []*board {
	e.others = e.others[:0]
	if len(e.boards) < 2 {
		return nil
	}
	for _, b := range e.boards {
		if b.dev.Awaiting() {
			e.others = append(e.others, b)
		}
	}
	return e.others
}

// connect gives the parents of spans on one device what descendants of the spans have on others,
// whichever of them arrives first.
func (e *engine) connect(b *batch) {
	others := e.awaiting()
	if len(others) == 0 {
		return
	}
	for i, p := range b.joinable() {
		if b.shares[i].Parent == ([8]byte{}) {
			continue
		}
		for _, o := range others {
			if o != p.board {
				o.dev.Pass(b.spans[i].Key, b.shares[i].Parent)
			}
		}
	}
	for _, o := range others {
		o.dev.Adopt(func(k attribution.Key) (parent [8]byte, ok bool) {
			for _, of := range e.boards {
				if parent, ok = of.dev.Parent(k); ok {
					return parent, true
				}
			}
			return parent, false
		})
	}
}

// elsewhere returns what the descendants of a span have on the physical GPUs where the span itself
// is not, and the bound of its error.
func elsewhere(others []*board, own *board, g *gpuSpan) (value, bound float64) {
	for _, o := range others {
		if o == own {
			continue
		}
		if v := o.dev.OnOtherDevices(g.Key); v > 0 {
			value, bound = value+v, bound+o.boundOf(g.start+o.meter.shift, g.end+o.meter.shift, v)
		}
	}
	return value, bound
}
