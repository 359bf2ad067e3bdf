// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpusamplesextension

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
)

func TestTheListenerOnAPortIsFound(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there is no /proc")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port := uint16(l.Addr().(*net.TCPAddr).Port)
	assert.EqualValues(t, os.Getpid(), listener("/proc", port))
	require.NoError(t, l.Close())
	assert.Zero(t, listener("/proc", port))
	assert.Zero(t, listener(t.TempDir(), port))
}

// A server without spans has energy and tokens a few seconds after the start.
func TestServersHaveEnergyAndTokensWithoutSpans(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("vllm:num_requests_running 2\nvllm:generation_tokens_total{model_name=\"m\"} 7\n"))
	}))
	defer server.Close()
	cfg := *createDefaultConfig().(*Config)
	cfg.Servers = []ServerConfig{{Endpoint: server.URL + "/metrics", Interval: minInterval, Devices: []string{"GPU-1"}}}
	require.NoError(t, cfg.Validate())
	x, err := newSamples(cfg, componenttest.NewNopTelemetrySettings())
	require.NoError(t, err)
	require.NoError(t, x.Start(t.Context(), componenttest.NewNopHost()))
	dev, err := x.Register(component.MustNewID("gpu"), devicesamples.Device{ID: "GPU-1", Interval: 10 * time.Millisecond, Ordinal: -1})
	require.NoError(t, err)
	defer dev.Close()
	start := time.Now()
	require.Eventually(t, func() bool {
		now := time.Now()
		s := devicesamples.Sample{Time: now.UnixNano()}
		s.Set(devicesamples.Energy, 100*now.Sub(start).Seconds())
		dev.Write([]devicesamples.Sample{s})
		metrics := pmetric.NewMetricSlice()
		x.ServerMetrics(metrics, now.UnixNano())
		for _, m := range metrics.All() {
			if m.Name() == "gpu.server.energy" {
				for _, p := range m.Sum().DataPoints().All() {
					if state, _ := p.Attributes().Get("gpu.server.state"); state.Str() == "active" && p.DoubleValue() > 0 {
						return true
					}
				}
			}
		}
		return false
	}, 30*time.Second, 10*time.Millisecond)
	require.NoError(t, x.Shutdown(t.Context()))
}
