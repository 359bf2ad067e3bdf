// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

func convert(t testing.TB, text string, o Options) ([]ptrace.Traces, Stats) {
	var batches []ptrace.Traces
	st, err := Read(t.Context(), strings.NewReader(text), o, func(_ context.Context, td ptrace.Traces) error {
		batches = append(batches, td)
		return nil
	})
	require.NoError(t, err)
	return batches, st
}

func find(t testing.TB, batches []ptrace.Traces, name string) ptrace.Span {
	var names []string
	for _, s := range spansOf(batches) {
		if s.Name() == name {
			return s
		}
		names = append(names, s.Name())
	}
	require.Fail(t, "no span", "%q among %q", name, names)
	return ptrace.Span{}
}

// scopeOf returns the scope attributes of the first span with the name.
func scopeOf(t testing.TB, batches []ptrace.Traces, name string) map[string]any {
	for _, td := range batches {
		for _, rs := range td.ResourceSpans().All() {
			for _, ss := range rs.ScopeSpans().All() {
				for _, s := range ss.Spans().All() {
					if s.Name() == name {
						return ss.Scope().Attributes().AsRaw()
					}
				}
			}
		}
	}
	require.Fail(t, "no span", name)
	return nil
}

// step returns a step with one operator, its launch, and the kernel on a stream.
func step(n, at int64) string {
	return fmt.Sprintf(`{"ph":"X","cat":"user_annotation","name":"ProfilerStep#%d","pid":9,"tid":9,"ts":%d,"dur":1000},`+
		`{"ph":"X","cat":"cpu_op","name":"aten::mm","pid":9,"tid":9,"ts":%d,"dur":100},`+
		`{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":9,"tid":9,"ts":%d.5,"dur":10,"args":{"correlation":%d}},`+
		`{"ph":"X","cat":"kernel","name":"void ns::gemm<float>(int)","pid":0,"tid":7,"ts":%d,"dur":300,"args":{"device":0,"stream":7,"correlation":%d}}`,
		n, at, at+10, at+20, n, at+50, n)
}

func TestTimesAreExactInAllTheirForms(t *testing.T) {
	for _, c := range []struct {
		ts, dur    string
		start, end int64
	}{
		{"1712195495505583.2", "41.768", 1712195495505583200, 1712195495505624968},
		{"1661938466240491", "7", 1661938466240491000, 1661938466240498000},
		{`"1661938466240491.123"`, `"0.001"`, 1661938466240491123, 1661938466240491124},
		{"1.661938466240491e+15", "5e-1", 1661938466240491000, 1661938466240491500},
		{"1661938466240491.0004", "0.0005", 1661938466240491000, 1661938466240491000},
		{"1661938466240491.00050000000000000001", "0.0015", 1661938466240491001, 1661938466240491003},
		{"9223372036854775", "0", 9223372036854775000, 9223372036854775000},
	} {
		b, st := convert(t, `[{"ph":"X","cat":"user_annotation","name":"a","pid":1,"tid":1,"ts":`+c.ts+`,"dur":`+c.dur+`}]`,
			Options{})
		if c.start > 1<<62 {
			assert.Equal(t, map[string]int64{"time out of range": 1}, st.Skipped, c.ts)
			continue
		}
		s := find(t, b, "a")
		assert.Equal(t, c.start, int64(s.StartTimestamp()), c.ts)
		assert.Equal(t, c.end, int64(s.EndTimestamp()), c.dur)
	}
}

func TestParentIsTheNearestLauncherWithASpan(t *testing.T) {
	text := "[" + step(1, 1000) + "]"
	for detail, want := range map[Detail][]string{
		DetailKernels:   {"gemm", "cudaLaunchKernel", "aten::mm", "ProfilerStep#1"},
		DetailOperators: {"aten::mm", "ProfilerStep#1"},
		DetailSteps:     {"ProfilerStep#1", "pytorch profile"},
	} {
		b, _ := convert(t, text, Options{Detail: detail})
		s := find(t, b, want[0])
		for _, name := range want[1:] {
			up := find(t, b, name)
			assert.Equal(t, up.SpanID(), s.ParentSpanID(), "%v: parent of %q", detail, s.Name())
			assert.Equal(t, up.TraceID(), s.TraceID())
			s = up
		}
		assert.True(t, s.ParentSpanID().IsEmpty(), "%v: %q is the root", detail, s.Name())
	}
}

