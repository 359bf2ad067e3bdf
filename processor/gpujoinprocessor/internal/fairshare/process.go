// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package fairshare

// process is what one process has of the device.
type process struct {
	id    uint64
	inner [2]int // innermost active spans: timed on the device, timed on the host
	nodes int    // pending spans; at 0 the process is forgotten
	own   [2]sum // integral of dV / inner, of those on the host only while there are none on the device
	seen  sum    // V up to which own was advanced
}

// active says whether the process has an innermost active span.
func (p *process) active() bool { return p.inner[onDevice]+p.inner[onHost] > 0 }

// advance brings own up to V.
func (p *process) advance(v sum) {
	for timed, n := range p.inner {
		if n > 0 {
			p.own[timed].add(v.since(p.seen) / float64(n))
			break
		}
	}
	p.seen = v
}

// processes are those with pending spans. A node knows its own by number.
type processes struct {
	all   []process
	byID  map[uint64]int32
	spare []int32
}

// join adds a span to the process.
func (p *processes) join(id uint64) int32 {
	i, ok := p.byID[id]
	if !ok {
		if last := len(p.spare) - 1; last >= 0 {
			i, p.spare = p.spare[last], p.spare[:last]
		} else {
			i = int32(len(p.all))
			p.all = append(p.all, process{})
		}
		p.all[i] = process{id: id}
		p.byID[id] = i
	}
	p.all[i].nodes++
	return i
}

// leave takes a span away again.
func (p *processes) leave(i int32) {
	a := &p.all[i]
	if a.nodes--; a.nodes == 0 {
		delete(p.byID, a.id)
		p.spare = append(p.spare, i)
	}
}
