// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package attribution

// HandleOf returns the handle that the arrival of a span returned.
func (d *Device) HandleOf(k Key) (at Handle, ok bool) {
	n := d.node(&k)
	if n == nil || !n.known {
		return Handle{}, false
	}
	return Handle{n.self}, true
}

// Pending returns the number of spans that have not ended yet in settled time.
func (d *Device) Pending() int {
	n := 0
	for i := range d.procs.all {
		n += d.procs.all[i].nodes
	}
	return n
}