// Adjacent ranges of one thread are consecutive, not nested, also if times are rounded up to a
// microsecond. A range of which most is inside another one is nested.
func TestAdjacentRangesAreSiblings(t *testing.T) {
	for times, parent := range map[string]string{
		`"ts":1110,"dur":100`: "ProfilerStep#1", `"ts":1109.999,"dur":5`: "ProfilerStep#1", `"ts":1109,"dur":3`: "ProfilerStep#1",
		`"ts":1109,"dur":2`: "aten::mm", `"ts":1109.5,"dur":0.7`: "aten::mm", `"ts":1108.999,"dur":100`: "aten::mm",
	} {
		text := step(1, 1000) + `,{"ph":"X","cat":"cpu_op","name":"aten::relu","pid":9,"tid":9,` + times + `},` +
			`{"ph":"X","cat":"user_annotation","name":"ProfilerStep#2","pid":9,"tid":9,"ts":2000,"dur":1000}`
		b, _ := convert(t, "["+text+"]", Options{Detail: DetailKernels})
		first := find(t, b, "ProfilerStep#1")
		assert.Equal(t, first.SpanID(), find(t, b, "aten::mm").ParentSpanID())
		assert.Equal(t, find(t, b, parent).SpanID(), find(t, b, "aten::relu").ParentSpanID(), times)
		assert.Equal(t, first.ParentSpanID(), find(t, b, "ProfilerStep#2").ParentSpanID())
	}
}

func TestSameFileGivesSameTraceUnderAnyBatching(t *testing.T) {
	text := "[" + step(1, 1000) + "," + step(2, 2000) + "]"
	marshal := func(o Options) (all []string) {
		b, _ := convert(t, text, o)
		for _, s := range spansOf(b) {
			all = append(all, fmt.Sprint(s.TraceID(), s.SpanID(), s.ParentSpanID(), s.Name(), s.Attributes().AsRaw()))
		}
		slices.Sort(all) // a batch has spans of one device together
		return all
	}
	want := marshal(Options{Detail: DetailKernels})
	require.Len(t, want, 10)
	assert.Equal(t, want, marshal(Options{Detail: DetailKernels}))
	assert.Equal(t, want, marshal(Options{Detail: DetailKernels, BatchSpans: 1}))
	other, _ := convert(t, strings.Replace(text, `"dur":300`, `"dur":301`, 1), Options{Detail: DetailKernels})
	b, _ := convert(t, text, Options{Detail: DetailKernels})
	assert.NotEqual(t, find(t, b, "aten::mm").TraceID(), find(t, other, "aten::mm").TraceID(),
		"another file is another trace")
}

func TestSpillingChangesNothing(t *testing.T) {
	var parts []string
	for i := range int64(500) {
		parts = append(parts, step(i+1, 1000*(i+1)))
	}
	// Rows that are not in time order.
	for i, j := 0, len(parts)-1; i < j; i, j = i+2, j-2 {
		parts[i], parts[j] = parts[j], parts[i]
	}
	text := "[" + strings.Join(parts, ",") + "]"
	dump := func(o Options) (all []string, st Stats) {
		b, st := convert(t, text, o)
		for _, s := range spansOf(b) {
			all = append(all, fmt.Sprint(s.TraceID(), s.SpanID(), s.ParentSpanID(), s.Name(), s.StartTimestamp(),
				s.Attributes().AsRaw()))
		}
		return all, st
	}
	for _, detail := range []Detail{DetailAuto, DetailKernels} {
		want, st := dump(Options{Detail: detail})
		require.Zero(t, st.SpilledBytes)
		have, st := dump(Options{Detail: detail, MemoryMiB: 4000.0 / (1 << 20), TempDir: t.TempDir()})
		require.Positive(t, st.SpilledBytes)
		assert.Equal(t, want, have)
	}
}

const live = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func hangs(t *testing.T, s ptrace.Span) {
	t.Helper()
	trace, parent := s.TraceID(), s.ParentSpanID()
	assert.Equal(t, live[3:35], hex.EncodeToString(trace[:]))
	assert.Equal(t, live[36:52], hex.EncodeToString(parent[:]))
}

