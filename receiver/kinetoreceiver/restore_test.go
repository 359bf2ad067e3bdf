// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

const restoredHead = `{"schemaVersion":1,"otelgpuFormat":1,"baseTimeNanoseconds":1000000000,"traceEvents":[`

func slice(args string) string {
	return `{"ph":"X","cat":"gpu_user_annotation","name":"forward","pid":1,"tid":4,"ts":1.001,"dur":0.0001,"args":{"device":0,` + args + `}}`
}

const goodIDs = `"trace_id":"0102030405060708090a0b0c0d0e0f10","span_id":"a1a2a3a4a5a6a7a8"`

func TestOnlyMarkedFilesAreRestored(t *testing.T) {
	_, st := convert(t, `{"traceEvents":[`+slice(goodIDs)+`]}`, Options{})
	assert.Zero(t, st.Restored)
	_, st = convert(t, strings.Replace(restoredHead, `Format":1`, `Format":2`, 1)+slice(goodIDs)+`]}`, Options{})
	assert.Zero(t, st.Restored, "of another version")
	b, st := convert(t, restoredHead+slice(goodIDs)+`]}`, Options{})
	assert.EqualValues(t, 1, st.Restored)
	assert.Empty(t, st.Skipped)
	s := find(t, b, "forward")
	assert.Equal(t, "0102030405060708090a0b0c0d0e0f10", s.TraceID().String())
	assert.Equal(t, "a1a2a3a4a5a6a7a8", s.SpanID().String())
	assert.EqualValues(t, 1_000_001_001, s.StartTimestamp())
	assert.EqualValues(t, 1_000_001_001, s.EndTimestamp())
	assert.Len(t, spansOf(b), 1, "no window, no device, no analysis")
	assert.Equal(t, map[string]any{"gpu.device.ordinal": int64(0)}, s.Attributes().AsRaw())
}

// Events without any identifier are read as those of a profiler, beside spans.
func TestEventsWithoutIdentifiersAreRead(t *testing.T) {
	b, st := convert(t, restoredHead+slice(goodIDs)+`,`+step(1, 1000)+`]}`, Options{})
	assert.EqualValues(t, 1, st.Restored)
	find(t, b, "forward")
	find(t, b, "pytorch profile")
	find(t, b, "ProfilerStep#1")
	assert.Len(t, spansOf(b), int(st.Spans))
}

func TestWhatIsBrokenInARestoredFileIsCounted(t *testing.T) {
	for args, reason := range map[string]string{
		`"trace_id":"0102030405060708090a0b0c0d0e0f10"`:                              brokenIDs,
		`"span_id":"a1a2a3a4a5a6a7a8"`:                                               brokenIDs,
		`"trace_id":"00000000000000000000000000000000","span_id":"a1a2a3a4a5a6a7a8"`: brokenIDs,
		`"trace_id":"0102030405060708090a0b0c0d0e0fxx","span_id":"a1a2a3a4a5a6a7a8"`: brokenIDs,
		`"trace_id":"01","span_id":"a1a2a3a4a5a6a7a8"`:                               brokenIDs,
		goodIDs + `,"parent_span_id":"a1"`:                                           brokenIDs,
		goodIDs + `,"otel":{"start":-1}`:                                             brokenTimes,
		goodIDs + `,"otel":{"end":-9223372036854775808}`:                             brokenTimes,
	} {
		_, st := convert(t, restoredHead+slice(args)+`]}`, Options{})
		assert.Equal(t, map[string]int64{reason: 1}, st.Skipped, args)
		assert.Zero(t, st.Spans, args)
	}
	mark := `{"ph":"i","s":"t","cat":"event","name":"finding","pid":1,"tid":4,"ts":2,"args":{"span_id":"a1a2a3a4a5a6a7a9"}}`
	_, st := convert(t, restoredHead+mark+`,`+slice(goodIDs)+`,`+mark+`]}`, Options{})
	assert.Equal(t, map[string]int64{strayMark: 2}, st.Skipped)
	long := strings.Replace(slice(goodIDs), `1.001`, `9223372036854775.807`, 1)
	_, st = convert(t, restoredHead+long+`]}`, Options{})
	assert.Equal(t, map[string]int64{brokenTimes: 1}, st.Skipped)
}

// The end of a file that was cut off says what the resources are; what was read comes without them.
func TestTheBeginningOfARestoredFile(t *testing.T) {
	b, st := convert(t, restoredHead+slice(goodIDs)+`,{"ph":`, Options{Partial: true, Resource: map[string]string{"service.name": "s"}})
	assert.EqualValues(t, 1, st.Restored)
	assert.Len(t, st.Faults, 1)
	assert.Equal(t, map[string]any{"service.name": "s"}, b[0].ResourceSpans().At(0).Resource().Attributes().AsRaw())
}

func TestValuesHaveABound(t *testing.T) {
	deep := strings.Repeat("[", 500) + strings.Repeat("]", 500)
	var many strings.Builder
	for i := range 2 * maxAttributes {
		many.WriteString(`,"a` + strings.Repeat("b", i%7) + strings.Repeat("c", i/7%70) + strings.Repeat("d", i/490) + `":1`)
	}
	b, _ := convert(t, restoredHead+slice(goodIDs+`,"deep":`+deep+many.String())+`]}`, Options{})
	assert.Equal(t, maxAttributes, find(t, b, "forward").Attributes().Len())
}

// FuzzRestore reads anything as a file of gpuspan/chrometrace: it never panics, and every span has identifiers.
func FuzzRestore(f *testing.F) {
	f.Add([]byte(slice(goodIDs)))
	f.Add([]byte(slice(goodIDs+`,"otel":{"name":"n","end":5,"absent":true,"origin":1,"attributes":{"x":{"double":"NaN"},"y":{"bytes":"AP8="},"z":{"map":{"a":[1.0]}}}}`) +
		`,{"ph":"i","cat":"event","name":"e","ts":1,"args":{"span_id":"a1a2a3a4a5a6a7a8","otel":{"attributes":{}}}}],"otelgpuOrigins":[{"resource":{"a":1}},{"scope":"s"}`))
	f.Add([]byte(slice(goodIDs + `,"otel":"again"`)))
	f.Add([]byte(slice(`"trace_id":"zz","links":["x:y",3],"span.kind":null,"otel.status_code":"ERROR","loop":"l","est. achieved occupancy %":"NaN","grid":[[],{}]`)))
	f.Fuzz(func(t *testing.T, events []byte) {
		for _, limit := range []int{0, 1} {
			var n int64
			text := append(append([]byte(restoredHead), events...), "]}"...)
			st, err := Read(t.Context(), bytes.NewReader(text), Options{BatchSpans: 3, MemoryLimit: limit}, func(_ context.Context, td ptrace.Traces) error {
				for _, s := range spansOf([]ptrace.Traces{td}) {
					if s.TraceID() == (pcommon.TraceID{}) || s.SpanID() == (pcommon.SpanID{}) {
						t.Fatalf("%q: no identifier", s.Name())
					}
					n++
				}
				return nil
			})
			if err == nil && n != st.Spans {
				t.Fatalf("%d of %d spans", n, st.Spans)
			}
		}
	})
}
