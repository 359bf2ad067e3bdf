// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"bytes"
	"encoding/json"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
)

func gauge(name string, v float64) pmetric.Metrics {
	md := pmetric.NewMetrics()
	x := md.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
	x.SetName(name)
	p := x.SetEmptyGauge().DataPoints().AppendEmpty()
	p.SetDoubleValue(v)
	p.SetTimestamp(pcommon.NewTimestampFromTime(noon.Add(-time.Second)))
	p.Attributes().PutStr("hw.id", "GPU-1")
	return md
}

// Metrics of devices may lack the device, or name it by a value that is not text.
func TestMetricsOfNoDeviceAreIgnored(t *testing.T) {
	m := at()
	for _, name := range append(slices.Collect(maps.Keys(measureOf)), "hw.errors") {
		md := gauge(name, 1)
		attrs := md.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().At(0).Gauge().DataPoints().At(0).Attributes()
		attrs.PutInt("hw.id", 1)
		m.Metrics(md)
		attrs.Clear()
		m.Metrics(md)
		attrs.PutStr("hw.id", "PSU-1")
		attrs.PutStr("hw.type", "power_supply")
		m.Metrics(md)
	}
	assert.Empty(t, m.devices)
	m.Metrics(gauge("hw.power", 1))
	assert.Len(t, m.devices, 1)
}

// A point that ends a series has no value.
func TestEndedSeriesAreIgnored(t *testing.T) {
	m := at()
	m.Metrics(gauge("hw.power", 300))
	before := m.devices["GPU-1"].samples
	for _, name := range []string{"hw.power", "hw.gpu.memory.limit", "hw.errors", "gpu.section.time"} {
		md := gauge(name, 400)
		p := md.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().At(0).Gauge().DataPoints().At(0)
		p.SetFlags(pmetric.DefaultDataPointFlags.WithNoRecordedValue(true))
		m.Metrics(md)
	}
	assert.Equal(t, before, m.devices["GPU-1"].samples)
	assert.Zero(t, m.devices["GPU-1"].memory)
}

// A service that sends invalid numbers, or numbers with invalid sums, must not break the page for
// others.
func TestInvalidNumbersDoNotStopThePage(t *testing.T) {
	m := at()
	for _, name := range []string{
		"hw.power", "hw.temperature", "hw.gpu.utilization", "hw.gpu.memory.usage", "hw.gpu.memory.limit",
	} {
		for _, v := range []float64{math.Inf(1), math.Inf(-1), math.NaN()} {
			m.Metrics(gauge(name, v))
		}
	}
	huge := map[string]any{
		"gpu.energy": math.MaxFloat64, "gpu.flop.count": math.MaxFloat64, "gpu.io.size": math.MaxFloat64,
		"gpu.operation.items": math.MaxFloat64, "gpu.roofline.utilization": math.SmallestNonzeroFloat64,
		"gpu.flop.precision": "bf16", "gpu.request.duration": math.MaxFloat64,
		"gpu.step.duration": math.MaxFloat64, "gpu.request.queue.duration": math.MaxFloat64,
	}
	for i, kind := range []string{"section", "section", "copy", "share", "share", "request", "request", "step"} {
		huge["gpu.roofline.bound"] = []string{"memory", "compute"}[i%2]
		m.Traces(traces(t, span{name: kind, kind: kind, start: time.Second, length: time.Nanosecond, attributes: huge}))
	}
	m.Traces(traces(t, span{name: "good", kind: "section", start: time.Second, length: time.Millisecond}))

	w := httptest.NewRecorder()
	Handler(m, "").ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/api/state", nil))
	assert.Equal(t, http.StatusOK, w.Code)
	var s State
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &s), w.Body.String())
	require.NotEmpty(t, s.Operations)
	assert.Equal(t, "good", s.Operations[0].Name)
	assert.InDelta(t, 0.001, s.Operations[0].Time, 1e-12, "what is known stays")
	require.NoError(t, Report(&bytes.Buffer{}, m.State(Query{})))
}

