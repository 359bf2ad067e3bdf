// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"flag"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"

	"github.com/otelgpu/otelgpu/gpuspan/settings"
)

func TestMain(m *testing.M) {
	defer http.DefaultClient.CloseIdleConnections()
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("internal/poll.runtime_pollWait"),
		goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"))
}

func TestEveryRequestIsLinkedFromItsIterations(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	var out strings.Builder
	c := config{listen: "localhost:0", requests: 30, simulated: true, settings: settings.Default()}
	require.NoError(t, run(context.Background(), c, &out, spans))
	assert.Contains(t, out.String(), "running on a simulated GPU")
	assert.Contains(t, out.String(), "prefill")

	iterations := map[trace.SpanID]bool{}
	tokens := map[string]map[trace.SpanID]int64{"prefill": {}, "decode": {}}
	links := map[string]map[trace.SpanID]int{"prefill": {}, "decode": {}}
	largest := 0
	for _, s := range spans.Ended() {
		if s.Name() == "iteration" {
			iterations[s.SpanContext().SpanID()] = true
			assert.False(t, s.Parent().IsValid())
		}
		if links[s.Name()] == nil {
			continue
		}
		whole, parts := items(s.Attributes()), int64(0)
		for _, l := range s.Links() {
			id := l.SpanContext.SpanID()
			links[s.Name()][id]++
			part := items(l.Attributes)
			if len(l.Attributes) == 0 { // equal parts
				part = whole / int64(len(s.Links()))
			}
			parts += part
			tokens[s.Name()][id] += part
		}
		largest = max(largest, len(s.Links()))
		assert.Equal(t, whole, parts)
	}
	served := 0
	for _, s := range spans.Ended() {
		id := s.SpanContext().SpanID()
		switch {
		case s.SpanKind() == trace.SpanKindServer:
			served++
			assert.Equal(t, 1, links["prefill"][id], "a prompt is processed once")
			assert.GreaterOrEqual(t, tokens["prefill"][id], int64(20))
			assert.GreaterOrEqual(t, links["decode"][id], 3, "the first token is the prefill's")
			assert.EqualValues(t, links["decode"][id], tokens["decode"][id])
		case s.Name() == "prefill" || s.Name() == "decode":
			assert.True(t, iterations[s.Parent().SpanID()])
		}
	}
	assert.Equal(t, 30, served)
	assert.Greater(t, largest, 1, "requests share iterations")
}

func TestBadRequestsAreRefused(t *testing.T) {
	s := &server{queue: make(chan *request)} // never served
	h := s.handler(sdktrace.NewTracerProvider())
	for _, tt := range []struct {
		body string
		code int
		want string
	}{
		{"{", 400, "cannot read the request"},
		{`{"prompt": "", "max_tokens": 3}`, 400, "found 0 and 3"},
		{`{"prompt": "a b", "max_tokens": 9999}`, 400, "found 2 and 9999"},
		{`{"prompt": "a b", "max_tokens": 3}`, 503, "too many requests wait"},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/generate", strings.NewReader(tt.body)))
		assert.Equal(t, tt.code, w.Code, tt.body)
		assert.Contains(t, w.Body.String(), tt.want)
	}
}

// items returns gpu.operation.items.
func items(kv []attribute.KeyValue) int64 {
	i := slices.IndexFunc(kv, func(a attribute.KeyValue) bool { return a.Key == "gpu.operation.items" })
	if i < 0 {
		return 0
	}
	return kv[i].Value.AsInt64()
}

func TestEnvironmentSwitchesTimingOff(t *testing.T) {
	t.Setenv("GPUSPAN_ENABLED", "false")
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	c := newConfig(flags)
	require.NoError(t, flags.Parse([]string{"-simulated", "-requests", "5"}))
	spans := tracetest.NewSpanRecorder()
	var out strings.Builder
	require.NoError(t, run(context.Background(), *c, &out, spans))
	for _, s := range spans.Ended() {
		assert.NotContains(t, []string{"iteration", "prefill", "decode"}, s.Name())
	}
	assert.Contains(t, out.String(), "no section has finished")
}
