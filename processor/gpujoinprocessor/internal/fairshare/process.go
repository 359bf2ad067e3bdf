// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package fairshare

// process is what one process has of the device.
type process struct {
	id    uint64
	inner int // innermost active spans
	nodes int // pending spans; at 0 the process is forgotten
	own   sum // integral of dV / inner
	seen  sum // V up to which own was advanced
}

// advance brings own up to V.
func (p *process) advance(v sum) {
	if p.inner > 0 {
		p.own.add(v.since(p.seen) / float64(p.inner))
	}
	p.seen = v
}
