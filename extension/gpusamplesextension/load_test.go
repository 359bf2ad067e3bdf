// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpusamplesextension

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

func TestLoadLevelsAreTheReadings(t *testing.T) {
	st := NewStore(NewDefaultConfig(), nil)
	for i, n := range []float64{1, 3, 2} {
		st.WriteLoad(LoadSeries{Service: "vllm", Source: "http://a/metrics{engine=0}"}, int64(100+10*i)*second, n)
	}
	st.WriteLoad(LoadSeries{Service: "vllm", Source: "http://a/metrics{engine=1}"}, 110*second, 5)
	st.WriteLoad(LoadSeries{Service: "vllm", Source: "http://a/metrics{engine=1}"}, 109*second, 9) // older than the newest: dropped
	st.WriteLoad(LoadSeries{Service: "vllm", Source: "http://a/metrics{engine=1}"}, 119*second, -1)
	name, ok := st.LoadOf("vllm")
	require.True(t, ok)
	assert.Equal(t, "vllm", name)
	_, ok = st.LoadOf("other")
	assert.False(t, ok)
	assert.Equal(t, []LoadLevel{
		{60 * second, LoadLapsed},
		{70 * second, LoadAhead},
		{100 * second, 6},
		{110 * second, 8},
		{120 * second, 7},
		{150 * second, LoadLapsed},
	}, st.LoadLevels("vllm", 60*second, 149*second, nil), "of a series without a reading, the larger one around")
	assert.Equal(t, []LoadLevel{{100 * second, 6}, {110 * second, 8}, {120 * second, 7}},
		st.LoadLevels("vllm", 105*second, 115*second, nil), "the one before and the one after, too")
	assert.True(t, st.LoadKnown("vllm", 75*second, 145*second))
	assert.True(t, st.LoadKnown("vllm", 101*second, 110*second))
	assert.False(t, st.LoadKnown("vllm", 101*second, 109*second), "no reading is inside")
	assert.False(t, st.LoadKnown("vllm", 60*second, 100*second))
	assert.False(t, st.LoadKnown("vllm", 100*second, 160*second))
	assert.EqualValues(t, 2, st.loads.dropped.Load())
	st.WriteLoad(LoadSeries{}, 100*second, 1)
	name, ok = st.LoadOf("other")
	assert.True(t, ok && name == "")
}

// A service's requests run on all its servers, so all counts are needed.
func TestLoadIsKnownIfEachServerWasRead(t *testing.T) {
	st := NewStore(NewDefaultConfig(), nil)
	a, b := LoadSeries{"vllm", "http://a/metrics{engine=0}"}, LoadSeries{"vllm", "http://b/metrics{engine=0}"}
	for at := range int64(50) {
		st.WriteLoad(a, (100+at)*second, 1)
		if at < 10 {
			st.WriteLoad(b, (100+at)*second, 1)
		}
	}
	assert.True(t, st.LoadKnown("vllm", 100*second, 110*second))
	assert.True(t, st.LoadKnown("vllm", 105*second, 139*second), "its last reading is near enough")
	assert.False(t, st.LoadKnown("vllm", 105*second, 140*second), "one of two was not read")
	assert.False(t, st.LoadKnown("vllm", 120*second, 125*second))
	assert.True(t, st.LoadKnown("vllm", 140*second, 149*second), "there is only one left")

	st.missLoad(LoadSeries{"vllm", "http://c/metrics"}, 145*second)
	st.missLoad(LoadSeries{"vllm", "http://a/metrics"}, 145*second)
	st.missLoad(LoadSeries{"other", "http://d/metrics"}, 149*second)
	assert.False(t, st.LoadKnown("vllm", 140*second, 149*second), "one of two can't be read")
	assert.True(t, st.LoadKnown("vllm", 146*second, 149*second))
}

// Readings more than a minute apart leave a gap.
func TestLoadIsNotKnownFarFromReadings(t *testing.T) {
	st := NewStore(NewDefaultConfig(), nil)
	for _, at := range []int64{100, 200} {
		st.WriteLoad(LoadSeries{Service: "vllm"}, at*second, float64(at/100))
	}
	assert.Equal(t, []LoadLevel{
		{90 * second, LoadAhead},
		{100 * second, 1},
		{130 * second, LoadLapsed},
		{170 * second, LoadAhead},
		{200 * second, 2},
		{230 * second, LoadLapsed},
	}, st.LoadLevels("vllm", 90*second, 300*second, nil))
	assert.Equal(t, []LoadLevel{{100 * second, 1}, {130 * second, LoadLapsed}, {170 * second, LoadAhead}, {200 * second, 2}},
		st.LoadLevels("vllm", 140*second, 150*second, nil))
	assert.Equal(t, []LoadLevel{{200 * second, 2}, {230 * second, LoadLapsed}},
		st.LoadLevels("vllm", 240*second, 250*second, nil))
}

