// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/semconv"
)

// written are the attributes that only this processor writes.
var written = []string{
	"gpu.utilization", "gpu.sm.utilization", "gpu.sm.occupancy", "gpu.tensor.utilization", "gpu.dram.utilization",
	"gpu.clock.sm.frequency", "gpu.clock.memory.frequency", "gpu.power", "gpu.temperature.max", "gpu.throttle.time",
	"gpu.throttle.reasons", "gpu.xid", "gpu.ecc.errors", "gpu.energy", "gpu.self_energy", "gpu.measurement.source",
	"gpu.memory.usage",
	"gpu.join.coverage", "gpu.join.samples", "gpu.join.method", "gpu.join.late.duration",
}

// essence returns every span without the processor's own attributes: nothing else may be lost,
// changed or added. GPU spans with equal IDs and times are one span that was sent repeatedly.
func essence(t *testing.T, requests ...ptrace.Traces) map[string][]string {
	all := map[string][]string{}
	for _, td := range requests {
		for _, rs := range td.ResourceSpans().All() {
			for _, ss := range rs.ScopeSpans().All() {
				for _, s := range ss.Spans().All() {
					one := ptrace.NewTraces()
					to := one.ResourceSpans().AppendEmpty()
					rs.Resource().CopyTo(to.Resource())
					to.SetSchemaUrl(rs.SchemaUrl())
					scope := to.ScopeSpans().AppendEmpty()
					ss.Scope().CopyTo(scope.Scope())
					scope.SetSchemaUrl(ss.SchemaUrl())
					span := scope.Spans().AppendEmpty()
					s.CopyTo(span)
					span.Attributes().RemoveIf(func(k string, _ pcommon.Value) bool { return slices.Contains(written, k) })
					var m ptrace.ProtoMarshaler
					b, err := m.MarshalTraces(one)
					require.NoError(t, err)
					identity := ""
					if _, ok := s.Attributes().Get("gpu.operation.type"); ok {
						identity = fmt.Sprint(s.TraceID(), s.SpanID(), s.StartTimestamp(), s.EndTimestamp())
					}
					all[identity] = append(all[identity], string(b))
				}
			}
		}
	}
	for _, spans := range all {
		slices.Sort(spans)
	}
	return all
}

// throughJoin sends requests through a processor that waits for at most a few milliseconds, and
// checks the invariants of its output.
func throughJoin(t *testing.T, requests []ptrace.Traces) {
	zero := time.Now().Add(-5 * time.Second)
	r := newRig(t).join(func(c *Config) { c.Settle, c.MaxWait, c.Events = 0, time.Millisecond, true })
	w := r.device(nominal)
	for at := zero; at.Before(time.Now()); at = at.Add(100 * time.Millisecond) {
		w.Write(one(at, zero))
	}
	w.WriteEvents([]devicesamples.Event{{
		Time: zero.Add(time.Second).UnixNano(), Kind: devicesamples.EventXID,
		Code: 1,
	}})
	want := essence(t, requests...)
	already := 0
	for _, td := range requests {
		for s := range spansOf(td) {
			if _, ok := s.Attributes().Get("gpu.join.coverage"); ok {
				already++
			}
		}
		require.NoError(t, r.proc.ConsumeTraces(context.Background(), td))
	}
	r.close()
	out := r.sink.AllTraces()
	for _, td := range out {
		for s := range spansOf(td) {
			if already > 0 {
				continue // values of another component
			}
			s.Attributes().Range(func(k string, v pcommon.Value) bool {
				if v.Type() != pcommon.ValueTypeDouble || !slices.Contains(written, k) {
					return true
				}
				f := v.Double()
				require.False(t, math.IsNaN(f) || math.IsInf(f, 0) || f < 0, "%s = %v", k, f)
				if strings.HasSuffix(k, "utilization") || k == "gpu.join.coverage" {
					require.LessOrEqual(t, f, 1., k)
				}
				return true
			})
			s.Events().RemoveIf(func(e ptrace.SpanEvent) bool { return e.Name() == "gpu.xid" })
		}
	}
	got := essence(t, out...)
	require.Equal(t, want[""], got[""])
	require.Len(t, got, len(want))
	for identity, spans := range got {
		require.Subset(t, want[identity], spans)
	}
}

