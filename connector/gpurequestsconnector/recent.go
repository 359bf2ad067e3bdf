// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpurequestsconnector

import "go.opentelemetry.io/collector/pdata/pcommon"

// seenSpan is what is remembered of a span.
type seenSpan struct {
	key
	parent     pcommon.SpanID
	start, end uint64 // unix ns
	seen       int64  // wall clock, unix ns
	model      string
	kind       kind
	entry      bool
	batch      bool
	counted    bool // GPU work without links that a request, or nobody, has by now

	queue, firstItem float64 // as the engine states them, s
}

// recent remembers the last spans, the oldest giving way. Spans of a request come in any order: its own one before
// the batches that gpu_join holds, or after them; a batch may come twice.
type recent struct {
	ring []seenSpan
	next int // the oldest, once the ring is full
	max  int
	at   map[key]int32
}

func newRecent(max int) *recent { return &recent{max: max, at: make(map[key]int32)} }

// find returns the span, or nil. The pointer is good until the next put.
func (r *recent) find(k key) *seenSpan {
	if i, ok := r.at[k]; ok {
		return &r.ring[i]
	}
	return nil
}

// put remembers a span that is not known yet.
func (r *recent) put(s *seenSpan) {
	i := r.next
	if len(r.ring) < r.max {
		i = len(r.ring)
		r.ring = append(r.ring, *s)
	} else {
		delete(r.at, r.ring[i].key)
		r.ring[i] = *s
		r.next = (i + 1) % r.max
	}
	r.at[s.key] = int32(i)
}
