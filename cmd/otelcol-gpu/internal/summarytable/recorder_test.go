// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package summarytable

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/profiletrace"
	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
	"github.com/otelgpu/otelgpu/internal/profiletrace/link"
)

// The V100 has 900 GB/s of device memory, 15.75 GB/s of PCIe 3, and 15.7 TFLOP/s in fp32.
func TestActivitiesOfAProfileAreRows(t *testing.T) {
	var seen *Recorder
	p := profiletrace.New(profiletrace.Options{
		Device: "Tesla V100-SXM2-16GB",
		Observe: func(in *link.Input) link.Observer {
			seen = NewRecorder(in)
			return seen
		},
	}, profiletrace.Source{Service: "test"})
	defer p.Close()
	p.Meta.Base, p.Meta.TimingSource = 1e18, "cupti"
	add := func(name string, e event.Event) {
		e.Name, e.Process = p.Names.ID(name), 1
		require.NoError(t, p.Add(&e))
	}
	launch := func(at, number int64) {
		add("cudaLaunchKernel", event.Event{Kind: event.KindRuntime, Start: at, Duration: 10, Correlation: number})
	}
	for i := range int64(2) {
		at := 1_000_000 * i
		add("train#"+string(rune('1'+i)), event.Event{Kind: event.KindStep, Start: at, Duration: 1_000_000})
		work := event.Detail{FLOPs: 1.57e9, Traffic: 4.5e6, Precision: "fp32"}
		add("aten::mm", event.Event{Kind: event.KindOperator, Start: at + 10, Duration: 100, Detail: work})
		launch(at+20, 10*i+1)
		add("void gemm<float>(int)", event.Event{
			Kind: event.KindKernel, Start: at + 1000, Duration: 200_000, Stream: 7, Correlation: 10*i + 1,
		})
	}
	// Of an operator with two kernels, it is not known what each does.
	add("aten::mm", event.Event{
		Kind: event.KindOperator, Start: 300_000, Duration: 100, Detail: event.Detail{FLOPs: 1e9, Precision: "fp32"},
	})
	for i, name := range []string{"void gemm<double>(int)", "reduce"} {
		launch(300_010+20*int64(i), 31+int64(i))
		add(name, event.Event{
			Kind: event.KindKernel, Start: 400_000 + 60_000*int64(i), Duration: 50_000, Stream: 7, Correlation: 31 + int64(i),
		})
	}
	add("Memcpy HtoD", event.Event{
		Kind: event.KindCopy, Start: 600_000, Duration: 100_000, Stream: 7,
		Detail: event.Detail{Bytes: 400_000, HasBytes: true, Direction: "host_to_device", HostMemory: "pageable"},
	})
	add("Memset (Device)", event.Event{
		Kind: event.KindMemset, Start: 700_000, Duration: 1000, Stream: 7, Detail: event.Detail{Bytes: 450_000, HasBytes: true},
	})
	add("ncclDevKernel_AllReduce_Sum_f32_RING_LL(int)", event.Event{
		Kind: event.KindKernel, Start: 800_000, Duration: 99_000, Stream: 8,
		Detail: event.Detail{Collective: "all_reduce", InElements: 25_000, OutElements: 25_000, ElementType: "float32"},
	})
	_, err := p.Emit(t.Context(), func(context.Context, ptrace.Traces) error { return nil })
	require.NoError(t, err)
	table := New()
	table.Recorded(seen)
	var b strings.Builder
	require.NoError(t, table.Render(&b, Format{}))
	assert.Regexp(t, `(?m)^gemm +kernel +3 +450\.00 µs +64\.3% +22\.5 +7\.85 +50\.0  compute`, b.String())
	assert.Regexp(t, `(?m)^reduce +kernel +1 +50\.00 µs +7\.1% +- +- +-  -`, b.String())
	assert.Regexp(t, `(?m)^Memcpy HtoD +copy +1 +100\.00 µs +14\.3% +4\.0 +- +25\.4  - .*pageable$`, b.String())
	assert.Regexp(t, `(?m)^Memset \(Device\) +memset +1 +1\.00 µs +0\.1% +450\.0 +- +50\.0  memory`, b.String())
	assert.Regexp(t, `(?m)^ncclDevKernel_AllReduce_Sum_f32_RING_LL +collective +1 +99\.00 µs +14\.1% +1\.0 +-`, b.String())
	assert.Regexp(t, `(?m)^train +2 +1\.000 ms `, b.String())
}
