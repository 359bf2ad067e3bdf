// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package benchmarks

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/open-telemetry/opentelemetry-collector-contrib/exporter/prometheusexporter"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/exportertest"
)

// prometheusPage returns the upstream prometheus exporter and a function that reads its page, with
// the problems that the linter of `promtool check metrics` finds.
func prometheusPage(t *testing.T) (exporter.Metrics, func() ([]byte, []promlint.Problem)) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	endpoint := l.Addr().String()
	require.NoError(t, l.Close())
	ef := prometheusexporter.NewFactory()
	ecfg := ef.CreateDefaultConfig()
	require.NoError(t, confmap.NewFromStringMap(map[string]any{"endpoint": endpoint}).Unmarshal(ecfg))
	exp, err := ef.CreateMetrics(context.Background(), exportertest.NewNopSettings(ef.Type()), ecfg)
	require.NoError(t, err)
	require.NoError(t, exp.Start(context.Background(), componenttest.NewNopHost()))
	t.Cleanup(func() { require.NoError(t, exp.Shutdown(context.Background())) })
	return exp, func() ([]byte, []promlint.Problem) {
		t.Helper()
		resp, err := http.Get("http://" + endpoint + "/metrics") //nolint:noctx // a test's own server
		require.NoError(t, err)
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		problems, err := promlint.New(bytes.NewReader(text)).Lint()
		require.NoError(t, err)
		return text, problems
	}
}