func TestTraceParentInTheMetadataIsTheParentOfTheWindow(t *testing.T) {
	b, _ := convert(t, `{"traceEvents":[`+step(1, 1000)+`],"traceparent":"`+live+`","service.name":"trainer",
		"resource_attributes":{"deployment.environment.name":"prod","k8s.pod.name":"p0"},"OTEL_RESOURCE_ATTRIBUTES":"team=ml, region=eu"}`,
		Options{Detail: DetailKernels, Resource: map[string]string{"team": "infra"}})
	hangs(t, find(t, b, "pytorch profile"))
	for _, s := range spansOf(b) {
		assert.Equal(t, find(t, b, "pytorch profile").TraceID(), s.TraceID(), s.Name())
	}
	assert.Equal(t, map[string]any{
		"service.name": "trainer", "deployment.environment.name": "prod", "k8s.pod.name": "p0", "team": "infra",
		"region":      "eu",
		"process.pid": int64(9), "gpu.trace.detail": "kernels",
	}, b[0].ResourceSpans().At(0).Resource().Attributes().AsRaw())
}

func TestTraceParentInAnAnnotationIsTheParentOfWorkBelow(t *testing.T) {
	for _, annotation := range []string{
		`"name":"request traceparent=` + live + `"`,
		`"name":"request","args":{"traceparent":"` + live + `"}`,
	} {
		b, _ := convert(t, `[{"ph":"X","cat":"user_annotation","pid":9,"tid":9,"ts":900,"dur":2000,`+annotation+`},`+step(1,
			1000)+`]`, Options{})
		s := find(t, b, "request")
		hangs(t, s)
		require.Equal(t, 1, s.Links().Len())
		assert.Equal(t, find(t, b, "pytorch profile").SpanID(), s.Links().At(0).SpanID())
		assert.Equal(t, s.TraceID(), find(t, b, "gemm").TraceID())
	}
}

func TestInvalidTraceParentIsNamedAndIgnored(t *testing.T) {
	_, st := convert(t, `{"traceEvents":[`+oneEvent+`],"traceparent":"00-zz"}`, Options{})
	assert.Equal(t, []string{"traceparent in the metadata is not valid"}, st.Faults)
}

func TestRanksOfAJobAreLinked(t *testing.T) {
	for _, detail := range []Detail{DetailAuto, DetailKernels} {
		rank := func(n int) []ptrace.Traces {
			b, _ := convert(t, fmt.Sprintf(`{"traceEvents":[%s],"distributedInfo":{"rank":%d,"world_size":2}}`,
				step(7, int64(1000+n)), n),
				Options{Detail: detail, JobID: "job-1"})
			return b
		}
		zero, one := find(t, rank(0), "ProfilerStep#7"), find(t, rank(1), "ProfilerStep#7")
		assert.NotEqual(t, zero.TraceID(), one.TraceID())
		linked := false
		for _, l := range one.Links().All() {
			linked = linked || l.TraceID() == zero.TraceID() && l.SpanID() == zero.SpanID()
		}
		assert.True(t, linked, "%v: rank 1 links to the same step of rank 0", detail)
		res := rank(1)[0].ResourceSpans().At(0).Resource().Attributes().AsRaw()
		assert.Equal(t, int64(1), res["gpu.job.rank"])
		assert.Equal(t, int64(2), res["gpu.job.world_size"])
		assert.Equal(t, "job-1", res["gpu.job.id"])
	}
}

func TestJobOfTheFileOverridesTheConfiguration(t *testing.T) {
	for _, meta := range []string{
		`"gpu.job.id":"of the file"`, `"OTEL_RESOURCE_ATTRIBUTES":"gpu.job.id=of the file"`,
		`"resource_attributes":{"gpu.job.id":"of the file"}`, `"mast_job_name":"of the file","mast_job_attempt":"0"`,
	} {
		b, _ := convert(t, `{"traceEvents":[`+step(7, 1000)+`],"distributedInfo":{"rank":1},`+meta+`}`,
			Options{JobID: "job-1"})
		assert.Equal(t, "of the file", b[0].ResourceSpans().At(0).Resource().Attributes().AsRaw()["gpu.job.id"], meta)
		assert.Equal(t, 1, find(t, b, "ProfilerStep#7").Links().Len(), meta)
	}
}

func TestFolderIsTheJobOfFilesThatHaveNone(t *testing.T) {
	cfg := createDefaultConfig().(*Config)
	assert.Empty(t, cfg.optionsOf(cfg.Spans, "/runs/a/rank0.json").JobID)
	cfg.FolderIsJob = true
	assert.Equal(t, "/runs/a", cfg.optionsOf(cfg.Spans, "/runs/a/rank0.json").JobID)
	assert.Equal(t, "/runs/a", cfg.optionsOf(cfg.Spans, "/runs/b/../a/rank1.json").JobID)
	cfg.Spans.JobID = "job-1"
	assert.Equal(t, "job-1", cfg.optionsOf(cfg.Spans, "/runs/a/rank0.json").JobID)
}

