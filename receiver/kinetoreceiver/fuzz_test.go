// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"bytes"
	"context"
	"testing"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/conformance"
)

// FuzzConvert reads any input at every level, in memory and spilled: it never panics, writes only
// registered names, gives every span a unique identifier and an existing parent, and loses no
// activity.
func FuzzConvert(f *testing.F) {
	f.Add([]byte("["+step(1, 1000)+"]"), uint8(4))
	f.Add([]byte(`{"traceEvents":[`+step(7, 5)+
		`],"distributedInfo":{"rank":1,"world_size":2},"deviceProperties":[{"id":0,"name":"NVIDIA A100"}],"gpu.job.id":"j","baseTimeNanoseconds":1711964646000000000}`), uint8(0))
	f.Add([]byte(
		`[{"ph":"X","cat":"user_annotation","name":"a 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01","pid":1,"tid":1,"ts":-5,"dur":9},`+oneEvent+`]`), uint8(1))
	f.Add([]byte(
		`[{"ph":"i","name":"[memory]","pid":9,"tid":9,"ts":110,"args":{"Bytes":512,"Device Id":0,"Total Allocated":1024}},{"ph":"X","cat":"Trace","ts":1,"dur":2}]`), uint8(3))
	f.Add([]byte(
		`[{"ph":"X","cat":"cpu_op","name":"aten::mm","pid":9,"tid":9,"ts":1,"dur":2,"args":{"Input type":["float"],"Input Dims":[[1,2],[2,3]]}}]`), uint8(2))
	f.Add([]byte(rocText), uint8(4))
	f.Fuzz(func(t *testing.T, b []byte, level uint8) {
		o := Options{Detail: Detail(level % 5), Shapes: true, BatchSpans: 7}
		for _, o.MemoryMiB = range []float64{0, 200.0 / (1 << 20)} {
			ids, parents := map[pcommon.SpanID]bool{}, map[pcommon.SpanID]bool{}
			var activities int64
			foreign := false
			st, err := Read(t.Context(), bytes.NewReader(b), o, func(_ context.Context, td ptrace.Traces) error {
				if err := conformance.Traces(td); err != nil {
					t.Fatal(err)
				}
				for _, s := range spansOf([]ptrace.Traces{td}) {
					if ids[s.SpanID()] {
						t.Fatalf("%q: span id twice", s.Name())
					}
					ids[s.SpanID()] = true
					foreign = foreign || s.Links().Len() > 0 || bytes.Contains(b, []byte("traceparent"))
					if p := s.ParentSpanID(); !p.IsEmpty() {
						parents[p] = true
					}
					for _, k := range []string{"kernel", "collective", "copy", "memset"} {
						if v, ok := s.Attributes().Get("gpu.summary." + k + ".count"); ok {
							activities += v.Int()
						}
						if v, ok := s.Attributes().Get("gpu.operation.type"); ok && v.Str() == k {
							activities++
						}
					}
				}
				return nil
			})
			if err != nil {
				continue
			}
			if want := st.Kernels + st.Copies + st.Memsets; activities != want {
				t.Fatalf("%d of %d activities", activities, want)
			}
			for p := range parents {
				if !ids[p] && !foreign {
					t.Fatalf("parent %s is missing", p)
				}
			}
		}
	})
}
