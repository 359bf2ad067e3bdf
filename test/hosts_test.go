// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A web site that resolves its name to 127.0.0.1 neither reads metrics nor sends spans through a
// user's browser.
func TestLocalListenersRejectOtherHosts(t *testing.T) {
	t.Parallel()
	p := newPorts(t)
	startCollector(t, buildCollector(t), p.env, ready(t, "all-in-one"), device)
	ask := func(method, url, host, body string) (int, string) {
		r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
		require.NoError(t, err)
		r.Host = host
		r.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(text)
	}
	const spans = `{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"%032x","spanId":"%016x","name":"%s",` +
		`"startTimeUnixNano":"1","endTimeUnixNano":"2","attributes":[{"key":"gpu.operation.type","value":{"stringValue":"section"}}]}]}]}]}`
	for i, tt := range []struct {
		host string
		want int
	}{
		{"", 200},
		{"localhost:4318", 200},
		{"evil.example", 403},
		{"evil.example:4318", 403},
		{"127.0.0.1.evil.example", 403},
		{"localhost.evil.example", 403},
		{"0x7f000001", 403},
	} {
		for _, url := range []string{"http://" + p.http + "/v1/traces", "http://" + p.metrics + "/metrics"} {
			method, body := http.MethodGet, ""
			if strings.HasSuffix(url, "traces") {
				method, body = http.MethodPost, fmt.Sprintf(spans, i+1, i+1, "asked for by "+tt.host)
			}
			status, text := ask(method, url, tt.host, body)
			require.Equal(t, tt.want, status, "%s of %q: %s", url, tt.host, text)
			if tt.want == http.StatusForbidden {
				require.NotContains(t, text, "# TYPE")
			}
		}
	}
}
