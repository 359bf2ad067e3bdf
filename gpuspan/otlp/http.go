// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package otlp

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// Sender sends requests.
type Sender interface {
	// Send sends a request and returns the number of spans that the receiver rejected permanently
	// while it accepted the others, and if it is positive the reason, or nil. A [Later] error
	// requests a retry; if no number is given, any other error drops the request. The caller may
	// reuse the bytes of the request after Send has returned.
	Send(ctx context.Context, request []byte) (refused int64, err error)
}

// Later is an error after which a retry may succeed.
type Later struct {
	Err   error         // the failure
	After time.Duration // delay requested by the receiver; 0: none
}

// Error returns the text of Err.
func (l *Later) Error() string { return l.Err.Error() }

// Unwrap returns Err.
func (l *Later) Unwrap() error { return l.Err }

// httpSender sends OTLP over HTTP with protobuf bodies.
type httpSender struct {
	url     string
	headers http.Header
	client  *http.Client
	gzip    bool
}

// lent is memory that others read until it is taken back.
type lent struct {
	mu   sync.Mutex
	b    []byte
	gone bool
}

func (l *lent) takeBack() {
	l.mu.Lock()
	l.b, l.gone = nil, true
	l.mu.Unlock()
}

// body reads it from the beginning.
type body struct {
	lent *lent
	at   int
}

func (b *body) Read(p []byte) (int, error) {
	b.lent.mu.Lock()
	defer b.lent.mu.Unlock()
	if b.lent.gone {
		return 0, errors.New("the request is over")
	}
	n := copy(p, b.lent.b[b.at:])
	if b.at += n; n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return n, nil
}

func (b *body) Close() error { return nil }

const maxAnswer = 64 << 10

func (s *httpSender) Send(ctx context.Context, request []byte) (refused int64, err error) {
	if s.gzip {
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		_, err := w.Write(request)
		if err = errors.Join(err, w.Close()); err != nil {
			return 0, err
		}
		request = packed.Bytes()
	}
	memory := &lent{b: request}
	defer memory.takeBack() // a transport may continue to read after it has returned
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, &body{lent: memory})
	if err != nil {
		return 0, err
	}
	r.ContentLength = int64(len(request))
	r.GetBody = func() (io.ReadCloser, error) { return &body{lent: memory}, nil }
	r.Header.Set("Content-Type", "application/x-protobuf")
	r.Header.Set("User-Agent", "otelgpu-gpuspan-otlp")
	maps.Copy(r.Header, s.headers)
	if s.gzip {
		r.Header.Set("Content-Encoding", "gzip")
	}
	a, err := s.client.Do(r)
	if err != nil {
		return 0, &Later{Err: fmt.Errorf("cannot reach the receiver: %w", err)}
	}
	defer func() { _ = a.Body.Close() }()
	answer, _ := io.ReadAll(io.LimitReader(a.Body, maxAnswer))
	switch {
	case a.Request != nil && a.Request.Method != http.MethodPost:
		return 0, fmt.Errorf("%q redirects to %q without the spans (set the endpoint to where they are to go)", s.url,
			a.Request.URL)
	case a.StatusCode >= 200 && a.StatusCode < 300:
		return refusedSpans(answer)
	case a.StatusCode == http.StatusTooManyRequests, a.StatusCode == http.StatusBadGateway,
		a.StatusCode == http.StatusServiceUnavailable, a.StatusCode == http.StatusGatewayTimeout:
		seconds, _ := strconv.Atoi(a.Header.Get("Retry-After"))
		return 0, &Later{
			Err:   fmt.Errorf("%s answered %s", s.url, a.Status),
			After: time.Duration(max(seconds, 0)) * time.Second,
		}
	}
	return 0, fmt.Errorf("%s answered %s", s.url, a.Status)
}

// refusedSpans reads ExportTraceServiceResponse {partial_success = 1 {rejected_spans = 1,
// error_message = 2}}. The error is the reason of a rejection. An unreadable response rejects
// nothing.
func refusedSpans(body []byte) (n int64, reason error) {
	partial := firstField(body, 1)
	if len(partial) < 2 || partial[0] != 1<<3 {
		return 0, nil
	}
	v, used := binary.Uvarint(partial[1:])
	if used <= 0 || int64(v) <= 0 {
		return 0, nil
	}
	return int64(v), fmt.Errorf("the receiver rejected them: %q", firstField(partial[1+used:], 2))
}

// firstField returns the first field of a message if it has that number, below 16, and holds bytes.
func firstField(b []byte, number byte) []byte {
	if len(b) < 2 || b[0] != number<<3|2 {
		return nil
	}
	n, used := binary.Uvarint(b[1:])
	if used <= 0 || uint64(len(b)-1-used) < n {
		return nil
	}
	return b[1+used:][:n]
}
