// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package otlp

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"

	"github.com/otelgpu/otelgpu/gpuspan/internal/sink"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func section(name string) *sink.Span {
	return &sink.Span{
		Context: trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2},
			TraceFlags: 1,
		}),
		Name: name, Start: 1, End: 2, Scope: &sink.Scope{Name: "s"},
		Attributes: []attribute.KeyValue{attribute.Bool("b", true)},
	}
}

// sender returns the responses that a test sets.
type sender struct {
	mu    sync.Mutex
	send  func(ctx context.Context, body []byte) (int64, error)
	calls int
}

func (s *sender) Send(ctx context.Context, body []byte) (int64, error) {
	s.mu.Lock()
	s.calls++
	s.mu.Unlock()
	return s.send(ctx, body)
}

func newSink(t *testing.T, send func(context.Context, []byte) (int64, error), opts ...Option) (*Sink, *sender) {
	x := &sender{send: send}
	s, err := New(append([]Option{To(x), Interval(time.Hour)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Shutdown(context.Background())) })
	return s, x
}

func TestSpansAreSentInBatchesAndAtShutdown(t *testing.T) {
	got := make(chan int, 10)
	s, _ := newSink(t, func(_ context.Context, b []byte) (int64, error) { got <- len(b); return 0, nil }, BatchSize(3))
	for range 7 {
		s.Section(section("a"))
	}
	first, second := <-got, <-got
	require.Equal(t, first, second)
	require.NoError(t, s.Flush(context.Background()))
	require.Less(t, <-got, first)
	require.Equal(t, Stats{Sent: 7, Dropped: map[string]int64{}}, s.Stats())
	s.Section(section("b"))
	require.NoError(t, s.Shutdown(context.Background()))
	require.EqualValues(t, 8, s.Stats().Sent)
	s.Section(section("c"))
	require.Equal(t, map[string]int64{"shutdown": 1}, s.Stats().Dropped)
	require.NoError(t, s.Flush(context.Background()))
}

func TestSpansWaitForNoLongerThanTheInterval(t *testing.T) {
	got := make(chan struct{}, 1)
	s, _ := newSink(t, func(context.Context, []byte) (int64, error) { got <- struct{}{}; return 0, nil },
		Interval(time.Millisecond))
	for range 3 {
		s.Section(section("a"))
		<-got
	}
}

func TestAReceiverThatStopsCostsTheNewestRequests(t *testing.T) {
	release := make(chan struct{})
	s, _ := newSink(t, func(context.Context, []byte) (int64, error) { <-release; return 0, nil }, BatchSize(1), Queue(2))
	for range 10 {
		s.Section(section("a"))
	}
	for s.Stats().Dropped["queue_full"] < 7 { // one request is in flight, or will be once the sender is scheduled
		s.Section(section("a"))
	}
	close(release)
	require.NoError(t, s.Flush(context.Background()))
	require.LessOrEqual(t, s.Stats().Sent, int64(4))
}

func TestRetryableErrorsAreRetried(t *testing.T) {
	n := 0
	s, x := newSink(t, func(context.Context, []byte) (int64, error) {
		if n++; n < 3 {
			return 0, &Later{Err: errors.New("busy")}
		}
		return 1, nil
	}, BatchSize(2), RetryFor(time.Hour))
	s.Section(section("a"))
	s.Section(section("b"))
	require.NoError(t, s.Flush(context.Background()))
	require.Equal(t, 3, x.calls)
	require.Equal(t, Stats{Sent: 1, Dropped: map[string]int64{"rejected": 1}}, s.Stats())
}

func TestRefusedAndSlowRequestsAreDroppedByReason(t *testing.T) {
	s, x := newSink(t, func(context.Context, []byte) (int64, error) { return 0, errors.New("bad request") })
	s.Section(section("a"))
	require.NoError(t, s.Flush(context.Background()))
	require.Equal(t, 1, x.calls)
	require.Equal(t, map[string]int64{"rejected": 1}, s.Stats().Dropped)

	s, x = newSink(t, func(context.Context, []byte) (int64, error) {
		return 0, &Later{Err: errors.New("busy"), After: time.Hour}
	}, RetryFor(time.Minute))
	s.Section(section("a"))
	require.NoError(t, s.Flush(context.Background()))
	require.Equal(t, 1, x.calls)
	require.Equal(t, map[string]int64{"retries": 1}, s.Stats().Dropped)
}

func TestShutdownEndsWithItsContext(t *testing.T) {
	s, err := New(To(&sender{send: func(ctx context.Context, _ []byte) (int64, error) {
		<-ctx.Done()
		return 0,
			ctx.Err()
	}}), BatchSize(1))
	require.NoError(t, err)
	s.Section(section("a"))
	s.Section(section("b"))
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	require.ErrorContains(t, s.Shutdown(ctx), "2 spans were not sent")
	require.Equal(t, map[string]int64{"shutdown": 2}, s.Stats().Dropped)
}