func TestUnusableDataIsCountedByReason(t *testing.T) {
	_, st := convert(t, "["+strings.Join([]string{
		oneEvent,
		`{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":"soon","dur":5}`,
		`{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":5}`,
		`{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":5,"dur":-1}`,
		`{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":1e300,"dur":1}`,
		`{"ph":"C","cat":"x","name":"counter","ts":5}`,
		`{"name":"no phase"}`,
		`{}`,
		`{"ph":"X","name":"no category","ts":1,"dur":1}`,
	}, ",")+"]", Options{Detail: DetailKernels})
	assert.Equal(t, map[string]int64{
		"start time missing or no number": 2, "duration missing or no number": 1, "negative duration": 1,
		"phase 'C'": 1, "event without a phase": 2, "event without a category": 1,
	}, st.Skipped)
	assert.Equal(t, int64(1), st.Kernels)
}

func TestDeviceAndStreamFallBackToTheRow(t *testing.T) {
	b, _ := convert(t, `[{"ph":"X","cat":"Kernel","name":"k","pid":"3","tid":"stream 20","ts":1,"dur":2}]`,
		Options{Detail: DetailKernels})
	a := find(t, b, "k").Attributes().AsRaw()
	assert.Equal(t, int64(3), a["gpu.device.ordinal"])
	assert.Equal(t, int64(20), a["gpu.stream.id"])
}

func TestModelOfADeviceThatTheListNumbersOtherwise(t *testing.T) {
	model := func(props string) any {
		b, _ := convert(t, `{"deviceProperties":`+props+
			`,"traceEvents":[{"ph":"X","cat":"kernel","name":"k","pid":2,"tid":1,"ts":1,"dur":2}]}`,
			Options{Detail: DetailKernels})
		require.Nil(t, find(t, b, "k").Attributes().AsRaw()["hw.model"])
		return scopeOf(t, b, "k")["hw.model"]
	}
	assert.Equal(t, "AMD Instinct MI300X", model(`[{"id":0,"name":"AMD Instinct MI300X"}]`))
	assert.Equal(t, "B", model(`[{"id":0,"name":"A"},{"id":2,"name":"B"}]`))
	assert.Nil(t, model(`[{"id":0,"name":"A"},{"id":1,"name":"B"}]`), "unknown is absent")
	assert.Nil(t, model(`[{"id":0,"name":""},{"id":2,"name":""}]`), "an empty name is unknown")
}

func TestBackwardThreadsAreChildrenOfTheWaitingAnnotation(t *testing.T) {
	b, _ := convert(t, `[{"ph":"X","cat":"user_annotation","name":"ProfilerStep#4","pid":9,"tid":9,"ts":0,"dur":1000},`+
		`{"ph":"X","cat":"user_annotation","name":"## forward ##","pid":9,"tid":9,"ts":100,"dur":300},`+
		`{"ph":"X","cat":"user_annotation","name":"## backward ##","pid":9,"tid":9,"ts":400,"dur":300},`+
		`{"ph":"X","cat":"cpu_op","name":"autograd::engine::evaluate_function: MmBackward0","pid":9,"tid":10,"ts":450,"dur":100},`+
		`{"ph":"X","cat":"user_annotation","name":"nccl:all_reduce","pid":9,"tid":10,"ts":460,"dur":50},`+
		`{"ph":"X","cat":"user_annotation","name":"prefetch","pid":9,"tid":11,"ts":460,"dur":50}]`, Options{})
	assert.Equal(t, find(t, b, "## backward ##").SpanID(), find(t, b, "nccl:all_reduce").ParentSpanID())
	assert.Equal(t, find(t, b, "ProfilerStep#4").SpanID(), find(t, b, "prefetch").ParentSpanID(),
		"other threads only share the step")
}

