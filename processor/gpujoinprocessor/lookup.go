// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import "github.com/otelgpu/otelgpu/extension/gpusamplesextension"

// outcome is where a GPU span's device was found.
type outcome uint8

const (
	found outcome = iota
	unknownDevice
	noIdentity
	outcomes
)

var outcomeNames = [outcomes]string{"", "unknown_device", "no_identity"}

// lookup finds the devices of the spans of a batch. It remembers the last few, for a request has few devices and many
// spans.
type lookup struct {
	e    *engine
	view gpusamplesextension.View
	memo [8]place
	n    int // places found so far

	place *place // of the last span
}

// place is a device as spans name it, and where it was found.
type place struct {
	res     *resourceInfo
	hwID    string
	bdf     string
	ordinal int64

	dev     gpusamplesextension.DeviceView
	board   *board
	outcome outcome
}

func (l *lookup) find(g *gpuSpan) outcome {
	for i := range min(l.n, len(l.memo)) {
		if p := &l.memo[i]; p.res == g.res && p.hwID == g.hwID && p.bdf == g.bdf && p.ordinal == g.ordinal {
			l.place = p
			return p.outcome
		}
	}
	p := &l.memo[l.n%len(l.memo)]
	l.n++
	*p = place{res: g.res, hwID: g.hwID, bdf: g.bdf, ordinal: g.ordinal}
	l.place = p
	if p.dev, p.outcome = l.search(g); p.outcome == found {
		p.board = l.e.boardOf(p.dev)
	}
	return p.outcome
}

// search matches by hw.id, then by host and PCI address, then by the configured map of ordinals.
func (l *lookup) search(g *gpuSpan) (gpusamplesextension.DeviceView, outcome) {
	if g.hwID != "" {
		if dev, ok := l.view.Lookup(g.hwID); ok {
			return dev, found
		}
	}
	if g.bdf != "" {
		for _, host := range [...]string{g.res.hostID, g.res.hostName} {
			if host != "" {
				if dev, ok := l.view.LookupPCI(host, g.bdf); ok {
					return dev, found
				}
			}
		}
	}
	if g.hwID != "" || g.bdf != "" { // a device of another host must not become ours by its number
		return gpusamplesextension.DeviceView{}, unknownDevice
	}
	id, mapped := l.e.ordinals[g.ordinal]
	if !mapped {
		return gpusamplesextension.DeviceView{}, noIdentity
	}
	if dev, ok := l.view.Lookup(id); ok {
		return dev, found
	}
	return gpusamplesextension.DeviceView{}, unknownDevice
}
