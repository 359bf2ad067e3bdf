// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// hostileShapes returns files that no profiler records, but an attacker may send, with n of
// everything.
func hostileShapes() map[string]func(b *strings.Builder, n int) {
	x := func(b *strings.Builder, cat, name string, pid, tid, ts, dur int, args string) {
		fmt.Fprintf(b, `{"ph":"X","cat":%q,"name":%q,"pid":%d,"tid":%d,"ts":%d,"dur":%d,"args":{%s}},`, cat, name, pid, tid,
			ts, dur, args)
	}
	pair := func(b *strings.Builder, i, tid, stream, device, launch, start, dur int) {
		x(b, "cuda_runtime", "cudaLaunchKernel", 1, tid, launch, 1, fmt.Sprintf(`"correlation":%d`, i+1))
		x(b, "kernel", "k", 0, 7, start, dur, fmt.Sprintf(`"correlation":%d,"stream":%d,"device":%d`, i+1, stream, device))
	}
	nested := func(cat, name string) func(b *strings.Builder, n int) {
		return func(b *strings.Builder, n int) {
			for i := range n {
				x(b, cat, strings.ReplaceAll(name, "N", fmt.Sprint(i)), 1, 1, i*10, 20*n-20*i, "")
				pair(b, i, 1, 7, 0, i*10+2, i*10+5, 4)
			}
		}
	}
	return map[string]func(b *strings.Builder, n int){
		"steps within each other":       nested("user_annotation", "ProfilerStep#N"),
		"annotations within each other": nested("user_annotation", "r"),
		"operators within each other":   nested("cpu_op", "aten::mm"),
		"frames within each other":      nested("python_function", "f"),
		"tiny steps": func(b *strings.Builder, n int) {
			x(b, "user_annotation", "ProfilerStep#0", 1, 1, 0, 10*n, "")
			for i := range n {
				x(b, "user_annotation", fmt.Sprintf("ProfilerStep#%d", i+1), 1, 1, i*3, 2, "")
				pair(b, i, 1, 7, 0, i*3, i*3+1, 1)
			}
		},
		"ranges that cross": func(b *strings.Builder, n int) {
			for i := range n {
				x(b, "user_annotation", "r", 1, 1, i*2, n, "")
				pair(b, i, 1, 7, 0, i*2, i*2+3, 1)
			}
		},
		"one lane of overlapping kernels": func(b *strings.Builder, n int) {
			for i := range n {
				pair(b, i, 1, 7, 0, i, i+2, n)
			}
		},
		"a stream for each": func(b *strings.Builder, n int) {
			for i := range n {
				pair(b, i, 1, i, 0, i*2, i*2+2, 5)
			}
		},
		"a device for each": func(b *strings.Builder, n int) {
			for i := range n {
				pair(b, i, 1, 7, i, i*2, i*2+2, 5)
			}
		},
		"a thread for each": func(b *strings.Builder, n int) {
			for i := range n {
				pair(b, i, i, 7, 0, i*2, i*2+2, 5)
			}
		},
		"one moment": func(b *strings.Builder, n int) {
			for i := range n {
				x(b, "cpu_op", "aten::mm", 1, 1, 5, 5, "")
				pair(b, i, 1, 7, 0, 5, 5, 5)
			}
		},
		"one graph": func(b *strings.Builder, n int) {
			x(b, "cuda_runtime", "cudaGraphLaunch", 1, 1, 0, 1, `"correlation":1`)
			for i := range n {
				x(b, "kernel", "k", 0, 7, i*3+2, 2, `"correlation":1,"stream":7,"device":0`)
			}
		},
		"kernels long after their launches": func(b *strings.Builder, n int) {
			for i := range n {
				x(b, "user_annotation", fmt.Sprintf("ProfilerStep#%d", i+1), 1, 1, i*3, 2, "")
				pair(b, i, 1, 7, 0, i*3, 4*n+i*3, 2)
			}
		},
		"a device that idles while another works": func(b *strings.Builder, n int) {
			pair(b, n, 1, 7, 1, 0, 1, 1)
			for i := range n {
				x(b, "cpu_op", fmt.Sprintf("aten::o%d", i%100), 1, 1, i*10, 9, "")
				pair(b, i, 1, 7, 0, i*10+2, i*10+5, 4)
			}
			pair(b, n+1, 1, 7, 1, 11*n, 11*n+1, 1)
		},
	}
}

// TestHostileFilesCostNoMoreForEachEvent counts allocated bytes and objects, which reveal quadratic
// growth, for the whole conversion from text to spans.
func TestHostileFilesCostNoMoreForEachEvent(t *testing.T) {
	for name, shape := range hostileShapes() {
		for _, detail := range []Detail{DetailSteps, DetailAuto, DetailKernels} {
			if testing.Short() && detail != DetailAuto {
				continue
			}
			t.Run(name+"/"+detail.String(), func(t *testing.T) {
				work := func(n int) (bytes, objects uint64) {
					var b strings.Builder
					shape(&b, n)
					text := "[" + strings.TrimSuffix(b.String(), ",") + "]"
					var before, after runtime.MemStats
					runtime.ReadMemStats(&before)
					st, err := Read(t.Context(), strings.NewReader(text), Options{Detail: detail},
						func(context.Context, ptrace.Traces) error { return nil })
					runtime.ReadMemStats(&after)
					require.NoError(t, err)
					require.Positive(t, st.Kernels)
					return after.TotalAlloc - before.TotalAlloc, after.Mallocs - before.Mallocs
				}
				bytes, objects := work(1000)
				manyBytes, manyObjects := work(4000)
				assert.Less(t, manyBytes, 6*bytes+4<<20, "four times as many events")
				assert.Less(t, manyObjects, 6*objects+1000)
			})
		}
	}
}

// Steps nested deeper than 64 have no device totals, which is reported with their number.
func TestStepsWithoutTotalsAreCounted(t *testing.T) {
	var b strings.Builder
	b.WriteString(`{"traceEvents":[`)
	hostileShapes()["steps within each other"](&b, 100)
	b.WriteString(`{"ph":"i"}]}`)
	_, st := convert(t, b.String(), Options{Detail: DetailSteps})
	assert.Equal(t, map[string]int64{"totals of the device, of a step within 64 others": 36}, st.Skipped)
}