func TestRequestsOverHTTP(t *testing.T) {
	var path, kind, token, tenant string
	var body []byte
	status, answer := http.StatusOK, []byte{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path, kind, token = r.URL.Path, r.Header.Get("Content-Type"), r.Header.Get("Authorization")
		tenant = r.Header.Get("X-Tenant")
		body, _ = io.ReadAll(r.Body)
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(status)
		_, _ = w.Write(answer)
	}))
	defer server.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL+"/")
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20x, x-tenant=other, broken")
	h := server.Client()
	s, err := New(Client(h), Header("X-Tenant", "own"), Resource(attribute.String("service.name", "x")))
	require.NoError(t, err)
	send := func() Stats {
		s.Section(section("a"))
		require.NoError(t, s.Flush(context.Background()))
		return s.Stats()
	}
	require.EqualValues(t, 1, send().Sent)
	require.Equal(t, []string{"/v1/traces", "application/x-protobuf", "Bearer x"}, []string{path, kind, token})
	require.Equal(t, "own", tenant, "what the program says goes before the environment, however it is written")
	require.Contains(t, string(body), "service.name")
	answer = []byte{1<<3 | 2, 2, 1 << 3, 1} // partial_success: one span rejected
	require.EqualValues(t, 1, send().Dropped["rejected"])
	answer = nil
	status = http.StatusBadRequest
	require.EqualValues(t, 2, send().Dropped["rejected"])
	status = http.StatusServiceUnavailable
	require.EqualValues(t, 1, send().Dropped["retries"], "an hour is more than it has")
	require.NoError(t, s.Shutdown(context.Background()))
	h.CloseIdleConnections()
}

// The error handler is called with the reason if a receiver rejects spans, or redirects them in a
// way that loses them.
func TestTheReasonOfARejectionIsReported(t *testing.T) {
	var said string
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { said = err.Error() }))
	defer otel.SetErrorHandler(otel.ErrorHandlerFunc(func(error) {}))
	page := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})) // takes everything
	defer page.Close()
	for _, c := range []struct {
		status int
		answer string
		sent   int64
		said   string
	}{
		{http.StatusOK, "\x0a\x05\x08\x01\x12\x01x", 1, `1 spans are dropped (rejected): the receiver rejected them: "x"`},
		{http.StatusOK, "\x0a\x02\x08\x01", 1, `1 spans are dropped (rejected): the receiver rejected them: ""`},
		{http.StatusOK, "\x0a\x03\x12\x01x", 2, ""}, // a warning
		{http.StatusMovedPermanently, "", 0, "2 spans are dropped (rejected): "},
		{http.StatusFound, "", 0, `" redirects to "` + page.URL + `/login" without the spans (set the endpoint to where they are to go)`},
		{http.StatusTemporaryRedirect, "", 2, ""},
	} {
		said = ""
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Location", page.URL+"/login")
			w.WriteHeader(c.status)
			_, _ = io.WriteString(w, c.answer)
		}))
		h := server.Client()
		s, err := New(Client(h), Endpoint(server.URL), Interval(time.Hour))
		require.NoError(t, err)
		s.Section(section("a"))
		s.Section(section("b"))
		require.NoError(t, s.Shutdown(context.Background()))
		require.Equal(t, c.sent, s.Stats().Sent, c.status)
		require.Equal(t, 2-c.sent, s.Stats().Dropped["rejected"], c.status)
		require.Contains(t, said, c.said)
		require.Equal(t, c.said == "", said == "", said)
		h.CloseIdleConnections()
		server.Close()
	}
	s, _ := newSink(t, func(context.Context, []byte) (int64, error) { return 1, nil })
	s.Section(section("a"))
	require.NoError(t, s.Shutdown(context.Background()))
	require.Contains(t, said, "1 spans are dropped (rejected): the receiver rejected them without a reason")
}

// late is a transport that keeps reading a request body after it has returned the response.
type late struct{ body io.ReadCloser }

func (l *late) RoundTrip(r *http.Request) (*http.Response, error) {
	l.body = r.Body
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}

func TestATransportDoesNotReadFinishedRequests(t *testing.T) {
	var l late
	s, err := New(Endpoint("http://127.0.0.1:1"), Client(&http.Client{Transport: &l}))
	require.NoError(t, err)
	s.Section(section("a"))
	require.NoError(t, s.Shutdown(context.Background()))
	_, err = io.ReadAll(l.body)
	require.ErrorContains(t, err, "the request is over")
}

func TestWrongOptionsAreNamed(t *testing.T) {
	s, err := New(Endpoint("127.0.0.1:4318"), Interval(-1), BatchSize(0), Queue(0))
	require.ErrorContains(t, err, `the endpoint must be a URL such as http://127.0.0.1:4318, found "127.0.0.1:4318"`)
	require.ErrorContains(t, err, "the interval must be positive, found -1ns")
	require.ErrorContains(t, err, "the batch size must be positive, found 0")
	require.ErrorContains(t, err, "the queue must hold at least one request, found 0")
	s.Section(section("a"))
	require.NoError(t, s.Flush(context.Background()))
	require.NoError(t, s.Shutdown(context.Background()))
	var none *Sink
	none.Section(section("a"))
	require.NoError(t, none.Flush(context.Background()))
	require.NoError(t, none.Shutdown(context.Background()))
	require.Empty(t, none.Stats())
}

func FuzzAnswers(f *testing.F) {
	f.Add([]byte{10, 2, 8, 1})
	f.Add([]byte{10, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := refusedSpans(b)
		require.GreaterOrEqual(t, n, int64(0))
		require.Equal(t, n > 0, err != nil)
	})
}

func BenchmarkSection(b *testing.B) {
	s, err := New(To(&sender{send: func(context.Context, []byte) (int64, error) { return 0, nil }}))
	require.NoError(b, err)
	x := section("decode")
	for _, k := range []string{"gpu.duration", "gpu.timing.error", "gpu.start.delay", "gpu.end.delay"} {
		x.Attributes = append(x.Attributes, attribute.Float64(k, 1.5e-3))
	}
	x.Constant = &sink.Constant{Attributes: []attribute.KeyValue{
		attribute.String("gpu.operation.type", "section"),
		attribute.String("hw.id", "GPU-x"),
	}}
	b.ReportAllocs()
	for b.Loop() {
		s.Section(x)
	}
	_ = s.Shutdown(context.Background())
}
