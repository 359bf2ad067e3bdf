// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package spanfacts

import (
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/semconv"
)

// LinkShare is one request of a batch.
type LinkShare struct {
	Key   Key     // of the linked span
	Items float64 // gpu.operation.items of the link; 0: not stated
	Share float64 // of the batch, 0 to 1
}

// Shares appends what each link of a batch has of it to dst. A link's own gpu.batch.share counts where it is stated;
// else its items divided by the items of all links; equal parts where no link states either. The sum is below 1 where
// the batch had requests that it does not link to (gpu.batch.size is larger than the number of links).
func Shares(s ptrace.Span, dst []LinkShare) []LinkShare {
	first := len(dst)
	var items float64
	stated := false
	for _, l := range s.Links().All() {
		x := LinkShare{Key: Key{l.TraceID(), l.SpanID()}, Share: -1}
		for k, v := range l.Attributes().All() {
			switch k {
			case string(semconv.GPUOperationItemsKey):
				x.Items = Positive(v)
			case string(semconv.GPUBatchShareKey):
				if n, ok := Number(v); ok && n >= 0 && n <= 1 {
					x.Share, stated = n, true
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
	equal := 1 / max(float64(len(links)), batchSize(s))
	for i := range links {
		switch l := &links[i]; {
		case l.Share >= 0:
		case stated:
			l.Share = 0
		case items > 0:
			l.Share = l.Items / items
		default:
			l.Share = equal
		}
	}
	return dst
}

// batchSize is gpu.batch.size; 0 where it is not stated.
func batchSize(s ptrace.Span) float64 {
	if v, ok := s.Attributes().Get(string(semconv.GPUBatchSizeKey)); ok {
		return Positive(v)
	}
	return 0
}
