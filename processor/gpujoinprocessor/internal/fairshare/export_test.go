// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package fairshare

// PlaceOf is the place that the arrival of a span gave.
func (d *Device) PlaceOf(k Key) (at Place, ok bool) {
	n := d.node(&k)
	if n == nil || !n.known {
		return Place{}, false
	}
	return Place{n.self}, true
}
