// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/test/internal/otelcol"
	"github.com/otelgpu/otelgpu/test/internal/program"
)

const tempoConfig = `
server: {http_listen_address: 127.0.0.1, http_listen_port: %s, grpc_listen_address: 127.0.0.1, grpc_listen_port: %s}
distributor: {receivers: {otlp: {protocols: {grpc: {endpoint: %q}}}}}
ingester:
  trace_idle_period: 1s
  lifecycler: {address: 127.0.0.1, ring: {replication_factor: 1, kvstore: {store: inmemory}}}
storage: {trace: {backend: local, wal: {path: %q}, local: {path: %q}}}
usage_report: {reporting_enabled: false}
`

// Every query of dashboards and documents is one that Tempo takes, and those about what the demo shows find it.
func TestTempoTakesTheQueriesAndFindsTheDemo(t *testing.T) {
	path, err := exec.LookPath(cmp.Or(os.Getenv("OTELGPU_TEMPO"), "tempo"))
	if err != nil {
		t.Skip("no Tempo: it is neither in the path, nor does OTELGPU_TEMPO name it")
	}
	base, otlp := freeAddress(t), freeAddress(t)
	_, http1, _ := strings.Cut(base, ":")
	_, grpc, _ := strings.Cut(freeAddress(t), ":")
	dir := t.TempDir()
	file := filepath.Join(dir, "tempo.yaml")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, tempoConfig, http1, grpc, otlp, filepath.Join(dir, "wal"),
		filepath.Join(dir, "blocks")), 0o600))
	tempo, err := program.Start(t.Context(), path, []string{"-config.file=" + file}, nil)
	require.NoError(t, err)
	get := func(path string) (status int, body string) {
		resp, err := http.Get("http://" + base + path)
		if err != nil {
			return 0, err.Error()
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(b)
	}
	require.Eventually(t, func() bool { status, _ := get("/ready"); return status == http.StatusOK }, 2*time.Minute,
		time.Second, "%s", tempo.Output())

	begin := time.Now()
	demo, err := program.Start(t.Context(), otelcol.Build(t), []string{
		"demo", "--simulated", "--duration", "10s", "--out", filepath.Join(dir, "out"), "--otlp", otlp,
	}, nil)
	require.NoError(t, err)
	require.NoError(t, demo.Wait(time.Minute), demo.Output())

	found := 0
	for _, q := range traceQueries(t) {
		at, list := "/api/search?limit=20", "traces"
		if strings.Contains(q.text, "_over_time(") {
			at, list = "/api/metrics/query_range?step=10s", "series"
		}
		at += fmt.Sprintf("&start=%d&end=%d&q=%s", begin.Add(-time.Minute).Unix(), begin.Add(5*time.Minute).Unix(),
			url.QueryEscape(q.text))
		status, body := get(at)
		require.Equal(t, http.StatusOK, status, "%s: %s: %s", q.where, q.text, body)
		if list != "traces" || !shownByTheDemo(q.text) {
			continue
		}
		found++
		require.Eventually(t, func() bool {
			var got map[string]json.RawMessage
			_, body = get(at)
			return json.Unmarshal([]byte(body), &got) == nil && len(got[list]) > len("[]")
		}, time.Minute, time.Second, "%s: %s finds nothing", q.where, q.text)
	}
	require.Greater(t, found, 3)
}

// shownByTheDemo says whether the demo's story has what the query asks for, and the query names no job and no trace.
func shownByTheDemo(text string) bool {
	for _, part := range []string{
		`= "pageable" }`, `throttle.time > 0.0 }`, `operation.type = "share" }`, `straggler.score > 1.0 }`,
	} {
		if strings.Contains(text, part) {
			return true
		}
	}
	return false
}
