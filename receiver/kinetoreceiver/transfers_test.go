// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/recorded"
	"github.com/otelgpu/otelgpu/semconv"
)

// The numbers are a Python program's, of the arguments and lengths of the recorded kernels.
func TestBandwidthOfRecordedCollectives(t *testing.T) {
	type row struct {
		collective, id, element string
		bytes, count            int64
		time, shortest          int64 // ns
		rate, bus               float64
	}
	for path, want := range map[string][]row{
		"hta/nccl_parser_config/nccl_data.json.gz": {
			{"all_reduce", "0 [0, 1]", "Float", 8196000, 3, 11820962, 2520607, 3.25159773e9, 3.25159773e9},
			{"all_reduce", "0 [0, 1]", "Float", 31502336, 3, 11081355, 2424415, 12.9937886e9, 12.9937886e9},
			{"all_reduce", "0 [0, 1]", "Float", 26255360, 3, 10797936, 2368513, 11.0851661e9, 11.0851661e9},
			{"all_reduce", "0 [0, 1]", "Float", 26550272, 3, 7214656, 2160803, 12.2872247e9, 12.2872247e9},
			{"all_reduce", "0 [0, 1]", "Float", 9724160, 3, 5847250, 1689577, 5.75538138e9, 5.75538138e9},
			{"broadcast", "0 [0, 1]", "Float", 212480, 3, 91007, 29184, 7.28070175e9, 7.28070175e9},
			{"broadcast", "0 [0, 1]", "Long", 424, 3, 23327, 7648, 0.0554393305e9, 0.0554393305e9},
		},
		"tracelens/b200/eager_trace.json.gz": {
			{
				"all_gather", "3 [0, 1, 2, 3, 4, 5, 6, 7]", "BFloat16", 402176, 1, 21953, 21953,
				18.3198652e9, 16.0298820e9,
			},
		},
	} {
		st, err := ReadFile(t.Context(), recorded.Path(t, "kineto", path), Options{},
			func(context.Context, ptrace.Traces) error { return nil })
		require.NoError(t, err)
		list := st.Devices[0].Transfers
		require.Len(t, list, len(want))
		for i, w := range want {
			x := list[i]
			assert.Equal(t, w.collective, x.Collective)
			assert.Equal(t, w.id, x.ID)
			assert.Equal(t, w.element, x.ElementType)
			assert.Equal(t, w.bytes, x.Bytes)
			assert.Equal(t, w.count, x.Count)
			assert.InDelta(t, w.time, x.Time.Nanoseconds(), 2)
			assert.InDelta(t, w.shortest, x.Shortest.Nanoseconds(), 1)
			assert.InEpsilon(t, w.rate, x.Rate, 1e-6)
			assert.InEpsilon(t, w.bus, x.BusRate, 1e-6)
			assert.Equal(t, "NVLink", x.Link)
		}
	}
}

// A profile may state one rank of a message or both.
func TestThePeerOfAMessage(t *testing.T) {
	for _, c := range []struct {
		args string
		want int64
	}{
		{`"Collective name": "send", "Dst Rank": 3`, 3},
		{`"Collective name": "recv", "Src Rank": 2`, 2},
		{`"Collective name": "send", "Src Rank": 2, "Dst Rank": 3`, 3},
		{`"Collective name": "recv", "Src Rank": 2, "Dst Rank": 3`, 2},
		{`"Dst Rank": 3, "Src Rank": 2, "Collective name": "recv"`, 2},
	} {
		batches, _ := convert(t, `{"schemaVersion": 1, "traceEvents": [{"ph": "X", "cat": "kernel",
			"name": "ncclDevKernel_SendRecv", "pid": 0, "tid": 7, "ts": 1, "dur": 2,
			"args": {"device": 0, "stream": 7, `+c.args+`}}]}`, Options{Detail: DetailKernels})
		var peers []int64
		for _, b := range batches {
			for _, rs := range b.ResourceSpans().All() {
				for _, ss := range rs.ScopeSpans().All() {
					for _, s := range ss.Spans().All() {
						if v, ok := s.Attributes().Get(string(semconv.GPUCollectivePeerRankKey)); ok {
							peers = append(peers, v.Int())
						}
					}
				}
			}
		}
		assert.Equal(t, []int64{c.want}, peers, c.args)
	}
}
