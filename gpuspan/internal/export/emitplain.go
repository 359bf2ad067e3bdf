// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package export

import (
	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan/internal/record"
)

// plain ends the span of a plain section. All share one record.
func (t *Exporter) plain(s *record.Stream, q *record.Stamped) {
	r := &t.one
	r.Times, r.Ctx, r.Op, r.Work, r.HostStart, r.HostEnd = q.Times, q.Ctx, q.Op, q.Work, q.HostStart, q.HostEnd
	r.Occurrence, r.Device, r.Timed = q.Occurrence, s.Device, true
	r.GPU = float64(q.EndNs - q.StartNs)
	q.Ctx, q.Op = nil, nil
	t.emit(r, s, trace.SpanContext{}, 0)
	if r.Op.Op.Cfg.Print != nil {
		t.print(&r.Op.Op.Cfg)
	}
	r.Ctx = nil
}
