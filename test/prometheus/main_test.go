// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/prometheus/config"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
)

// Tests rely on this: a request is stored and acknowledged, and one with another value at an
// existing time is rejected, and counted with its reason.
func TestItAcceptsRespondsAndRejectsAsPrometheusDoes(t *testing.T) {
	cfg := config.DefaultConfig
	s, err := newServer(t.TempDir(), &cfg, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	defer s.db.Close()
	go s.scraper.run()
	defer s.scraper.stop()
	web := httptest.NewServer(s.routes(slog.New(slog.DiscardHandler)))
	defer web.Close()

	at := time.Now().Truncate(time.Millisecond)
	push := func(joules float64) int {
		md := pmetric.NewMetrics()
		rm := md.ResourceMetrics().AppendEmpty()
		rm.Resource().Attributes().PutStr("service.name", "trainer")
		m := rm.ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
		m.SetName("gpu.operation.energy")
		m.SetUnit("J")
		m.SetEmptySum().SetIsMonotonic(true)
		m.Sum().SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
		p := m.Sum().DataPoints().AppendEmpty()
		p.SetTimestamp(pcommon.NewTimestampFromTime(at))
		p.SetDoubleValue(joules)
		b, err := (&pmetric.ProtoMarshaler{}).MarshalMetrics(md)
		require.NoError(t, err)
		r, err := http.Post(web.URL+"/api/v1/otlp/v1/metrics", "application/x-protobuf", bytes.NewReader(b))
		require.NoError(t, err)
		require.NoError(t, r.Body.Close())
		return r.StatusCode
	}
	get := func(path string, into any) {
		r, err := http.Get(web.URL + path)
		require.NoError(t, err)
		defer r.Body.Close()
		require.Equal(t, http.StatusOK, r.StatusCode, path)
		require.NoError(t, json.NewDecoder(r.Body).Decode(into))
	}
	require.Equal(t, http.StatusOK, push(7))
	require.Equal(t, http.StatusOK, push(7), "the same value again is none")
	require.Equal(t, http.StatusBadRequest, push(8))
	at = at.Add(time.Second)
	require.Equal(t, http.StatusOK, push(9))

	var answers map[string]int
	get("/answers", &answers)
	require.Equal(t, 3, answers["200 "])
	require.Len(t, answers, 2, "%v", answers)
	var found []series
	get("/samples?match="+url.QueryEscape(`{job="trainer",__name__="gpu_operation_energy_joules_total"}`), &found)
	require.Len(t, found, 1)
	ms := float64(at.UnixMilli())
	require.Equal(t, [][2]float64{{ms - 1000, 7}, {ms, 9}}, found[0].Samples)
	get("/api/v1/query?time="+strconv.FormatFloat(ms/1000, 'f', 3, 64)+"&query="+
		url.QueryEscape("sum(gpu_operation_energy_joules_total) / 3"), &found)
	require.Equal(t, [][2]float64{{ms, 3}}, found[0].Samples)

	r, err := http.Get(web.URL + "/api/v1/query?time=now&query=1")
	require.NoError(t, err)
	require.NoError(t, r.Body.Close())
	require.Equal(t, http.StatusBadRequest, r.StatusCode)
}
