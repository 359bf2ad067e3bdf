// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package otlp

import (
	"context"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type store struct {
	collector.UnimplementedTraceServiceServer
	got chan *collector.ExportTraceServiceRequest
}

func (s *store) Export(
	_ context.Context, r *collector.ExportTraceServiceRequest,
) (*collector.ExportTraceServiceResponse, error) {
	s.got <- r
	return &collector.ExportTraceServiceResponse{}, nil
}

func TestSpansOfTheServiceArrive(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &store{got: make(chan *collector.ExportTraceServiceRequest, 1)}
	server := grpc.NewServer()
	collector.RegisterTraceServiceServer(server, s)
	go func() { _ = server.Serve(l) }()
	defer server.Stop()

	p, err := Provider(t.Context(), "http://"+l.Addr().String(), "trainer")
	require.NoError(t, err)
	_, span := p.Tracer("t").Start(t.Context(), "step")
	require.True(t, span.IsRecording())
	span.End()
	require.NoError(t, p.Shutdown(t.Context()), "what is there is sent first")
	rs := (<-s.got).ResourceSpans[0]
	require.Equal(t, "service.name", rs.Resource.Attributes[0].Key)
	require.Equal(t, "trainer", rs.Resource.Attributes[0].Value.GetStringValue())
	require.Equal(t, "step", rs.ScopeSpans[0].Spans[0].Name)
}

func TestWithoutAnEndpointNothingIsRecorded(t *testing.T) {
	p, err := Provider(t.Context(), "", "trainer")
	require.NoError(t, err)
	_, span := p.Tracer("t").Start(t.Context(), "step")
	require.False(t, span.IsRecording())
	require.NoError(t, p.Shutdown(t.Context()))
}