func FuzzWire(f *testing.F) {
	var m ptrace.ProtoMarshaler
	add := func(td ptrace.Traces) {
		b, err := m.MarshalTraces(td)
		require.NoError(f, err)
		f.Add(b)
	}
	now := time.Now()
	td := newTraces("a")
	td.gpu(1, 0, now.Add(-time.Second), now)
	td.host(2, 1, now.Add(-time.Second), now)
	add(td.Traces)
	td.gpu(3, 3, time.Unix(0, 0), now).Attributes().PutDouble("gpu.duration", math.NaN())
	td.rs.Resource().Attributes().PutEmptyMap("process.pid").PutDouble("x", math.Inf(1))
	td.resource("").host(4, 5, now, now)
	add(td.Traces)
	f.Add([]byte(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		var u ptrace.ProtoUnmarshaler
		td, err := u.UnmarshalTraces(b)
		if err != nil {
			t.Skip("not an OTLP request")
		}
		for s := range spansOf(td) { // events of the same name are removed in reverse order
			if s.Events().Len() > 0 {
				t.Skip("has events")
			}
		}
		throughJoin(t, []ptrace.Traces{td})
	})
}

// FuzzSpans creates unusual trees near the samples from bytes, 6 for each span.
func FuzzSpans(f *testing.F) {
	f.Add([]byte{1, 0, 10, 20, 1, 0, 2, 1, 12, 15, 1, 0, 3, 1, 30, 4, 3, 1})
	f.Add([]byte{3, 1, 30, 4, 1, 9, 4, 1, 40, 4, 1, 8, 2, 1, 20, 200, 1, 8, 1, 0, 10, 250, 1, 4})
	f.Add([]byte{1, 2, 10, 20, 1, 0, 2, 1, 12, 15, 1, 0, 1, 1, 12, 15, 7, 0, 0, 0, 0, 200, 255, 255})
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 6*64 {
			t.Skip("more than 64 spans")
		}
		zero := time.Now().Add(-4 * time.Second)
		var requests []ptrace.Traces
		var td *traces
		for ; len(b) >= 6; b = b[6:] {
			id, parent, start, length, kind, batch := b[0], b[1], b[2], b[3], b[4], b[5]
			of := uint64(len(requests)) << 8 // a request without new spans is dropped completely
			if td == nil || batch%4 == 1 {
				td = newTraces(string(rune('a' + batch%3)))
				requests = append(requests, td.Traces)
			} else if batch%4 == 2 {
				td.scope("other")
			} else if batch%4 == 3 {
				td.resource(string(rune('a' + batch%3)))
			}
			from := zero.Add(time.Duration(start) * 20 * time.Millisecond)
			s := td.host(of+uint64(id%16), of+uint64(parent%16), from, from.Add(time.Duration(int8(length))*5*time.Millisecond))
			at := s.Attributes()
			if kind&1 != 0 {
				at.PutStr(string(semconv.GPUOperationTypeKey), "kernel")
				at.PutStr(string(semconv.HWIDKey), gpu0)
				if batch&4 != 0 {
					at.PutStr(string(semconv.GPUOperationTypeKey), semconv.GPUOperationTypeStep)
				}
			}
			if batch&8 != 0 {
				at.PutInt(string(semconv.GPUStreamIDKey), int64(batch>>6))
			}
			switch kind >> 1 % 16 {
			case 1:
				at.PutInt(string(semconv.HWIDKey), int64(id))
			case 2:
				at.PutStr(string(semconv.HWIDKey), "")
			case 3:
				at.PutDouble(string(semconv.GPUDeviceOrdinalKey), math.NaN())
			case 4:
				at.PutEmptyBytes(string(semconv.GPUPCIBDFKey)).FromRaw([]byte{id})
			case 5:
				s.SetTraceID(pcommon.TraceID{})
			case 6:
				s.SetStartTimestamp(math.MaxUint64)
			case 7:
				s.SetEndTimestamp(math.MaxUint64)
			case 8:
				s.SetStartTimestamp(0)
			case 9:
				at.PutDouble("gpu.energy", 5)
			}
		}
		throughJoin(t, requests)
	})
}
