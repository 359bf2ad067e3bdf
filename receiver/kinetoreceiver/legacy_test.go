// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/semconv"
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
		{"name": "of another program", "ph": "X", "ts": 15, "dur": 5, "tid": 2, "pid": 7}]`, Options{Detail: DetailKernels})
	assert.Equal(t, map[string]int64{"event without a category": 1}, st.Skipped)
	assert.EqualValues(t, 2, st.Kernels)
	assert.Equal(t, int64(2), find(t, batches, "sgemm").Attributes().AsRaw()["gpu.device.ordinal"])
	assert.Equal(t, find(t, batches, "my range").SpanID(), find(t, batches, "aten::mm").ParentSpanID())
	assert.Equal(t, 20250, int(find(t, batches, "aten::mm").EndTimestamp()-find(t, batches, "aten::mm").StartTimestamp()))
}

func TestActivitiesOfMTIAAreKernelsAndCopies(t *testing.T) {
	batches,
		st := convert(t,
		`[{"ph":"X","cat":"mtia_runtime","name":"runFunction","pid":5,"tid":5,"ts":1,"dur":2,"args":{"correlation":9}},
		{"ph":"X","cat":"mtia_ccp_events","name":"FFU","pid":0,"tid":3,"ts":4,"dur":2,"args":{"device":0,"stream":3,"correlation":9}},
		{"ph":"X","cat":"mtia_ccp_events","name":"event_wait","pid":0,"tid":4,"ts":1,"dur":90,"args":{"stream":4,"wait_on_stream":3}},
		{"ph":"X","cat":"mtia_ccp_events","name":"event_record","pid":0,"tid":3,"ts":7,"dur":1,"args":{"stream":3}},
		{"ph":"X","cat":"mtia_ccp_events","name":"dma_request","pid":0,"tid":3,"ts":9,"dur":2,"args":{"stream":3,"direction":"DEVICE_TO_HOST","size":64}}]`, Options{Detail: DetailKernels})
	assert.EqualValues(t, 1, st.Kernels)
	assert.EqualValues(t, 1, st.Copies)
	require.Len(t, st.Devices, 1)
	assert.EqualValues(t, 7000, st.Devices[0].Window)
	dma := find(t, batches, "dma_request").Attributes().AsRaw()
	assert.Equal(t, "device_to_host", dma["gpu.copy.direction"])
	assert.Equal(t, int64(64), dma["gpu.io.size"])
	assert.Empty(t, st.Skipped)
	assert.Equal(t, "kernel", find(t, batches, "FFU").Attributes().AsRaw()["gpu.operation.type"])
}

// withoutKineto returns a run as PyTorch without Kineto writes it: ranges and kernels identified by
// row names, without runtime calls, frames, streams and launch correlations.
func (m *machine) withoutKineto() string {
	var list []string
	for _, text := range m.events {
		var e traced
		if json.Unmarshal([]byte(text), &e) != nil {
			panic(text)
		}
		row, tid := "CPU functions", whole(e.TID)
		switch strings.ToLower(e.Cat) {
		case "kernel", "gpu_memcpy", "memcpy", "gpu_memset", "memset":
			row, tid = "CUDA functions", whole(e.Args["device"])
		case "cpu_op", "operator", "user_annotation":
		default:
			continue
		}
		list = append(list, fmt.Sprintf(`{"name":%q,"ph":"X","ts":%s,"dur":%s,"tid":%d,"pid":%q,"args":{}}`,
			e.Name, e.Ts, e.Dur, tid, row))
	}
	return "[" + strings.Join(list, ",\n") + "]"
}

// Such a file has times but no causes, except for ranges that wait for data.
func TestSimulatedJobsWithoutKineto(t *testing.T) {
	all := everything()
	for n, name := range slices.Sorted(maps.Keys(all)) {
		if otherJob(n) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			p, s := all[name], styles()[n%2*5]
			m := newMachine(uint64(n), s)
			p.run(m, true)
			_, whole := convert(t, m.text(max(1, p.devices)), Options{Detail: DetailSteps})
			_, st := convert(t, m.withoutKineto(), Options{Detail: DetailSteps})
			require.Len(t, st.Devices, len(whole.Devices))
			for i, d := range st.Devices {
				checkReport(t, d)
				assert.Equal(t, whole.Devices[i].Window, d.Window)
				want := whole.Devices[i]
				assert.Equal(t, want.Parts, d.Parts)
				switch first, is := want.Findings[0].Kind, d.Findings[0]; {
				case is.Kind == semconv.GPUFindingKindUnexplainedIdle:
					assert.Equal(t, finding.Low, is.Certainty)
					assert.LessOrEqual(t, is.Gain, want.Parts.Idle)
				case first == semconv.GPUFindingKindLateRank || first == semconv.GPUFindingKindExpertImbalance: // needs groups or sizes
					assert.Equal(t, semconv.GPUFindingKindExposedCommunication, is.Kind)
				case nothingToGain(d): // other findings need launches or shapes
					assert.Zero(t, want.Parts.CopyExposed*20/want.Window, "%s", want.Findings[0])
					assert.Zero(t, want.Parts.Idle*20/want.Window, "%s", want.Findings[0])
				default:
					assert.Equal(t, first, is.Kind, "%s\n%s", want.Findings[0], is)
				}
			}
		})
	}
}