func TestLoadsAreBounded(t *testing.T) {
	st := NewStore(NewDefaultConfig(), nil)
	for i := range maxLoadSeries + 10 {
		st.WriteLoad(LoadSeries{Source: fmt.Sprint(i)}, 100*second, 1)
	}
	assert.Equal(t, maxLoadSeries, st.loads.count)
	assert.EqualValues(t, 10, st.loads.dropped.Load())
	st.WriteLoad(LoadSeries{Service: "new"}, 1000*second, 1)
	assert.Equal(t, 1, st.loads.count, "the others ended long ago")
	for i := range int64(10_000) {
		st.WriteLoad(LoadSeries{Service: "new"}, 1000*second+i*1e6, 1)
	}
	assert.LessOrEqual(t, len(*st.loads.series["new"][""]), maxLoadReadings)
}

// The metrics of the servers, in their own format.
func TestServersAreRead(t *testing.T) {
	recorded := ""
	if dir := os.Getenv("OTELGPU_TESTDATA"); dir != "" {
		text, err := os.ReadFile(filepath.Join(dir, "vllm/vllm-0.32.0.metrics.after.txt"))
		require.NoError(t, err)
		recorded = strings.Replace(string(text), `vllm:num_requests_running{engine="0",model_name="tiny"} 0.0`,
			`vllm:num_requests_running{engine="0",model_name="tiny"} 8.0`, 1)
	}
	for name, tt := range map[string]struct {
		text func(call int) string
		want float64
	}{
		"vLLM": {func(int) string {
			return "# TYPE vllm:num_requests_running gauge\n" +
				"vllm:num_requests_running{engine=\"0\",model_name=\"a}b\"} 3.0\n" +
				"vllm:num_requests_running{engine=\"1\",model_name=\"a}b\"} 5.0\nvllm:num_requests_waiting 7\n"
		}, 8},
		"a recorded vLLM": {func(int) string { return recorded }, 8},
		"SGLang":          {func(int) string { return "sglang:num_running_reqs{model_name=\"m\"} 8\n" }, 8},
		"TGI":             {func(int) string { return "tgi_batch_current_size 8\n" }, 8},
		"Triton": {func(call int) string {
			// 8 requests at once for the 100 ms between two calls.
			return fmt.Sprintf("nv_inference_request_duration_us{model=\"m\"} %d\n", 800_000*call)
		}, 8},
	} {
		t.Run(name, func(t *testing.T) {
			if tt.text(1) == "" {
				t.Skip("OTELGPU_TESTDATA is not set")
			}
			st := NewStore(NewDefaultConfig(), nil)
			s := &scraper{cfg: ServerConfig{Endpoint: "http://server/metrics", Service: "svc"}, out: st}
			for call := range 4 {
				found, err := s.parse(strings.NewReader(tt.text(call+1)), 100*second+int64(call)*second/10)
				require.NoError(t, err)
				require.True(t, found)
			}
			for _, l := range st.LoadLevels("svc", 100*second, 100*second+second/4, nil) {
				if l.Running >= 0 {
					assert.InDelta(t, tt.want, l.Running, 1e-9)
				}
			}
			assert.True(t, st.LoadKnown("svc", 100*second, 100*second+second/4))
		})
	}
}

func TestScrapingWritesLoadsAndReportsFailuresOnce(t *testing.T) {
	answer := make(chan string, 100)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		select {
		case a := <-answer:
			_, _ = w.Write([]byte(a))
		default:
			_, _ = w.Write([]byte("up 1\n"))
		}
	}))
	defer server.Close()
	core, logs := observer.New(zap.WarnLevel)
	set := componenttest.NewNopTelemetrySettings()
	set.Logger = zap.New(core)
	cfg := NewDefaultConfig()
	cfg.Servers = []ServerConfig{{Endpoint: server.URL, Interval: minInterval}}
	require.NoError(t, cfg.Validate())
	for range 2 {
		answer <- "tgi_batch_current_size 4\n"
	}
	x, err := newSamples(cfg, set)
	require.NoError(t, err)
	require.NoError(t, x.Start(context.Background(), componenttest.NewNopHost()))
	require.Eventually(t, func() bool { return logs.Len() > 0 }, 10*time.Second, 5*time.Millisecond)
	time.Sleep(3 * minInterval)
	require.NoError(t, x.Shutdown(context.Background()))
	_, ok := x.LoadOf("any")
	assert.True(t, ok)
	require.Equal(t, 1, logs.Len())
	assert.Contains(t, logs.All()[0].Message, "is an upper bound")
	assert.Contains(t, fmt.Sprint(logs.All()[0].ContextMap()["error"]), "no metric of running requests")
}

func TestServersAreValidated(t *testing.T) {
	cfg := NewDefaultConfig()
	cfg.Servers = []ServerConfig{{Endpoint: "127.0.0.1:8000"}, {Endpoint: "http://a/metrics", Interval: time.Millisecond}}
	err := cfg.Validate()
	assert.ErrorContains(t, err, "`servers::0::endpoint` must be a URL")
	assert.ErrorContains(t, err, "`servers::1::interval` must be at least 100ms, found 1ms")
}
