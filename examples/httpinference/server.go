// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

const (
	maxActive = 8
	maxPrompt = 4096 // tokens
	maxAnswer = 256  // tokens
	maxQueued = 64
)

// server passes requests to the engine.
type server struct {
	queue  chan *request
	engine *engine
}

// body is the request body of /generate.
type body struct {
	Prompt    string `json:"prompt"`
	MaxTokens int    `json:"max_tokens"`
}

// handler returns the service behind otelhttp, which creates the span that sections link to.
func (s *server) handler(tp trace.TracerProvider) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /generate", s.generate)
	return otelhttp.NewHandler(mux, "generate", otelhttp.WithTracerProvider(tp))
}

func (s *server) generate(w http.ResponseWriter, req *http.Request) {
	var b body
	if err := json.NewDecoder(http.MaxBytesReader(w, req.Body, 1<<20)).Decode(&b); err != nil {
		http.Error(w, fmt.Sprintf("cannot read the request: %v", err), http.StatusBadRequest)
		return
	}
	tokens := len(strings.Fields(b.Prompt))
	if tokens < 1 || tokens > maxPrompt || b.MaxTokens < 1 || b.MaxTokens > maxAnswer {
		http.Error(w, fmt.Sprintf("prompt must have 1 to %d words and max_tokens be 1 to %d, found %d and %d",
			maxPrompt, maxAnswer, tokens, b.MaxTokens), http.StatusBadRequest)
		return
	}
	r := &request{ctx: req.Context(), prompt: tokens, answer: b.MaxTokens, done: make(chan error, 1)}
	select {
	case s.queue <- r:
	default:
		http.Error(w, "too many requests wait", http.StatusServiceUnavailable)
		return
	}
	select {
	case err := <-r.done:
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		fmt.Fprintf(w, "{\"tokens\": %d}\n", r.answer)
	case <-req.Context().Done():
	}
}

// work runs iterations until ctx is done. While requests are active it does not wait for others:
// new requests join the next iteration.
func (s *server) work(ctx context.Context) {
	for {
		var admitted []*request
		if len(s.engine.active) == 0 {
			select {
			case r := <-s.queue:
				admitted = append(admitted, r)
			case <-ctx.Done():
				return
			}
		}
	admit:
		for len(s.engine.active)+len(admitted) < maxActive {
			select {
			case r := <-s.queue:
				admitted = append(admitted, r)
			default:
				break admit
			}
		}
		done, err := s.engine.iterate(admitted)
		for _, r := range done {
			r.done <- err
		}
	}
}

// batches is a span processor that keeps the largest iteration of decoding, to show it as a tracing
// backend would.
type batches struct {
	mu      sync.Mutex
	count   int
	largest sdktrace.ReadOnlySpan
}

var _ sdktrace.SpanProcessor = (*batches)(nil)

func (*batches) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (*batches) Shutdown(context.Context) error                  { return nil }
func (*batches) ForceFlush(context.Context) error                { return nil }

// OnEnd runs on the one goroutine that ends gpuspan's spans: it must be fast.
func (b *batches) OnEnd(s sdktrace.ReadOnlySpan) {
	if s.Name() != opDecode.Name() {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.count++
	if b.largest == nil || len(s.Links()) > len(b.largest.Links()) {
		b.largest = s
	}
}

func (b *batches) write(w io.Writer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.largest == nil {
		return
	}
	s := b.largest
	fmt.Fprintf(w, "\n%d iterations of decoding; the largest is in trace %s, %v on the device, for the requests\n",
		b.count, s.SpanContext().TraceID(), s.EndTime().Sub(s.StartTime()))
	for _, l := range s.Links() {
		fmt.Fprintf(w, "  trace %s", l.SpanContext.TraceID())
		for _, kv := range l.Attributes {
			fmt.Fprintf(w, "  %s=%s", kv.Key, kv.Value.String())
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintln(w)
}
