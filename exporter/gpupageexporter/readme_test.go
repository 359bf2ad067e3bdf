// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpupageexporter

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/exporter/exportertest"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/exporter/gpupageexporter/internal/metadata"
	"github.com/otelgpu/otelgpu/internal/page"
)

func TestTheReadmeNamesTheKeys(t *testing.T) {
	b, err := os.ReadFile("README.md")
	require.NoError(t, err)
	for _, key := range []string{"`endpoint` (default `" + defaultEndpoint + "`)", "`trace_url` (default `\"\"`)", "`hosts` (default `[]`)"} {
		assert.Contains(t, string(b), key)
	}
}

func TestBothSignalsAreOnePage(t *testing.T) {
	cfg := createDefaultConfig().(*Config)
	cfg.NetAddr.Endpoint = free(t)
	m := page.New()
	f, set := NewFactory(WithModel(m)), exportertest.NewNopSettings(metadata.Type)
	tr, err := f.CreateTraces(t.Context(), set, cfg)
	require.NoError(t, err)
	me, err := f.CreateMetrics(t.Context(), set, cfg)
	require.NoError(t, err)
	require.NoError(t, tr.Start(t.Context(), componenttest.NewNopHost()))
	require.NoError(t, me.Start(t.Context(), componenttest.NewNopHost()))
	require.NoError(t, tr.ConsumeTraces(t.Context(), ptrace.NewTraces()))
	consumed := func(requests uint64) func() bool { return func() bool { return m.Generation() == requests } }
	require.Eventually(t, consumed(1), time.Minute, time.Millisecond, "the model that the program reads, too")
	require.NoError(t, me.ConsumeMetrics(t.Context(), pmetric.NewMetrics()))
	require.Eventually(t, consumed(2), time.Minute, time.Millisecond)
	r, err := http.Get("http://" + cfg.NetAddr.Endpoint + "/api/state")
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, r.StatusCode)
	require.NoError(t, r.Body.Close())

	// An open page does not delay the Collector's shutdown.
	events, err := http.Get("http://" + cfg.NetAddr.Endpoint + "/api/events")
	require.NoError(t, err)
	defer events.Body.Close()
	for range 100 {
		require.NoError(t, tr.ConsumeTraces(t.Context(), ptrace.NewTraces()))
	}
	require.NoError(t, tr.Shutdown(t.Context()))
	assert.EqualValues(t, 102, m.Generation(), "the queue is emptied before the end")
	r, err = http.Get("http://" + cfg.NetAddr.Endpoint + "/")
	require.NoError(t, err, "the other signal still feeds it")
	require.NoError(t, r.Body.Close())
	require.NoError(t, me.Shutdown(t.Context()))
	_, err = http.Get("http://" + cfg.NetAddr.Endpoint + "/")
	require.Error(t, err)
}

// A client that does not finish its request does not keep the Collector from stopping.
func TestAnUnfinishedRequestDoesNotDelayTheShutdown(t *testing.T) {
	cfg := createDefaultConfig().(*Config)
	cfg.NetAddr.Endpoint, cfg.ReadHeaderTimeout = free(t), 0
	tr, err := NewFactory().CreateTraces(t.Context(), exportertest.NewNopSettings(metadata.Type), cfg)
	require.NoError(t, err)
	require.NoError(t, tr.Start(t.Context(), componenttest.NewNopHost()))
	c, err := net.Dial("tcp", cfg.NetAddr.Endpoint)
	require.NoError(t, err)
	defer c.Close()
	_, err = c.Write([]byte("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"))
	require.NoError(t, err)
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, r.Body)
	require.NoError(t, err)
	_, err = c.Write([]byte("GET / HTTP"))
	require.NoError(t, err)
	require.NoError(t, tr.Shutdown(t.Context()))
	_, err = c.Read(make([]byte, 1))
	require.Error(t, err, "the connection is closed")
}

func TestATakenPortIsNamed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	cfg := createDefaultConfig().(*Config)
	cfg.NetAddr.Endpoint = l.Addr().String()
	tr, err := NewFactory().CreateTraces(t.Context(), exportertest.NewNopSettings(metadata.Type), cfg)
	require.NoError(t, err)
	require.ErrorContains(t, tr.Start(t.Context(), componenttest.NewNopHost()),
		"cannot serve the page at "+l.Addr().String())
	require.NoError(t, tr.Shutdown(context.WithoutCancel(t.Context())))
}

func TestConfigIsChecked(t *testing.T) {
	cfg := createDefaultConfig().(*Config)
	require.NoError(t, cfg.Validate())
	for _, bad := range []string{"javascript:{traceID}", "http://x/trace", "://"} {
		cfg.TraceURL = bad
		require.ErrorContains(t, cfg.Validate(), "`trace_url` must be a http or https address with {traceID}")
	}
	cfg.TraceURL = "https://x/{traceID}"
	require.NoError(t, cfg.Validate())
	assert.True(t, strings.HasPrefix(defaultEndpoint, "127.0.0.1:"), "loopback unless told")
	assert.Zero(t, cfg.WriteTimeout, "a page is open for longer")
	cfg.Hosts = []string{"GPU.example.com", "gpu.example.com:80"}
	require.ErrorContains(t, cfg.Validate(), "`hosts::1` must be a host name")
	cfg.NetAddr.Endpoint = ""
	require.ErrorContains(t, cfg.Validate(), "`endpoint` must not be empty")
}

func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}
