// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package jaeger_test

import (
	"bytes"
	"net/http"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.uber.org/goleak"

	"github.com/otelgpu/otelgpu/config"
	"github.com/otelgpu/otelgpu/test/internal/jaeger"
	"github.com/otelgpu/otelgpu/test/internal/jaeger/jaegertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The project relies on Jaeger's v3 API to return nanoseconds, types, arrays and links as sent.
func TestIntegrationJaegerReturnsSentSpans(t *testing.T) {
	j := jaegertest.Start(t)
	_, err := j.Trace(t.Context(), "0102030405060708090a0b0c0d0e0f10")
	require.ErrorIs(t, err, jaeger.ErrNotFound)

	start := time.Now().Add(-time.Second)
	sent := ptrace.NewTraces()
	rs := sent.ResourceSpans().AppendEmpty()
	rs.Resource().Attributes().PutStr("service.name", "service")
	ss := rs.ScopeSpans().AppendEmpty()
	ss.Scope().SetName("scope")
	s := ss.Spans().AppendEmpty()
	s.SetTraceID(pcommon.TraceID{1, 2, 3})
	s.SetSpanID(pcommon.SpanID{7})
	s.SetName("span")
	s.SetKind(ptrace.SpanKindInternal)
	s.SetStartTimestamp(pcommon.Timestamp(start.UnixNano()))
	s.SetEndTimestamp(s.StartTimestamp() + 1)
	s.Attributes().PutDouble("gpu.duration", 1e-9)
	s.Attributes().PutInt("gpu.io.size", 1<<62)
	s.Attributes().PutEmptySlice("gpu.kernel.grid").AppendEmpty().SetInt(141)
	l := s.Links().AppendEmpty()
	l.SetTraceID(pcommon.TraceID{9})
	l.SetSpanID(pcommon.SpanID{9})
	body, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(sent)
	require.NoError(t, err)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+j.OTLPHTTP+"/v1/traces",
		bytes.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/x-protobuf")
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	resp.Body.Close()
	require.Equal(t, http.StatusOK, resp.StatusCode)

	got, err := j.Trace(t.Context(), s.TraceID().String())
	require.NoError(t, err)
	require.Equal(t, 1, got.SpanCount())
	g := got.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0)
	require.Equal(t, s.StartTimestamp(), g.StartTimestamp())
	require.Equal(t, s.EndTimestamp(), g.EndTimestamp())
	require.Equal(t, s.Attributes().AsRaw(), g.Attributes().AsRaw())
	require.Equal(t, 1, g.Links().Len())

	found, err := j.Find(t.Context(), "service", start.Add(-time.Second), start.Add(time.Second), 10)
	require.NoError(t, err)
	require.Equal(t, 1, found.SpanCount())
	services, err := j.Services(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"service"}, services)
	warnings, err := j.Warnings(t.Context(), s.TraceID().String())
	require.NoError(t, err)
	require.Empty(t, warnings)

	page, err := j.Page(t.Context())
	require.NoError(t, err)
	served := regexp.MustCompile(`JAEGER_CONFIG = (\{.*\});`).FindStringSubmatch(page)
	require.NotNil(t, served, page)
	require.JSONEq(t, string(config.JaegerUI()), served[1], "what is shown first")
}
