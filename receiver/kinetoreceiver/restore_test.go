// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"bytes"
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
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

// Events without identifiers are read as profiler events, along with spans.
func TestEventsWithoutIdentifiersAreRead(t *testing.T) {
	b, st := convert(t, restoredHead+slice(goodIDs)+`,`+step(1, 1000)+`]}`, Options{})
	assert.EqualValues(t, 1, st.Restored)
	find(t, b, "forward")
	find(t, b, "pytorch profile")
	find(t, b, "ProfilerStep#1")
	assert.Len(t, spansOf(b), int(st.Spans))
}

func TestFaultsOfARestoredFileAreCounted(t *testing.T) {
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

// The end of a file defines the resources; the spans of a truncated file have none.
func TestTruncatedFileIsRestoredPartly(t *testing.T) {
	b, st := convert(t, restoredHead+slice(goodIDs)+`,{"ph":`, Options{
		Partial:  true,
		Resource: map[string]string{"service.name": "s"},
	})
	assert.EqualValues(t, 1, st.Restored)
	assert.Len(t, st.Faults, 1)
	assert.Equal(t, map[string]any{
		"service.name":      "s",
		"gpu.trace.partial": "truncated: the file ends at byte 282, after 1 events",
	},
		b[0].ResourceSpans().At(0).Resource().Attributes().AsRaw())
}

func TestValuesHaveABound(t *testing.T) {
	deep := strings.Repeat("[", 500) + strings.Repeat("]", 500)
	var many strings.Builder
	for i := range 2 * maxAttributes {
		many.WriteString(`,"a` + strings.Repeat("b", i%7) + strings.Repeat("c", i/7%70) + strings.Repeat("d", i/490) + `":1`)
	}
	b, st := convert(t, restoredHead+slice(goodIDs+`,"deep":`+deep+many.String())+`]}`, Options{})
	m := find(t, b, "forward").Attributes()
	assert.Equal(t, maxAttributes, m.Len())
	require.Len(t, st.Faults, 1)
	assert.Contains(t, st.Faults[0], strconv.Itoa(2+2*maxAttributes-m.Len())+" attributes omitted",
		"with the device and the deep one")
	v, _ := m.Get("deep")
	for range maxDepth + 1 {
		require.Equal(t, pcommon.ValueTypeSlice, v.Type())
		require.Equal(t, 1, v.Slice().Len())
		v = v.Slice().At(0)
	}
	assert.Equal(t, deep[maxDepth+1:len(deep)-maxDepth-1], v.Str(), "JSON text")
}

// Properties of devices in a file are restored, limited to devices of its spans, up to a maximum number.
func TestDevicesAndFindingsOfARestoredFile(t *testing.T) {
	given := `,{"ph":"i","s":"t","cat":"event","name":"finding","pid":1,"tid":4,"ts":2,"args":{"gpu.finding.kind":"loader","gpu.finding.evidence":"waited",` +
		`"gpu.finding.chain":"a -> b","gpu.finding.share":0.4,"gpu.finding.threshold":0.05,"gpu.finding.gain":1.5,"gpu.finding.certainty":"high","span_id":"a1a2a3a4a5a6a7a8"}}`
	other := strings.Replace(given, `"finding"`, `"other"`, 1)
	_, st := convert(t, restoredHead+slice(goodIDs)+given+`]}`, Options{})
	assert.Empty(t, st.Devices)
	device := slice(goodIDs +
		`,"hw.model":"A100","gpu.window.duration":2.0,"gpu.window.busy.duration":0.5,"gpu.window.compute.duration":1e999`)
	_, st = convert(t, restoredHead+device+other+given+`]}`, Options{})
	assert.Equal(t, []facts.Report{{
		Model: "A100", Window: 2 * time.Second,
		Efficiency: facts.Efficiency{NoPeak: `there is no peak of "A100" in docs/peaks.md`}, Findings: []finding.Finding{{
			Kind: "loader", Subject: "forward", Chain: []string{"a", "b"}, Share: 0.4, Threshold: 0.05, Evidence: "waited",
			Gain: 1500 * time.Millisecond, Certainty: finding.High,
		}},
	}}, st.Devices)
	_, st = convert(t, restoredHead+strings.Repeat(device+strings.Repeat(given, 2)+",",
		2*maxRead)+device+strings.Repeat(given, 2*maxRead)+`]}`, Options{})
	assert.Len(t, st.Devices, maxRead)
	assert.Len(t, st.Devices[0].Findings, 2)
	_, st = convert(t, restoredHead+device+strings.Repeat(given, 2*maxRead)+`]}`, Options{})
	assert.Len(t, st.Devices[0].Findings, maxRead)
}

// FuzzRestore reads any input as a file of gpuspan/chrometrace: it never panics, and every span has identifiers.
func FuzzRestore(f *testing.F) {
	f.Add([]byte(slice(goodIDs)))
	f.Add([]byte(
		slice(goodIDs+
			`,"otel":{"name":"n","end":5,"absent":true,"origin":1,"attributes":{"x":{"double":"NaN"},"y":{"bytes":"AP8="},"z":{"map":{"a":[1.0]}}}}`) +
			`,{"ph":"i","cat":"event","name":"e","ts":1,"args":{"span_id":"a1a2a3a4a5a6a7a8","otel":{"attributes":{}}}}],"otelgpuOrigins":[{"resource":{"a":1}},{"scope":"s"}`))
	f.Add([]byte(slice(goodIDs + `,"otel":"again"`)))
	f.Add([]byte(
		slice(`"trace_id":"zz","links":["x:y",3],"span.kind":null,"otel.status_code":"ERROR","loop":"l","est. achieved occupancy %":"NaN","grid":[[],{}]`)))
	f.Fuzz(func(t *testing.T, events []byte) {
		for _, limit := range []int{0, 1} {
			var n int64
			text := append(append([]byte(restoredHead), events...), "]}"...)
			st, err := Read(t.Context(), bytes.NewReader(text), Options{BatchSpans: 3, MemoryMiB: float64(limit) / (1 << 20)},
				func(_ context.Context, td ptrace.Traces) error {
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
