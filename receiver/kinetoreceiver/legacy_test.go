// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// PyTorch built without Kineto, as Debian's: no categories, and names of rows instead of processes.
func TestFilesOfPyTorchWithoutKineto(t *testing.T) {
	batches,
		st := convert(t,
		`[{"name": "aten::mm", "ph": "X", "ts": 10.5, "dur": 20.25, "tid": 1, "pid": "CPU functions", "args": {}},
		{"name": "aten::mm", "ph": "s", "ts": 10.5, "tid": 1, "pid": "CPU functions", "id": 0, "cat": "cpu_to_cuda", "args": {}},
		{"name": "my range", "ph": "X", "ts": 5, "dur": 40, "tid": 1, "pid": "CPU functions", "args": {}},
		{"name": "sgemm", "ph": "X", "ts": 15, "dur": 5, "tid": 2, "pid": "CUDA functions", "args": {}},
		{"name": "gemm", "ph": "X", "ts": 25, "dur": 6, "tid": 2, "pid": "XPU functions", "args": {}},
		{"name": "somebody else's", "ph": "X", "ts": 15, "dur": 5, "tid": 2, "pid": 7}]`, Options{Detail: DetailKernels})
	assert.Equal(t, map[string]int64{"event without a category": 1}, st.Skipped)
	assert.EqualValues(t, 2, st.Kernels)
	assert.Equal(t, int64(2), find(t, batches, "sgemm").Attributes().AsRaw()["gpu.device.ordinal"])
	assert.Equal(t, find(t, batches, "my range").SpanID(), find(t, batches, "aten::mm").ParentSpanID())
	assert.Equal(t, 20250, int(find(t, batches, "aten::mm").EndTimestamp()-find(t, batches, "aten::mm").StartTimestamp()))
}

func TestActivitiesOfMTIAAreKernels(t *testing.T) {
	batches,
		st := convert(t,
		`[{"ph":"X","cat":"mtia_runtime","name":"runFunction","pid":5,"tid":5,"ts":1,"dur":2,"args":{"correlation":9}},
		{"ph":"X","cat":"mtia_ccp_events","name":"FFU","pid":0,"tid":3,"ts":4,"dur":2,"args":{"device":0,"stream":3,"correlation":9}}]`, Options{Detail: DetailKernels})
	assert.EqualValues(t, 1, st.Kernels)
	assert.Empty(t, st.Skipped)
	assert.Equal(t, "kernel", find(t, batches, "FFU").Attributes().AsRaw()["gpu.operation.type"])
}
