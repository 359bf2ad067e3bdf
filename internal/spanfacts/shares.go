// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package spanfacts

import (
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/otel/attribute"

	"github.com/otelgpu/otelgpu/semconv"
)

// LinkShare is one request of a batch.
type LinkShare struct {
	Key   Key     // of the linked span
	Items float64 // gpu.operation.items of the link; if no link states any: its share of the batch's items
	Share float64 // of the batch, 0 to 1
	Flags uint32  // of the link: W3C trace flags in the low byte, SpanFlags of OTLP above
	State string  // W3C trace state of the linked span
}

// Shares appends the share of each link of a batch to dst; links with a gpu.link.type do not refer
// to requests and have none. A link's own gpu.batch.share counts if stated; otherwise its items
// divided by the items of all links; equal shares if no link states either. Shares that sum to more
// than 1 are scaled down. The sum is below 1 if the batch had requests that it does not link to:
// gpu.batch.size is larger than the number of links, or the producer dropped links, which count as
// links with the mean number of items.
func Shares(s ptrace.Span, dst []LinkShare) []LinkShare {
	first := len(dst)
	var items, shares float64
	stated := false
	for _, l := range s.Links().All() {
		if !served(l) {
			continue
		}
		x := LinkShare{
			Key: Key{l.TraceID(), l.SpanID()}, Share: -1, Flags: l.Flags(), State: TraceState(l.TraceState()),
		}
		for k, v := range l.Attributes().All() {
			switch attribute.Key(k) {
			case semconv.GPUOperationItemsKey:
				x.Items = Positive(v)
			case semconv.GPUBatchShareKey:
				if n, ok := Number(v); ok && n >= 0 && n <= 1 {
					x.Share, stated = n, true
					shares += n
				}
			}
		}
		items += x.Items
		dst = append(dst, x)
	}
	links := dst[first:]
	if len(links) == 0 {
		return dst
	}
	whole := max(float64(len(links))+float64(s.DroppedLinksCount()), number(s, string(semconv.GPUBatchSizeKey)))
	equal := 1 / whole
	known := float64(len(links)) / whole
	// A batch that states more items than its links had requests without one; otherwise its size is
	// their number.
	all := number(s, string(semconv.GPUOperationItemsKey))
	if all <= items {
		all = items / known
	}
	for i := range links {
		switch l := &links[i]; {
		case stated:
			l.Share = max(l.Share, 0) / max(shares, 1)
		case items > 0:
			l.Share = l.Items / all
		default:
			l.Share = equal
		}
	}
	if items == 0 {
		items = number(s, string(semconv.GPUOperationItemsKey))
		for i := range links {
			links[i].Items = links[i].Share * items
		}
	}
	return dst
}

// Batch reports whether the span has links to requests that it served.
func Batch(s ptrace.Span) bool {
	for _, l := range s.Links().All() {
		if served(l) {
			return true
		}
	}
	return false
}

// served reports whether a link refers to a request: other links state a type.
func served(l ptrace.SpanLink) bool {
	_, elsewhere := l.Attributes().Get(string(semconv.GPULinkTypeKey))
	return !elsewhere
}

// inWindow reports whether a link refers to the capture window that found the span.
func inWindow(s ptrace.Span) bool {
	for _, l := range s.Links().All() {
		if v, ok := l.Attributes().Get(string(semconv.GPULinkTypeKey)); ok && v.Str() == semconv.GPULinkTypeWindow {
			return true
		}
	}
	return false
}

// number returns a positive number that the span states, otherwise 0.
func number(s ptrace.Span, name string) float64 {
	if v, ok := s.Attributes().Get(name); ok {
		return Positive(v)
	}
	return 0
}
