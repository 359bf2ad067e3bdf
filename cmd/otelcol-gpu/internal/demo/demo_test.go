// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

func TestConcurrentDemosHaveSeparatePages(t *testing.T) {
	addresses := map[string]bool{}
	for range 3 {
		l, err := listenForPage()
		require.NoError(t, err)
		defer l.Close()
		addresses[l.Addr().String()] = true
	}
	require.Len(t, addresses, 3)
}

// A request's span starts when it arrives, so requests that arrive before the end are served after
// it.
func TestRequestsThatArrivedAreServedWhenTheTimeIsOver(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)).Tracer("demo")
	s := &service{tracer: tracer, queue: make(chan *request)}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		s.arrive(ctx, time.Hour)
		close(s.queue)
	}()
	require.Eventually(t, func() bool { return len(spans.Started()) > 2 }, time.Minute, time.Millisecond)
	cancel()
	require.Never(t, func() bool { return len(spans.Ended()) > 0 }, 50*time.Millisecond, time.Millisecond)
	served := 0
	for r := range s.queue {
		served++
		close(r.done)
	}
	require.Len(t, spans.Ended(), served)
}

func TestAStoreThatDoesNotListenIsAnErrorAtTheStart(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := l.Addr().String()
	for _, to := range []string{address, "http://" + address} {
		var f files
		require.NoError(t, f.send(to))
		assert.Equal(t, to, f.Endpoint)
	}
	require.NoError(t, l.Close())
	for _, to := range []string{address, "http://" + address} {
		require.ErrorContains(t, new(files).send(to), "cannot reach the trace store of `--otlp` at "+to)
	}
	require.ErrorContains(t, new(files).send("nonsense"), "host:port")
}
