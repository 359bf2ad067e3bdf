// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"go.opentelemetry.io/collector/pdata/ptrace"

	activities "github.com/otelgpu/otelgpu/internal/profiletrace/timeline"
	"github.com/otelgpu/otelgpu/semconv"
)

// call draws a call of the device runtime or driver on the row of its host thread: what launches work, and what waits.
func (p *Profile) call(s ptrace.Span) {
	m := s.Attributes()
	category, _ := m.Get(string(semconv.GPUOperationCategoryKey))
	thread, ok := m.Get(string(semconv.ThreadIDKey))
	if !ok || category.Str() != semconv.GPUOperationCategoryRuntime {
		return
	}
	class := launching
	if activities.WaitsForDevice(s.Name()) {
		class = waiting
	}
	p.timeline.add(rowKey{stream: thread.Int(), host: true}, int64(s.StartTimestamp()), int64(s.EndTimestamp()), class,
		s.Name())
}
