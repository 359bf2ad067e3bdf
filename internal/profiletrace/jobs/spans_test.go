// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/otel/attribute"

	"github.com/otelgpu/otelgpu/internal/intervals"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/semconv"
)

// Add adds the spans of a file. Tests write jobs as spans, because they can read and change
// recorded ones, too.
func (p *Profiles) Add(file string, td ptrace.Traces) {
	for _, rs := range td.ResourceSpans().All() {
		var r spanfacts.Resource
		r.Load(rs.Resource().Attributes())
		if r.Rank < 0 {
			p.unranked = file
		}
		if r.Rank < 0 || r.WorldSize == 1 {
			continue
		}
		x := p.profile(file, r.JobID, r.Rank, r.WorldSize)
		if x == nil {
			continue
		}
		for _, ss := range rs.ScopeSpans().All() {
			for _, s := range ss.Spans().All() {
				x.add(s)
			}
		}
	}
}

func (x *profile) add(s ptrace.Span) {
	at := intervals.Unix(uint64(s.StartTimestamp()), uint64(s.EndTimestamp()))
	var f spanfacts.Facts
	gpu := f.Load(s, nil)
	switch f.Kind {
	case spanfacts.Step:
		x.step(int64(x.steps)+1, int64(s.StartTimestamp()), f.StepTime(), f.StepExposed)
	case spanfacts.Collective:
		x.communicate(messageOf(s.Attributes(), f.Name), at)
	case spanfacts.Kernel, spanfacts.Graph:
		x.kernel(f.Name, at)
	case spanfacts.Copy, spanfacts.Memset:
		x.move(at)
	}
	if thread, ok := s.Attributes().Get(string(semconv.ThreadIDKey)); ok && !gpu {
		x.hostRange(hostRange{at, thread.Int(), s.Name()})
	}
}

func messageOf(m pcommon.Map, kernel string) *message {
	text := func(key attribute.Key) string {
		v, _ := m.Get(string(key))
		return v.Str()
	}
	number := func(key attribute.Key) (int64, bool) {
		v, ok := m.Get(string(key))
		return v.Int(), ok
	}
	out := &message{
		kernel: kernel, operation: text(semconv.GPUCollectiveNameKey), group: text(semconv.GPUCollectiveGroupIDKey),
		label: text(semconv.GPUCollectiveGroupNameKey), elementType: text(semconv.GPUCollectiveElementTypeKey),
	}
	out.bytes, _ = number(semconv.GPUIOSizeKey)
	out.ranks, _ = number(semconv.GPUCollectiveGroupSizeKey)
	out.peer, out.hasPeer = number(semconv.GPUCollectivePeerRankKey)
	out.sequence, out.hasSequence = number(semconv.GPUCollectiveSequenceKey)
	return out
}
