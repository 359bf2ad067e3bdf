// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package nsysreceiver

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/profiletrace"
	"github.com/otelgpu/otelgpu/internal/profiletrace/emit"
)

const nvtxAll = "CREATE TABLE NVTX_EVENTS (start INT, end INT, eventType INT, rangeId INT, category INT, color INT, text TEXT, globalTid INT, endGlobalTid INT, " +
	"textId INT, domainId INT, uint64Value INT, int64Value INT, doubleValue REAL, uint32Value INT, int32Value INT, floatValue REAL)"

// Rows of nsys 2022.4 for ranges of gpuspan/nvtx, with span ID e1a2… (above 2^63) and trace 0102….
func TestKernelsAreChildrenOfTheLiveSpanOfTheirRange(t *testing.T) {
	const live = "INSERT INTO NVTX_EVENTS (start, end, eventType, category, text, globalTid, endGlobalTid, domainId, uint64Value) VALUES "
	path := export(t, strings0, strings1, kernel0, runtime0, nvtxAll, session0, session1,
		live+"(0, NULL, 75, NULL, 'gpuspan', 67108865, NULL, 1, NULL), (1, NULL, 33, 2, 'attention', 67108865, NULL, 1, NULL), (1, NULL, 39, NULL, 'main', 67108865, NULL, 0, NULL)",
		live+"(90, NULL, 34, NULL, 'traceparent=00-0102030405060708090a0b0c0d0e0f10-e1a2a3a4a5a6a7a8-01', 67108865, NULL, 1, -2188006541399513176)",
		live+"(100, 500, 60, 2, 'decode', 67108865, NULL, 1, -2188006541399513176)",
		live+"(590, NULL, 34, NULL, 'traceparent=00-0102030405060708090a0b0c0d0e0f10-00000000000000b1-01 step=12', 67108865, NULL, 1, 177)",
		live+"(600, 900, 60, NULL, 'train', 67108865, 67108865, 1, 177)",
		// another request's range, which ended on another thread, does not include launches of this
		// thread
		live+"(150, 950, 60, NULL, 'elsewhere', 67108865, 67108866, 1, NULL)",
		live+"(160, 170, 59, NULL, 'b trace_id=0102030405060708090a0b0c0d0e0f10 span_id=00000000000000c1', 67108865, NULL, 1, NULL)",
		"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1000, 1500, 0, 7, 9, 67108864, 1, 2, 3, 4, 32, 1, 1, 40, 100, 28, 5, 6)",
		"INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (200, 210, 67108865, 9, 2)")
	spans, _, st := convert(t, path, Options{Detail: emit.LevelAnnotations})
	assert.Empty(t, st.Skipped, "names of domains, categories and threads are no marks")
	decode := spans["decode"]
	require.NotZero(t, decode.TraceID())
	assert.Equal(t, "0102030405060708090a0b0c0d0e0f10", decode.TraceID().String())
	assert.Equal(t, "e1a2a3a4a5a6a7a8", decode.ParentSpanID().String())
	a := decode.Attributes().AsRaw()
	assert.Equal(t, "attention", a["gpu.operation.category"])
	assert.Equal(t, "16258737532310038440", a["cuda.nvtx.payload"])
	assert.Equal(t, int64(1), a["gpu.summary.kernel.count"],
		"a range that began and ended on the launching thread owns the launch")
	step := spans["train"]
	assert.Equal(t, int64(12), step.Attributes().AsRaw()["gpu.step.index"])
	assert.Equal(t, "00000000000000b1", step.ParentSpanID().String())
	assert.NotContains(t, spans["elsewhere"].Attributes().AsRaw(), "gpu.summary.kernel.count")
	assert.Equal(t, "00000000000000c1", spans["b"].ParentSpanID().String(), "ids in the text")
}

// A long recording of a live program has a mark for each range; marks beyond the limit are counted.
func TestMarksAreBounded(t *testing.T) {
	c := collect{p: profiletrace.New(profiletrace.Options{}, profiletrace.Source{})}
	n := nvtx{marks: map[spanKey]markedSpan{}}
	for i := range uint64(maxMarks + 3) {
		span := fmt.Sprintf("%016x", i+1)
		c.mark(&n, 1, []string{"", "0102030405060708090a0b0c0d0e0f10", span, ""})
	}
	assert.Len(t, n.marks, maxMarks)
	assert.Equal(t, map[string]int64{"trace of a range, beyond the number that is remembered": 3}, c.p.Skipped)
}