// The thread that began the backward pass has no event between the end of the annotation and the
// end of the step, so the annotation is still its last known range.
func TestBackwardWorkAfterAnAnnotationIsNotItsOwn(t *testing.T) {
	for name, tt := range map[string]struct {
		start, length int
		parent        string
	}{
		"within":       {450, 100, "## backward ##"},
		"to the end":   {600, 100, "## backward ##"},
		"past the end": {601, 100, "ProfilerStep#4"},
		"after it":     {720, 100, "ProfilerStep#4"},
	} {
		b, _ := convert(t, fmt.Sprintf(`[{"ph":"X","cat":"user_annotation","name":"ProfilerStep#4","pid":9,"tid":9,"ts":0,"dur":1000},`+
			`{"ph":"X","cat":"user_annotation","name":"## backward ##","pid":9,"tid":9,"ts":400,"dur":300},`+
			`{"ph":"X","cat":"cpu_op","name":"aten::ones_like","pid":9,"tid":9,"ts":410,"dur":10},`+
			`{"ph":"X","cat":"cpu_op","name":"autograd::engine::evaluate_function: MmBackward0","pid":9,"tid":10,"ts":%[1]d,"dur":%[2]d},`+
			`{"ph":"X","cat":"user_annotation","name":"nccl:all_reduce","pid":9,"tid":10,"ts":%[3]d,"dur":%[4]d}]`,
			tt.start, tt.length, tt.start+10, tt.length/2), Options{})
		assert.Equal(t, find(t, b, tt.parent).SpanID(), find(t, b, "nccl:all_reduce").ParentSpanID(), name)
	}
}

func TestWindowEqualsTheRecordedTime(t *testing.T) {
	b, _ := convert(t,
		`[{"ph":"X","cat":"Trace","name":"PyTorch Profiler (0)","pid":"Spans","tid":"PyTorch Profiler","ts":500,"dur":900},`+
			step(1, 1000)+`]`, Options{})
	s := find(t, b, "pytorch profile")
	assert.Equal(t, int64(500_000), int64(s.StartTimestamp()))
	assert.Equal(t, int64(2_000_000), int64(s.EndTimestamp()), "the step ends later")
}

// Output of Kineto's plugin for Intel devices: runtime calls start with ur, copies have separate
// types, and waits and kernel metrics have separate rows.
func TestIntelDevices(t *testing.T) {
	b, st := convert(t, `{"deviceProperties":[{"id":0,"name":"Intel(R) Data Center GPU Max 1550"}],"traceEvents":[`+
		`{"ph":"X","cat":"user_annotation","name":"xccl:all_reduce","pid":9,"tid":9,"ts":1,"dur":100},`+
		`{"ph":"X","cat":"xpu_runtime","name":"urEnqueueUSMMemcpy","pid":9,"tid":9,"ts":10,"dur":5,"args":{"correlation":1}},`+
		`{"ph":"X","cat":"xpu_runtime","name":"urEnqueueKernelLaunch","pid":9,"tid":9,"ts":20,"dur":5,"args":{"correlation":2}},`+
		`{"ph":"X","cat":"xpu_runtime","name":"urQueueFinish","pid":9,"tid":9,"ts":30,"dur":60,"args":{"correlation":3}},`+
		`{"ph":"X","cat":"xpu_sync","name":"zeCommandQueueSynchronize","pid":-1,"tid":9,"ts":31,"dur":50,"args":{"correlation":3,"Type":"HOST_COMMAND_QUEUE"}},`+
		`{"ph":"X","cat":"gpu_memcpy","name":"Memcpy M2D (Memory -> Device)","pid":0,"tid":5,"ts":30,"dur":10,"args":{"device":0,"sycl queue":5,"correlation":1,"bytes":4096}},`+
		`{"ph":"X","cat":"kernel","name":"oneccl_allreduce_large<float>","pid":0,"tid":5,"ts":41,"dur":40,"args":{"device":0,"context":"0x01","sycl queue":5,"correlation":2}},`+
		`{"ph":"X","cat":"xpu_scope_profiler","name":"metrics: oneccl_allreduce_large<float>","pid":0,"tid":5,"ts":41,"dur":40}]}`, Options{Detail: DetailKernels})
	assert.Empty(t, st.Skipped)
	copied := find(t, b, "Memcpy M2D (Memory -> Device)").Attributes().AsRaw()
	assert.Equal(t, "host_to_device", copied["gpu.copy.direction"])
	assert.Equal(t, "pageable", copied["gpu.copy.host_memory"])
	assert.EqualValues(t, 5, copied["gpu.stream.id"])
	assert.NotContains(t, copied, "gpu.timing.source", "neither CUPTI nor ROCm")
	kernel := find(t, b, "oneccl_allreduce_large")
	assert.Equal(t, find(t, b, "urEnqueueKernelLaunch").SpanID(), kernel.ParentSpanID())
	assert.Equal(t, "collective", kernel.Attributes().AsRaw()["gpu.operation.type"])
	assert.Equal(t, "all_reduce", kernel.Attributes().AsRaw()["gpu.collective.name"])
	find(t, b, "urQueueFinish")
	assert.Len(t, spansOf(b), 8, "window, device, annotation, three calls, a copy and a kernel")
	var kinds []string
	for _, v := range st.Devices[0].Findings {
		kinds = append(kinds, v.Kind)
	}
	assert.Equal(t, []string{"exposed_communication", "pageable_copies"}, kinds,
		"the device worked while the host waited for it")
}