// Requests for a name that a hostile site points to loopback are rejected, because the site could
// read the page.
func TestThePageOfTheLoopbackAnswersToItsOwnNames(t *testing.T) {
	srv := httptest.NewServer(Handler(at(), "", "GPU.Example."))
	defer srv.Close()
	for host, want := range map[string]int{
		"localhost:9465": 200, "127.0.0.1": 200, "[::1]:9465": 200, "LOCALHOST.": 200, "gpu.example": 200, "a.localhost": 200,
		"evil.example": 403, "evil.example:9465": 403, "localhost.evil.example": 403, "127.0.0.1.evil.example": 403,
		"1.2.3": 403, `">`: 403,
	} {
		for _, path := range []string{"/", "/api/state", "/app.js"} {
			r, err := http.NewRequest(http.MethodGet, srv.URL+path, nil)
			require.NoError(t, err)
			r.Host = host
			answer, err := http.DefaultClient.Do(r)
			require.NoError(t, err)
			require.NoError(t, answer.Body.Close())
			assert.Equal(t, want, answer.StatusCode, "%s of %s", path, host)
			if want == http.StatusOK {
				assert.Equal(t, "same-origin", answer.Header.Get("Cross-Origin-Resource-Policy"))
				assert.Empty(t, answer.Header.Get("Access-Control-Allow-Origin"), "no other site may read it")
			}
		}
	}
}

func TestOnlyThePageIsServed(t *testing.T) {
	h := Handler(at(), "")
	for _, path := range []string{
		"/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/assets/base.js", "/app.js/../../../etc/passwd", "//evil.example/",
		"//evil.example/..", "/api/state/../../../x", `/\evil.example`, "/api/", "/app.js%00", "/api/events/x",
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.URL.Path, r.RequestURI = strings.NewReplacer("%2e", ".", "%00", "\x00").Replace(path), path
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if to := w.Header().Get("Location"); to != "" {
			assert.Regexp(t, `^/([^/\\]|$)`, to, "%s must not lead to another host", path)
			continue
		}
		assert.Equal(t, http.StatusNotFound, w.Code, path)
	}
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodOptions} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(method, "/api/state", nil))
		assert.Equal(t, http.StatusMethodNotAllowed, w.Code, method)
	}
}

// slow is a browser that does not read until it is released.
type slow struct {
	*httptest.ResponseRecorder
	writes   chan struct{}
	read     chan struct{}
	deadline time.Time
}

func (s *slow) Write(p []byte) (int, error) {
	s.writes <- struct{}{}
	<-s.read
	return s.ResponseRecorder.Write(p)
}

func (s *slow) SetWriteDeadline(t time.Time) error {
	s.deadline = t
	return nil
}

// Readers that do not read delay the pipeline no more than a bounded time, and take bounded memory.
func TestSlowReadersDelayNothing(t *testing.T) {
	m := at()
	h := Handler(m, "")
	writes, read, done := make(chan struct{}), make(chan struct{}), make(chan *slow)
	for range maxAnswers {
		go func() {
			w := &slow{ResponseRecorder: httptest.NewRecorder(), writes: writes, read: read}
			h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/api/state", nil))
			done <- w
		}()
	}
	for range maxAnswers {
		<-writes
	}
	m.Traces(traces(t, span{name: "a", kind: "section", start: time.Second, length: time.Millisecond})) // does not wait
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/api/state", nil))
	assert.Equal(t, http.StatusServiceUnavailable, w.Code)
	assert.NotEmpty(t, w.Header().Get("Retry-After"))
	close(read)
	for range maxAnswers {
		assert.False(t, (<-done).deadline.IsZero(), "a write ends some time")
	}
	w = httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/api/state", nil))
	assert.Equal(t, http.StatusOK, w.Code, "their slots are free again")
}
