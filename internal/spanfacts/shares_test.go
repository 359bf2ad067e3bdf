// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package spanfacts_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/spanfacts"
)

// An iteration of eight requests, only one of which is linked: its share is an eighth.
func TestRequestsWithoutALinkKeepTheirShares(t *testing.T) {
	for name, tt := range map[string]struct {
		batch map[string]int64
		items int64 // of the one link
		want  float64
	}{
		"the batch states its items":      {map[string]int64{"gpu.operation.items": 8}, 1, 0.125},
		"the batch states its size":       {map[string]int64{"gpu.batch.size": 8}, 1, 0.125},
		"both":                            {map[string]int64{"gpu.operation.items": 8, "gpu.batch.size": 8}, 1, 0.125},
		"a prompt longer than the others": {map[string]int64{"gpu.operation.items": 800, "gpu.batch.size": 8}, 400, 0.5},
		"neither":                         {nil, 1, 1},
		"fewer items than its link":       {map[string]int64{"gpu.operation.items": 1}, 4, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := ptrace.NewSpan()
			for k, v := range tt.batch {
				s.Attributes().PutInt(k, v)
			}
			l := s.Links().AppendEmpty()
			l.SetSpanID(pcommon.SpanID{1})
			l.Attributes().PutInt("gpu.operation.items", tt.items)
			got := spanfacts.Shares(s, nil)
			assert.Len(t, got, 1)
			assert.InEpsilon(t, tt.want, got[0].Share, 1e-12)
		})
	}
}