func TestTimingSourceFollowsTheVendor(t *testing.T) {
	for _, c := range []struct{ meta, call, want string }{
		{`"cupti_version":24`, "x", "cupti"},
		{`"deviceProperties":[{"id":0,"name":"Tesla V100-SXM2-16GB"}]`, "x", "cupti"},
		{`"roctracer_version":4,"deviceProperties":[{"id":0,"name":""}]`, "x", "roctracer"},
		{`"deviceProperties":[{"id":0,"name":"AMD Instinct MI300X"}]`, "x", "roctracer"},
		{`"x":0`, "cudaLaunchKernel", "cupti"},
		{`"x":0`, "hipLaunchKernel", "roctracer"},
		{`"x":0`, "aclrtLaunchKernel", ""},
	} {
		text := strings.Replace(`{`+c.meta+`,"traceEvents":[`+step(1, 1000)+`]}`, "cudaLaunchKernel", c.call, 1)
		b, _ := convert(t, text, Options{Detail: DetailKernels})
		got, _ := scopeOf(t, b, "gemm")["gpu.timing.source"].(string)
		assert.Equal(t, c.want, got, c)
	}
}

// Steps with repeated numbers: a second loop, a second thread, another process.
func TestStepsWithEqualNumbersHaveDifferentIdentifiers(t *testing.T) {
	again := strings.Replace(step(1, 5000), `"correlation":1`, `"correlation":9`, 2)
	other := strings.ReplaceAll(strings.Replace(step(2, 9000), `"correlation":2`, `"correlation":8`, 2), `"pid":9`,
		`"pid":10`)
	text := `{"distributedInfo":{"rank":1,"world_size":2},"traceEvents":[` + step(1, 1000) + "," + step(2, 3000) + "," +
		again + "," + other + `]}`
	for _, detail := range []Detail{DetailSteps, DetailKernels} {
		b, _ := convert(t, text, Options{Detail: detail, JobID: "j"})
		seen, windows, linked := map[string]bool{}, map[string]bool{}, 0
		for _, s := range spansOf(b) {
			windows[s.TraceID().String()] = windows[s.TraceID().String()] || s.Name() == "pytorch profile"
		}
		for _, s := range spansOf(b) {
			assert.False(t, seen[s.SpanID().String()], "%s, %v", s.Name(), detail)
			seen[s.SpanID().String()] = true
			if strings.HasPrefix(s.Name(), "ProfilerStep#") && s.Links().Len() > 0 {
				if l := s.Links().At(s.Links().Len() - 1); !windows[l.TraceID().String()] {
					linked++
				}
			}
		}
		assert.Equal(t, 2, linked, "the first of each number of the main process, to rank 0")
	}
}

func TestResourceOfTheMetadata(t *testing.T) {
	text := `{"resource_attributes":{"z":"1","y":"2","x":"3","gpu.job.rank":5,"gpu.job.local_rank":"1","gpu.job.world_size":"many"},"distributedInfo":{"rank":3},` +
		`"traceEvents":[` + step(1, 1000) + `]}`
	var first []byte
	for range 20 {
		b, _ := convert(t, text, Options{Resource: map[string]string{"a": "1", "b": "2", "c": "3"}})
		m := b[0].ResourceSpans().At(0).Resource().Attributes().AsRaw()
		assert.EqualValues(t, 5, m["gpu.job.rank"], "the application knows better")
		assert.EqualValues(t, 1, m["gpu.job.local_rank"])
		assert.Equal(t, "many", m["gpu.job.world_size"])
		var p ptrace.ProtoMarshaler
		wire, err := p.MarshalTraces(b[0])
		require.NoError(t, err)
		if first == nil {
			first = wire
		}
		require.Equal(t, first, wire, "the same file gives the same bytes")
	}
}
