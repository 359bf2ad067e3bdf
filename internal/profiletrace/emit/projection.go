// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package emit

import (
	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/otelgpu/otelgpu/internal/intervals"
	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
	"github.com/otelgpu/otelgpu/internal/profiletrace/link"
	"github.com/otelgpu/otelgpu/semconv"
)

// A host range lasts as long as its launches do. At LevelAuto its work on the device is shown
// beside it: a section from the first start to the last end of what was launched within, one for
// each device, as NVIDIA's tools project NVTX ranges onto the GPU. Sections nest as their ranges
// do, and the activities with spans are children of the innermost.

// projection is the work of a range on one device.
type projection struct {
	device int64
	at     intervals.Ordered // busy time, and extent
}

// projects reports whether ranges of the kind are shown on the device, too.
func (l Level) projects(k event.Kind) bool {
	return l == LevelAuto && (k == event.KindAnnotation || k == event.KindModule || k == event.KindOperator)
}

// maxProjected bounds the ranges around a launch that take it, so that files with thousands of
// nested ranges cost no more than others.
const maxProjected = 256

// project adds an activity to the ranges around its launch.
func (w *Writer) project(a *link.Activity, above *node) {
	if w.p.Detail != LevelAuto {
		return
	}
	for n, depth := above, 0; n != nil && depth < maxProjected; n, depth = kept(n.Parent), depth+1 {
		if n.Released() || !w.p.Detail.projects(n.Kind) {
			continue
		}
		i := 0
		for i < len(n.projected) && n.projected[i].device != a.Device {
			i++
		}
		if i == len(n.projected) {
			n.projected = append(n.projected, projection{device: a.Device})
		}
		n.projected[i].at.Add(a.Start, a.End)
	}
}

// onDevice returns the span of the section above what the node launched on a device: its own,
// otherwise the span of the next range around it; ok is false if there is none.
func (s *spans) onDevice(n *node, device int64) (id pcommon.SpanID, ok bool) {
	if s.p.Detail != LevelAuto {
		return id, false
	}
	trace := n.self.trace
	for depth := 0; n != nil && depth < maxProjected; n, depth = kept(n.Parent), depth+1 {
		if s.p.Detail.projects(n.Kind) && n.self.trace == trace {
			return s.p.ids.span(idProjection, int64(n.seq)|device<<32), true
		}
	}
	return id, false
}

// sections writes the projections of a range.
func (s *spans) sections(n *node, name, category string) {
	for _, x := range n.projected {
		id, _ := s.onDevice(n, x.device)
		parent := n.self.span
		if above := kept(n.Parent); above != nil && above.self.trace == n.self.trace {
			if up, ok := s.onDevice(above, x.device); ok {
				parent = up
			}
		}
		sp := s.on(x.device, n.process, spanRef{n.self.trace, id}, parent, x.at.Start, x.at.End)
		sp.SetName(name)
		spanLink{n.self, semconv.GPULinkTypeRange}.add(sp)
		m := sp.Attributes()
		m.EnsureCapacity(8)
		m.PutStr(string(semconv.GPUOperationTypeKey), semconv.GPUOperationTypeSection)
		putText(m, semconv.GPUOperationCategoryKey, category)
		s.names(m, x.device)
		putSeconds(m, semconv.GPUDurationKey, x.at.Extent())
		putSeconds(m, semconv.GPUOperationBusyDurationKey, x.at.Length)
	}
	n.projected = nil
}
