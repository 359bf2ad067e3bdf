// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Command httpinference is an HTTP service that answers requests on a GPU by continuous batching,
// instrumented with otelhttp and gpuspan:
//
//	POST /generate ─► handler (span of otelhttp) ─► queue ─► engine: one iteration after the other
//
//	iteration  admit who waits ─► h2d, prefill of the new ones ─► decode, one token for each that is active ─► d2h
//
// An iteration is one trace of GPU sections; prefill, decode and the copies link to the requests
// that they served, each with its tokens. Behind the Collector's connector gpu_requests each
// request's own trace then has a span for the queue, for prefill and for decode, with GPU time,
// tokens and joules. Try it:
//
//	go run ./httpinference -requests 40   # sends requests to itself, prints the largest iteration's links and the report
//	go run ./httpinference -listen localhost:8080 -otlp http://localhost:4317
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.37.0"

	"github.com/otelgpu/otelgpu/examples/internal/accel"
	"github.com/otelgpu/otelgpu/examples/internal/otlp"
	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/sampler"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
)

type config struct {
	listen    string
	otlp      string
	requests  int
	simulated bool
	settings  settings.Settings
}

// newConfig defines the flags, whose defaults are the environment's.
func newConfig(fs *flag.FlagSet) *config {
	c := &config{}
	var err error
	if c.settings, err = settings.FromEnv(); err != nil {
		fmt.Fprintln(os.Stderr, err) // invalid values have their defaults
	}
	fs.StringVar(&c.listen, "listen", "localhost:0", "address to serve on")
	fs.StringVar(&c.otlp, "otlp", "", "OTLP/gRPC endpoint for spans, as http://localhost:4317; empty: none")
	fs.IntVar(&c.requests, "requests", 40, "send that many requests to the service and end; 0: serve until interrupted")
	fs.BoolVar(&c.simulated, "simulated", false, "use a simulated GPU even where there is a real one")
	c.settings.Bind(fs)
	return c
}

func main() {
	c := newConfig(flag.CommandLine)
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *c, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run serves until the requests are done or ctx is. extra sees every span, for tests.
func run(ctx context.Context, c config, w io.Writer, extra ...sdktrace.SpanProcessor) (err error) {
	batches := &batches{}
	opts, err := otlp.To(ctx, c.otlp)
	if err != nil {
		return err
	}
	opts = append(opts, sdktrace.WithSpanProcessor(batches), sdktrace.WithSampler(sampler.LinksBased(nil)),
		sdktrace.WithResource(resource.NewSchemaless(semconv.ServiceName("httpinference"))))
	for _, sp := range extra {
		opts = append(opts, sdktrace.WithSpanProcessor(sp))
	}
	tp := sdktrace.NewTracerProvider(opts...)

	device := accel.Open(c.simulated, w)
	profiling := []gpuspan.Option{
		gpuspan.WithTracerProvider(tp),
		gpuspan.WithSettings(func(s *settings.Settings) { *s = c.settings }),
	}
	if c.settings.Report { // quantiles of the whole run, however long it is
		profiling = append(profiling, accel.Report("httpinference"))
	}
	prof, err := gpuspan.New(device.Backend(), profiling...)
	if err != nil {
		fmt.Fprintln(w, err) // the service runs nevertheless
	}
	stop := context.WithoutCancel(ctx)
	// Order matters: the profiler ends its spans before the provider flushes them.
	defer func() { err = errors.Join(err, device.Close(), prof.Shutdown(stop), tp.Shutdown(stop)) }()

	s := &server{
		queue:  make(chan *request, maxQueued),
		engine: &engine{device: device, stream: prof.Stream(device.Stream(), "inference")},
	}
	listener, err := net.Listen("tcp", c.listen)
	if err != nil {
		return fmt.Errorf("cannot listen on %q: %w", c.listen, err)
	}
	fmt.Fprintf(w, "serving on http://%s/generate\n", listener.Addr())
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { s.work(ctx) })
	srv := &http.Server{Handler: s.handler(tp), ReadHeaderTimeout: 5 * time.Second}
	wg.Go(func() { _ = srv.Serve(listener) })
	if c.requests > 0 {
		err = load(ctx, "http://"+listener.Addr().String()+"/generate", c.requests)
	} else {
		<-ctx.Done()
	}
	err = errors.Join(err, srv.Shutdown(stop))
	cancel()
	wg.Wait()
	if err != nil {
		return err
	}
	if err := prof.Flush(stop); err != nil {
		return err
	}
	batches.write(w)
	return prof.Snapshot().WriteText(w)
}

// load sends n requests, a few at a time.
func load(ctx context.Context, url string, n int) error {
	const clients = 6
	work := make(chan int)
	errs := make(chan error, clients)
	for range clients {
		go func() {
			var first error
			for i := range work {
				text := strings.Repeat("word ", 20+i%200)
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, url,
					strings.NewReader(fmt.Sprintf(`{"prompt": %q, "max_tokens": %d}`, text, 4+i%8)))
				if err == nil {
					err = send(req)
				}
				first = errors.Join(first, err)
			}
			errs <- first
		}()
	}
	for i := range n {
		work <- i
	}
	close(work)
	var err error
	for range clients {
		err = errors.Join(err, <-errs)
	}
	return err
}

func send(req *http.Request) error {
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, text)
	}
	return err
}
