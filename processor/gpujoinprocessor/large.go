// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"context"
	"math/bits"

	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.uber.org/zap"
)

// dropLarge removes spans that exceed MaxSpanSize from a request, and returns the request's size in
// bytes of OTLP and how many they are. An exporter that splits requests by bytes drops a span above
// its `max_size` together with all spans after it, of other clients too, because it merges requests
// before it splits them.
func (p *joinProcessor) dropLarge(td ptrace.Traces) (size int, dropped int64) {
	var m ptrace.ProtoMarshaler
	size, limit := m.TracesSize(td), p.cfg.MaxSpanSize
	if size <= limit {
		return size, 0
	}
	td.ResourceSpans().RemoveIf(func(rs ptrace.ResourceSpans) bool {
		// Each part of a split request repeats the resource and the scope.
		resource := m.ResourceSpansSize(rs)
		if resource <= limit {
			return false
		}
		for _, ss := range rs.ScopeSpans().All() {
			resource -= fieldSize(m.ScopeSpansSize(ss))
		}
		rs.ScopeSpans().RemoveIf(func(ss ptrace.ScopeSpans) bool {
			scope := m.ScopeSpansSize(ss)
			for _, s := range ss.Spans().All() {
				scope -= fieldSize(m.SpanSize(s))
			}
			ss.Spans().RemoveIf(func(s ptrace.Span) bool {
				if resource+fieldSize(scope+fieldSize(m.SpanSize(s))) <= limit {
					return false
				}
				dropped++
				return true
			})
			return ss.Spans().Len() == 0
		})
		return rs.ScopeSpans().Len() == 0
	})
	if dropped == 0 {
		return size, 0
	}
	return m.TracesSize(td), dropped
}

// droppedLarge counts the spans that dropLarge removed from an accepted request.
func (p *joinProcessor) droppedLarge(ctx context.Context, dropped int64) {
	if dropped == 0 {
		return
	}
	p.stats.tb.ProcessorGpuJoinBadSpans.Add(ctx, dropped, p.stats.tooLarge)
	p.large.Do(func() {
		p.logger.Warn("spans larger than `max_span_size` with their resource and scope are dropped; further ones are "+
			"counted, not logged", zap.Int("max_span_size", p.cfg.MaxSpanSize))
	})
}

// fieldSize returns the size of a message of n bytes with its tag and length.
func fieldSize(n int) int { return 1 + (bits.Len64(uint64(n)|1)+6)/7 + n }
