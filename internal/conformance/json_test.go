// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

func TestRequestsAreReadLineByLine(t *testing.T) {
	td, _, s := good()
	right, err := new(ptrace.JSONMarshaler).MarshalTraces(td)
	require.NoError(t, err)
	s.Attributes().PutStr("gpu.timing.source", "tsc")
	wrong, err := new(ptrace.JSONMarshaler).MarshalTraces(td)
	require.NoError(t, err)
	energy := `{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"name":"hw.energy","unit":"kJ","sum":{"isMonotonic":true,
		"aggregationTemporality":2,"dataPoints":[{"asDouble":1,"attributes":[{"key":"hw.id","value":{"stringValue":"GPU-1"}}]}]}}]}]}]}`
	record := `{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"eventName":"gpu.boom"}]}]}]}`
	file := strings.Join([]string{string(right), string(wrong), energy, "", record, string(wrong)}, "\n")
	var r Report
	var first []string
	r.Found = func(c *Violation) { first = append(first, c.Where) }
	require.NoError(t, r.JSON("spans.json", strings.NewReader(file)))
	got := texted(&r)
	require.Len(t, got, 3)
	assert.True(t, strings.HasPrefix(got[0],
		`spans.json:2: span "attention": attribute gpu.timing.source: "tsc" is not one of`), got[0])
	assert.True(t, strings.HasSuffix(got[0], "[2 times]"), got[0])
	assert.Equal(t, `spans.json:3: metric hw.energy: unit "kJ", want "J"`, got[1])
	assert.True(t, strings.HasPrefix(got[2], `spans.json:6: log record "gpu.boom"`), got[2])
	assert.Len(t, first, 3)
	var b strings.Builder
	r.Summary(&b)
	assert.Equal(t, "3 spans (3 GPU-related), 1 metric points, 1 log records: 4 violations of 3 kinds\n",
		b.String())
}

func TestInvalidOTLPIsRejectedWithItsLine(t *testing.T) {
	for in, want := range map[string]string{
		"{\"resourceSpans\":[]}\n\nhello":   `cannot read f as JSON after line 1: `,
		"{\"resourceSpans\":[]}\n{\"a\":1}": `cannot read f:2 as OTLP: it has neither resourceSpans nor resourceMetrics nor resourceLogs`,
		"[]":                                `cannot read f:1 as OTLP: a request must be a JSON object`,
		"{\"resourceSpans\":[":              `cannot read f as JSON after line 1: `,
		"{\"resourceSpans\":7}":             `cannot read f:1 as OTLP: `,
	} {
		require.ErrorContains(t, new(Report).JSON("f", strings.NewReader(in)), want)
	}
	var r Report
	require.NoError(t, r.JSON("f", strings.NewReader("\ufeff{\"resourceSpans\":[]}\r\n")), "as Windows begins and ends")
	require.NoError(t, r.JSON("f", strings.NewReader("")))
	var b strings.Builder
	r.Summary(&b)
	assert.Contains(t, b.String(), "nothing to check")
}

func TestDifferentViolationsAreLimited(t *testing.T) {
	var r Report
	for i := range 2 * maxViolations {
		r.violation("x", "", strings.Repeat("a", i), "")
	}
	assert.Len(t, r.Violations(), maxViolations)
	assert.EqualValues(t, maxViolations, r.More)
}

func FuzzJSON(f *testing.F) {
	td, _, _ := good()
	b, err := new(ptrace.JSONMarshaler).MarshalTraces(td)
	require.NoError(f, err)
	f.Add(b)
	f.Add([]byte(`{"resourceMetrics":[]}{"resourceLogs":[{}]}`))
	f.Fuzz(func(_ *testing.T, in []byte) {
		r := Report{Strict: true}
		_ = r.JSON("f", strings.NewReader(string(in)))
	})
}
