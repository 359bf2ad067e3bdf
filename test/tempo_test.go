// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/test/internal/integration"
	"github.com/otelgpu/otelgpu/test/internal/program"
)

const tempoConfig = `
server: {http_listen_address: 127.0.0.1, http_listen_port: %s, grpc_listen_address: 127.0.0.1, grpc_listen_port: %s}
distributor: {receivers: {otlp: {protocols: {grpc: {endpoint: %q}}}}}
storage: {trace: {backend: local, wal: {path: %q}, local: {path: %q}}}
usage_report: {reporting_enabled: false}
`

// Tempo accepts every query of dashboards and documents, and queries about the demo's content find
// it.
func TestIntegrationTempoAcceptsTheQueriesAndFindsTheDemo(t *testing.T) {
	integration.Need(t)
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
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		status, _ := get("/ready")
		assert.Equal(c, http.StatusOK, status, tempo.Output())
	}, 2*time.Minute, time.Second)

	begin := time.Now()
	demo, err := program.Start(t.Context(), buildCollector(t), []string{
		"demo", "--duration", "10s", "--out", filepath.Join(dir, "out"), "--otlp", otlp,
	}, nil)
	require.NoError(t, err)
	require.NoError(t, demo.Wait(time.Minute), demo.Output())

	for _, q := range traceQueries(t) {
		text := strings.ReplaceAll(q.text, `= "x"`, `=~ ".*"`) // the value for a dashboard's variable
		at, found := "/api/search?limit=20", regexp.MustCompile(`"traceID":`)
		if strings.Contains(text, "_over_time(") {
			at, found = "/api/metrics/query_range?step=10s", regexp.MustCompile(`"timestampMs":"\d+","value":[\d.]*[1-9]`)
		}
		at += fmt.Sprintf("&start=%d&end=%d&q=%s", begin.Add(-time.Minute).Unix(), begin.Add(5*time.Minute).Unix(),
			url.QueryEscape(text))
		status, body := get(at)
		require.Equal(t, http.StatusOK, status, "%s: %s: %s", q.where, text, body)
		if !notInTheDemo.MatchString(text) {
			require.EventuallyWithT(t, func(c *assert.CollectT) {
				_, body := get(at)
				assert.Regexp(c, found, body, "%s: %s", q.where, text)
			}, time.Minute, time.Second)
		}
	}
}

// notInTheDemo matches queries for content that the demo lacks: launches that are longer than their
// work for over a millisecond, an XID, a queue of over 100 ms, and a job and a trace of other
// names.
var notInTheDemo = regexp.MustCompile(`bound = "launch"|gpu\.xid|queue\.duration > 0\.1|= "slurm-48213"|link:traceID`)
