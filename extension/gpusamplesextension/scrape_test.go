// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpusamplesextension

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/servermetrics"
)

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
	} {
		t.Run(name, func(t *testing.T) {
			if tt.text(1) == "" {
				t.Skip("OTELGPU_TESTDATA is not set")
			}
			st := devicesamples.NewStore(devicesamples.NewDefaultConfig(), nil)
			var meters servermetrics.Meters
			s := &scraper{
				cfg: ServerConfig{Endpoint: "http://server/metrics", Service: "svc"}, out: st, meter: meters.New(servermetrics.Identity{}),
			}
			for call := range 4 {
				at := 100*int64(time.Second) + int64(call)*int64(time.Second)/10
				require.NoError(t, s.parse(strings.NewReader(tt.text(call+1)), at))
			}
			for _, l := range st.LoadLevels("svc", 100*int64(time.Second), 100*int64(time.Second)+int64(time.Second)/4, nil) {
				if l.Running >= 0 {
					assert.InDelta(t, tt.want, l.Running, 1e-9)
				}
			}
			assert.True(t, st.LoadKnown("svc", 100*int64(time.Second), 100*int64(time.Second)+int64(time.Second)/4))
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
	cfg := *createDefaultConfig().(*Config)
	cfg.Servers = []ServerConfig{{Endpoint: server.URL, Interval: minInterval}}
	require.NoError(t, cfg.Validate())
	for range 2 {
		answer <- "tgi_batch_current_size 4\n"
	}
	x, err := newSamples(cfg, set)
	require.NoError(t, err)
	require.NoError(t, x.Start(context.Background(), componenttest.NewNopHost()))
	require.Eventually(t, func() bool { return logs.Len() > 0 }, time.Minute, 5*time.Millisecond)
	time.Sleep(3 * minInterval)
	require.NoError(t, x.Shutdown(context.Background()))
	_, ok := x.LoadOf("any")
	assert.True(t, ok)
	require.Equal(t, 1, logs.Len())
	assert.Contains(t, logs.All()[0].Message, "is an upper bound")
	assert.Contains(t, fmt.Sprint(logs.All()[0].ContextMap()["error"]), "no metric of running requests")
}

// The Date of a server's answers is rounded down to whole seconds, and answers take up to 0.2 s.
func TestTheClockOfAServerIsCompared(t *testing.T) {
	for offset, want := range map[time.Duration]string{
		-5 * time.Second: "s behind this machine's clock", 3 * time.Second: "s ahead of this machine's clock",
		0: "", time.Second: "", -time.Second: "",
	} {
		t.Run(offset.String(), func(t *testing.T) {
			st := devicesamples.NewStore(devicesamples.NewDefaultConfig(), nil)
			s := &scraper{cfg: ServerConfig{Endpoint: "http://server/metrics", Service: "svc"}, out: st}
			at := time.Unix(1_700_000_000, 0)
			for i := range 40 {
				at = at.Add(time.Second*3/4 + time.Duration(i*7%11)*50*time.Millisecond)
				s.checkClock(at.Add(offset+time.Duration(i%3-1)*100*time.Millisecond).UTC().Format(http.TimeFormat), at.UnixNano())
			}
			s.checkClock("", at.UnixNano())
			list := st.ContradictionEntries()
			if want == "" {
				assert.Zero(t, st.LoadClock("svc"))
				assert.Empty(t, list)
				return
			}
			assert.InDelta(t, offset.Seconds(), st.LoadClock("svc").Seconds(), 0.5)
			assert.Zero(t, st.LoadClock("other"))
			require.Len(t, list, 1)
			assert.Equal(t, "server_clock", list[0].Reason)
			assert.Equal(t, "server svc", list[0].Source)
			assert.Contains(t, list[0].Found, want)
			assert.Contains(t, list[0].Other, " GMT")
		})
	}
}

// slowServer answers after a while, with the time at which it does.
type slowServer time.Duration

func (d slowServer) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case <-r.Context().Done():
		return nil, r.Context().Err()
	case <-time.After(time.Duration(d)):
		return &http.Response{
			StatusCode: http.StatusOK, Header: http.Header{"Date": {time.Now().UTC().Format(http.TimeFormat)}},
			Body: io.NopCloser(strings.NewReader("llamacpp:requests_processing 3\n")),
		}, nil
	}
}

// llama.cpp answers between two batches of a prompt.
func TestSlowAnswersAreRead(t *testing.T) {
	for takes, want := range map[time.Duration]bool{4 * time.Second: true, 6 * time.Second: false} {
		t.Run(takes.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := devicesamples.NewStore(devicesamples.NewDefaultConfig(), nil)
				var meters servermetrics.Meters
				s := &scraper{
					cfg: ServerConfig{Endpoint: "http://server/metrics"}, client: &http.Client{Transport: slowServer(takes)},
					out: st, meter: meters.New(servermetrics.Identity{}),
				}
				for range 20 {
					err := s.read(t.Context())
					assert.Equal(t, want, err == nil, "%v", err)
				}
				assert.Equal(t, want, !s.meter.Ended())
				assert.Empty(t, st.ContradictionEntries(), "its clock is right")
			})
		})
	}
}

// A server may start after the Collector; later, and with other failures, the first one is a
// warning.
func TestAServerThatStartsLaterIsNoWarning(t *testing.T) {
	refused := fmt.Errorf("dial: %w", syscall.ECONNREFUSED)
	core, logs := observer.New(zap.WarnLevel)
	s := &scraper{logger: zap.New(core), waiting: 3}
	for range 3 {
		s.note(refused)
	}
	require.Zero(t, logs.Len(), "it starts")
	for range 2 {
		s.note(refused)
	}
	require.Equal(t, 1, logs.Len(), "it does not")
	s = &scraper{logger: zap.New(core), waiting: 3}
	s.note(nil)
	s.note(refused)
	require.Equal(t, 2, logs.Len(), "it ended")
	s = &scraper{logger: zap.New(core), waiting: 3}
	s.note(errors.New("no metric of running requests"))
	require.Equal(t, 3, logs.Len(), "it is the wrong address")
}

func TestServersAreValidated(t *testing.T) {
	cfg := *createDefaultConfig().(*Config)
	cfg.Servers = []ServerConfig{{Endpoint: "127.0.0.1:8000"}, {Endpoint: "http://a/metrics", Interval: time.Millisecond}}
	err := cfg.Validate()
	assert.ErrorContains(t, err, "`servers::0::endpoint` must be a URL")
	assert.ErrorContains(t, err, "`servers::1::interval` must be at least 100ms, found 1ms")
}
