// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetricsconnector

// bundle are the streams that spans of the same dimensions feed; nil until the first span that has a value.
type bundle struct {
	key                                                   dims // zero where it is not kept
	count, duration, io, flops, items, energy, itemEnergy *stream
}

// bundles finds the bundle of a span. A span's dimensions are nine strings, which the map hashes whole; the table in front
// of it only compares them, at a place that a few of their letters give, for a service has few operations and many spans.
type bundles struct {
	byDims map[dims]*bundle
	table  [64]*bundle
}

func newBundles() bundles { return bundles{byDims: make(map[dims]*bundle)} }

func (x *bundles) len() int { return len(x.byDims) }

// find returns the bundle of these dimensions, or nil.
func (x *bundles) find(d *dims) *bundle {
	at := &x.table[d.place()%uint32(len(x.table))]
	if b := *at; b != nil && b.key == *d {
		return b
	}
	b := x.byDims[*d]
	if b != nil {
		*at = b
	}
	return b
}

// keep makes a bundle to be found; its key must own its strings.
func (x *bundles) keep(b *bundle) { x.byDims[b.key] = b }

func (x *bundles) clear() {
	clear(x.byDims)
	clear(x.table[:])
}

// place is a number that differs for most operations, devices and sizes of a service.
func (d *dims) place() uint32 {
	h := uint32(len(d.name))
	for _, s := range [...]string{d.name, d.kind, d.category, d.id} {
		if n := len(s); n > 0 {
			h = h*31 + uint32(s[n-1]) + uint32(s[n/2])<<4
		}
	}
	return h ^ h>>8
}
