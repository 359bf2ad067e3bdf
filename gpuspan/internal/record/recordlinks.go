// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"slices"

	"go.opentelemetry.io/otel/trace"
)

// MaxLinks bounds the links of one section, 88 bytes each, which its slot keeps. Where there are more requests,
// gpu.batch.size and the shares count all of them.
const MaxLinks = 1024

// link adds a request to a batch. Where there is no room, one that is sampled takes the place of one that is not.
func (e *Extra) link(sc trace.SpanContext, items int64) {
	e.Batch++
	e.Items += items
	if len(e.Links) < MaxLinks {
		e.Links = append(e.Links, trace.Link{SpanContext: sc})
		e.Shares = append(e.Shares, items)
		return
	}
	i := slices.IndexFunc(e.Links, func(l trace.Link) bool { return !l.SpanContext.IsSampled() })
	if i >= 0 && sc.IsSampled() {
		e.Links[i], e.Shares[i] = trace.Link{SpanContext: sc}, items
	}
}
