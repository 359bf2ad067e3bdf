// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// The host finishes both layers in 60 µs; the device works on them for 1.2 ms.
func TestRangesAreShownOnTheDevice(t *testing.T) {
	var events []string
	event := func(cat, name string, ts, dur int, args string) {
		events = append(events, fmt.Sprintf(`{"ph":"X","cat":%q,"name":%q,"pid":1,"tid":1,"ts":%d,"dur":%d,"args":{%s}}`, cat,
			name, ts, dur, args))
	}
	kernel := func(n, launched, ts, dur int) {
		event("cuda_runtime", "cudaLaunchKernel", launched, 1, fmt.Sprintf(`"correlation":%d`, n))
		event("kernel", fmt.Sprintf("k%d", n), ts, dur, fmt.Sprintf(`"device":0,"stream":7,"correlation":%d`, n))
	}
	event("user_annotation", "ProfilerStep#1", 1000, 100, "")
	event("user_annotation", "model", 1010, 60, "")
	event("python_function", "nn.Module: Linear_3", 1012, 20, "")
	event("python_function", "nn.Module: Linear_4", 1040, 20, "")
	event("user_annotation", "only the host", 1080, 10, "")
	kernel(1, 1015, 1100, 200)
	kernel(2, 1020, 1400, 300)
	kernel(3, 1045, 1800, 400)
	kernel(4, 1065, 2200, 100) // belongs to the model, not to a layer
	batches, st := convert(t, "["+strings.Join(events, ",")+"]", Options{})
	host, device := map[string]ptrace.Span{}, map[string]ptrace.Span{}
	for _, s := range spansOf(batches) {
		if typ, ok := s.Attributes().Get("gpu.operation.type"); ok && typ.Str() == "section" {
			instance := ""
			for _, h := range spansOf(batches) {
				if h.SpanID() == s.Links().At(0).SpanID() {
					if v, ok := h.Attributes().Get("gpu.operation.instance"); ok {
						instance = v.AsString()
					}
					assert.Equal(t, h.Name(), s.Name(), "the link leads to the range")
				}
			}
			device[s.Name()+instance] = s
		} else {
			host[s.Name()] = s
		}
	}
	require.Len(t, device, 3, "ranges without work on the device have no section")
	for name, want := range map[string]struct{ start, end, busy int }{
		"model":              {1100, 2300, 1000},
		"nn.Module: Linear3": {1100, 1700, 500},
		"nn.Module: Linear4": {1800, 2200, 400},
	} {
		s := device[name]
		assert.Equal(t, int64(want.start)*1000, int64(s.StartTimestamp()), name)
		assert.Equal(t, int64(want.end)*1000, int64(s.EndTimestamp()), name)
		a := s.Attributes().AsRaw()
		assert.InDelta(t, float64(want.end-want.start)*1e-6, a["gpu.duration"], 1e-12, name)
		assert.InDelta(t, float64(want.busy)*1e-6, a["gpu.operation.busy.duration"], 1e-12, name)
	}
	assert.Equal(t, host["model"].SpanID(), device["model"].ParentSpanID())
	assert.Equal(t, device["model"].SpanID(), device["nn.Module: Linear3"].ParentSpanID())
	assert.Equal(t, device["nn.Module: Linear3"].SpanID(), host["k1"].ParentSpanID())
	assert.Equal(t, device["nn.Module: Linear3"].SpanID(), host["k2"].ParentSpanID())
	assert.Equal(t, device["model"].SpanID(), host["k4"].ParentSpanID())
	assert.Equal(t, int64(len(spansOf(batches))), st.Spans)
}

func TestDifferentNamesStayDifferentWhenTruncated(t *testing.T) {
	long := strings.Repeat("x", 300)
	batches, _ := convert(t, `[{"ph":"X","cat":"user_annotation","name":"`+long+`1","pid":1,"tid":1,"ts":1,"dur":2},
		{"ph":"X","cat":"user_annotation","name":"`+long+`2","pid":1,"tid":1,"ts":5,"dur":2}]`, Options{})
	names := map[string]bool{}
	for _, s := range spansOf(batches) {
		assert.LessOrEqual(t, len(s.Name()), 256)
		names[s.Name()] = true
	}
	assert.Len(t, names, 3, "both and the window")
}
