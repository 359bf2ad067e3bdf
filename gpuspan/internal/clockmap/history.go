// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package clockmap

// maxPast bounds the history of a map.
const maxPast = 256

// history is a thinned-out record of the anchors before the window, for sections that began there: the longer it gets
// the further its points are apart.
type history struct {
	points []point
	apart  float64 // GPU ns between two points, at least
}

func (h *history) add(p point) {
	if n := len(h.points); n > 0 && p.gpu-h.points[n-1].gpu < h.apart {
		return
	}
	h.points = append(h.points, p)
	if len(h.points) < maxPast {
		return
	}
	h.apart = 2 * max(h.apart, (p.gpu-h.points[0].gpu)/maxPast)
	kept := h.points[:0]
	for i := 0; i < len(h.points); i += 2 {
		kept = append(kept, h.points[i])
	}
	h.points = kept
}

func (h *history) clear() { h.points, h.apart = h.points[:0], 0 }
