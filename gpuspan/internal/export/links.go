// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package export

import (
	"fmt"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan/internal/record"
	"github.com/otelgpu/otelgpu/semconv"
)

// shareLinks adds to the links of a batch what each request received of it, in one array of attributes, and returns the
// links of the span: at most limit if that is not 0, sampled ones first. items are the items of the section. Equal
// parts need no attribute, and shares follow from items, unless there may be requests without a link: then the number
// of links that stay is known as kept.
func shareLinks(e *record.Extra, attrs []attribute.KeyValue, items int64, kept, limit int) []trace.Link {
	links := e.Links
	if e.Kept = len(links); limit > 0 {
		e.Kept = min(e.Kept, limit)
	}
	all := e.Batch == e.Kept
	if all && items == e.Items && equalParts(e.Shares) {
		return links
	}
	for i, n := range e.Shares {
		if n == 0 {
			continue
		}
		from := len(attrs)
		attrs = append(attrs, semconv.GPUOperationItemsKey.Int64(n))
		if !all || len(links) > kept {
			attrs = append(attrs, semconv.GPUBatchShareKey.Float64(float64(n)/float64(e.Items)))
		}
		links[i].Attributes = attrs[from:len(attrs):len(attrs)]
	}
	if e.Kept < len(links) {
		slices.SortStableFunc(links, func(a, b trace.Link) int {
			return int(b.SpanContext.TraceFlags()&trace.FlagsSampled) - int(a.SpanContext.TraceFlags()&trace.FlagsSampled)
		})
	}
	return links[:e.Kept]
}

func equalParts(shares []int64) bool {
	return !slices.ContainsFunc(shares, func(n int64) bool { return n != shares[0] })
}

// usualLinks is the default link limit of SDKs.
const usualLinks = 128

// checkLinks counts the links that a batch's span lacks, and learns the SDK's limit: an SDK drops the first links when
// more are added, moves all others each time, and does not consider which of them are sampled.
func (t *spanMaker) checkLinks(e *record.Extra, span trace.Span) {
	given := e.Kept
	if s, ok := span.(interface{ DroppedLinks() int }); ok {
		e.Kept -= min(max(s.DroppedLinks(), 0), given)
	}
	if e.Kept < given {
		t.linkLimit = max(e.Kept, 1)
	} else {
		t.linksKept = max(t.linksKept, given)
	}
	lost := e.Batch - e.Kept
	if lost == 0 {
		return
	}
	t.p.LostLinks.Add(int64(lost))
	remedy := "gpuspan keeps at most 1,024"
	if t.linkLimit > 0 {
		remedy = "the tracer provider keeps as many; set OTEL_SPAN_LINK_COUNT_LIMIT or SpanLimits.LinkCountLimit to 1024"
	}
	t.p.Errors.Report("links", fmt.Errorf(
		"the span of a batch of %d requests links to %d of them, usage records of the others lack it (%s)",
		e.Batch, e.Kept, remedy))
}
