// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/semconv"
)

// maxLinks bounds the links of one section, 88 bytes each, which its slot keeps. Where there are more requests,
// gpu.batch.size and the shares count all of them.
const maxLinks = 1024

// link adds a request to a batch. Where there is no room, one that is sampled takes the place of one that is not.
func (e *extra) link(sc trace.SpanContext, items int64) {
	e.batch++
	e.items += items
	if len(e.links) < maxLinks {
		e.links = append(e.links, trace.Link{SpanContext: sc})
		e.shares = append(e.shares, items)
		return
	}
	i := slices.IndexFunc(e.links, func(l trace.Link) bool { return !l.SpanContext.IsSampled() })
	if i >= 0 && sc.IsSampled() {
		e.links[i], e.shares[i] = trace.Link{SpanContext: sc}, items
	}
}

// shareLinks puts on the links of a batch what each request had of it, in one array of attributes, and returns those
// that the span is to have: at most limit if that is not 0, those that are sampled first. items are those of the
// section. Equal parts go without saying, and shares follow from items, unless there may be requests without a link: as
// many as kept are known to stay.
func (e *extra) shareLinks(attrs []attribute.KeyValue, items int64, kept, limit int) []trace.Link {
	links := e.links
	if e.kept = len(links); limit > 0 {
		e.kept = min(e.kept, limit)
	}
	all := e.batch == e.kept
	if all && items == e.items && equalParts(e.shares) {
		return links
	}
	for i, n := range e.shares {
		if n == 0 {
			continue
		}
		from := len(attrs)
		attrs = append(attrs, semconv.GPUOperationItemsKey.Int64(n))
		if !all || len(links) > kept {
			attrs = append(attrs, semconv.GPUBatchShareKey.Float64(float64(n)/float64(e.items)))
		}
		links[i].Attributes = attrs[from:len(attrs):len(attrs)]
	}
	if e.kept < len(links) {
		slices.SortStableFunc(links, func(a, b trace.Link) int {
			return int(b.SpanContext.TraceFlags()&trace.FlagsSampled) - int(a.SpanContext.TraceFlags()&trace.FlagsSampled)
		})
	}
	return links[:e.kept]
}

func equalParts(shares []int64) bool {
	return !slices.ContainsFunc(shares, func(n int64) bool { return n != shares[0] })
}

// usualLinks is what an SDK keeps that is not told otherwise.
const usualLinks = 128

// checkLinks counts the links that a batch's span has not, and learns the SDK's limit: it throws away the first links
// where later ones come, each time by moving all others, and does not look which of them are sampled.
func (t *emitter) checkLinks(e *extra, span trace.Span) {
	given := e.kept
	if s, ok := span.(interface{ DroppedLinks() int }); ok {
		e.kept -= min(max(s.DroppedLinks(), 0), given)
	}
	if e.kept < given {
		t.linkLimit = max(e.kept, 1)
	} else {
		t.linksKept = max(t.linksKept, given)
	}
	lost := e.batch - e.kept
	if lost == 0 {
		return
	}
	t.p.lostLinks.Add(int64(lost))
	remedy := "gpuspan hands on at most 1,024"
	if t.linkLimit > 0 {
		remedy = "the tracer provider keeps as many; set OTEL_SPAN_LINK_COUNT_LIMIT or SpanLimits.LinkCountLimit to 1024"
	}
	t.p.errors.report("links", fmt.Errorf(
		"the span of a batch of %d requests links to %d of them, the others' accounts miss it (%s)",
		e.batch, e.kept, remedy))
}
