// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package otlp_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan/internal/sink"
	"github.com/otelgpu/otelgpu/gpuspan/otlp"
)

// OpenTelemetry's variables for exporters apply, the variables of traces before the general ones.
func TestTheEnvironmentConfiguresTheSink(t *testing.T) {
	type request struct {
		header http.Header
		body   []byte
	}
	requests := make(chan request, 1)
	server := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		requests <- request{r.Header, b}
	}))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "ca.pem")
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	require.NoError(t, os.WriteFile(file, certificate, 0o600))

	send := func() request {
		s, err := otlp.New(otlp.Endpoint(server.URL))
		require.NoError(t, err)
		s.Section(&sink.Span{Name: "op", Start: 1, End: 2, Scope: &sink.Scope{Name: "x"}})
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		require.NoError(t, s.Shutdown(ctx))
		select {
		case r := <-requests:
			return r
		default:
			require.FailNow(t, "no request", "%+v", s.Stats())
			return request{}
		}
	}
	t.Setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", file)
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=general,x-only=general")
	plain := send()
	require.Equal(t, "general", plain.header.Get("X-Tenant"))
	require.Empty(t, plain.header.Get("Content-Encoding"))

	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "x-tenant=traces")
	t.Setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
	packed := send()
	require.Equal(t, "traces", packed.header.Get("X-Tenant"))
	require.Empty(t, packed.header.Get("X-Only"))
	require.Equal(t, "gzip", packed.header.Get("Content-Encoding"))
	r, err := gzip.NewReader(bytes.NewReader(packed.body))
	require.NoError(t, err)
	body, err := io.ReadAll(r)
	require.NoError(t, err)
	require.Len(t, body, len(plain.body))
}

func TestTheEnvironmentSetsTheTimeout(t *testing.T) {
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer server.Close()
	defer close(release)
	t.Setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "600000")
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "20")
	s, err := otlp.New(otlp.Endpoint(server.URL), otlp.RetryFor(time.Millisecond))
	require.NoError(t, err)
	s.Section(&sink.Span{Name: "op", Start: 1, End: 2, Scope: &sink.Scope{Name: "x"}})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_ = s.Shutdown(ctx)
	require.NoError(t, ctx.Err(), "the request ended at its limit of 20 ms")
}

func TestInvalidVariablesAreErrors(t *testing.T) {
	for name, value := range map[string]string{
		"OTEL_EXPORTER_OTLP_TIMEOUT":            "10s",
		"OTEL_EXPORTER_OTLP_COMPRESSION":        "zstd",
		"OTEL_EXPORTER_OTLP_CERTIFICATE":        filepath.Join(t.TempDir(), "missing.pem"),
		"OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE": filepath.Join(t.TempDir(), "missing.pem"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, value)
			s, err := otlp.New()
			require.ErrorContains(t, err, name)
			require.NoError(t, s.Shutdown(context.Background()))
		})
	}
}
