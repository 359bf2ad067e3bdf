// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"sync"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// batches is a span processor that keeps the largest iteration of decoding, to show what a tracing backend would.
type batches struct {
	mu      sync.Mutex
	count   int
	largest sdktrace.ReadOnlySpan
}

var _ sdktrace.SpanProcessor = (*batches)(nil)

func (*batches) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (*batches) Shutdown(context.Context) error                  { return nil }
func (*batches) ForceFlush(context.Context) error                { return nil }

// OnEnd runs on gpuspan's polling thread for GPU spans: it must not take long.
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
