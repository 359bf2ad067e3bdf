// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package hostcheckextension

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/config/configmiddleware"
	"go.opentelemetry.io/collector/extension/extensiontest"

	"github.com/otelgpu/otelgpu/extension/hostcheckextension/internal/metadata"
	"github.com/otelgpu/otelgpu/internal/metrictest"
)

// wrapped returns the handler as wrapped by confighttp, and the extension's metrics.
func wrapped(t *testing.T, cfg *Config, base http.Handler) (http.Handler, *componenttest.Telemetry) {
	t.Helper()
	tel := componenttest.NewTelemetry()
	t.Cleanup(func() { require.NoError(t, tel.Shutdown(context.WithoutCancel(t.Context()))) })
	set := extensiontest.NewNopSettings(metadata.Type)
	set.TelemetrySettings = tel.NewTelemetrySettings()
	e, err := NewFactory().Create(t.Context(), set, cfg)
	require.NoError(t, err)
	id := component.NewID(metadata.Type)
	wrap, err := configmiddleware.Config{ID: id}.GetHTTPServerHandler(t.Context(), map[component.ID]component.Component{id: e})
	require.NoError(t, err)
	h, err := wrap(t.Context(), base)
	require.NoError(t, err)
	return h, tel
}

func TestRequestsToLoopbackMustNameThisMachine(t *testing.T) {
	reached := 0
	h, tel := wrapped(t, &Config{Hosts: []string{"GPU.example."}}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		reached++
		_, _ = io.WriteString(w, "secret")
	}))
	srv := httptest.NewServer(h)
	defer srv.Close()
	rejected := int64(0)
	for host, want := range map[string]int{
		"localhost:4318": 200, "LOCALHOST": 200, "localhost.": 200, "a.localhost:1": 200, "127.0.0.1": 200, "[::1]:4318": 200,
		"192.0.2.7:4318": 200, "gpu.example:4318": 200, "Gpu.Example": 200,
		"evil.example": 403, "evil.example:4318": 403, "localhost.evil.example": 403, "127.0.0.1.evil.example": 403,
		"evil.example.localhost.evil": 403, "notlocalhost": 403, "a.gpu.example": 403, "1.2.3": 403, "0x7f000001": 403,
		"2130706433": 403, "localhost@evil.example": 403, `">`: 403, "127.0.0.1:4318@evil.example": 403,
	} {
		before := reached
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+"/v1/traces", nil)
		require.NoError(t, err)
		r.Host = host
		resp, err := srv.Client().Do(r)
		require.NoError(t, err)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		if resp.StatusCode == http.StatusBadRequest && want == http.StatusForbidden {
			continue // net/http itself rejects the header
		}
		assert.Equal(t, want, resp.StatusCode, host)
		if want == http.StatusForbidden {
			rejected++
			assert.NotContains(t, string(body), "secret", host)
			assert.Equal(t, before, reached, "%s reached the server", host)
		}
	}
	require.Positive(t, rejected)
	assert.Equal(t, map[string]float64{"": float64(rejected)},
		metrictest.Sum(t, tel, "otelcol_extension_host_check_rejected"))
}

// HTTP/1.0 has no Host header; browsers always send it.
func TestRequestsWithoutHostAreRejected(t *testing.T) {
	h, _ := wrapped(t, &Config{}, http.NotFoundHandler())
	r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	r.Host = ""
	r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	assert.Equal(t, http.StatusForbidden, w.Code)
}

func TestRequestsToOtherAddressesAreNotChecked(t *testing.T) {
	h, _ := wrapped(t, &Config{}, http.NotFoundHandler())
	for address, want := range map[string]int{"10.1.2.3": 404, "2001:db8::1": 404, "127.9.9.9": 403, "::1": 403, "::ffff:127.0.0.1": 403} {
		r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
		r.Host = "collector.monitoring.svc"
		r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, &net.TCPAddr{IP: net.ParseIP(address)}))
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		assert.Equal(t, want, w.Code, address)
	}
}
