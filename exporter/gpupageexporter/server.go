// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpupageexporter

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.uber.org/zap"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/page"
)

// server is the page of one configuration, which both signals feed: it starts with the first and
// ends with the last of them.
type server struct {
	cfg *Config
	set exporter.Settings
	options
	forget func()

	mu      sync.Mutex
	started int
	http    *http.Server
	cancel  context.CancelFunc
	served  chan struct{}
}

func newServer(cfg *Config, set exporter.Settings, o options, forget func()) *server {
	if o.model == nil {
		o.model = page.New()
	}
	return &server{cfg: cfg, set: set, options: o, forget: forget}
}

// start listens.
func (s *server) start(ctx context.Context, host component.Host) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.started++
	if s.started > 1 {
		return nil
	}
	listener, err := s.listener, error(nil)
	if listener == nil {
		listener, err = s.cfg.ToListener(ctx)
	}
	if err != nil {
		return fmt.Errorf("cannot serve the page at %s: %w (set another `endpoint`, or stop the other program)",
			s.cfg.NetAddr.Endpoint, err)
	}
	// Open pages hold a connection each, which must not delay the Collector's end.
	base, cancel := context.WithCancel(context.Background())
	srv, err := s.cfg.ToServer(ctx, host.GetExtensions(), s.set.TelemetrySettings,
		page.Handler(s.model, s.cfg.TraceURL, s.cfg.Hosts...))
	if err != nil {
		cancel()
		return errors.Join(err, listener.Close())
	}
	srv.BaseContext = func(net.Listener) context.Context { return base }
	for _, ext := range host.GetExtensions() {
		if c, ok := ext.(devicesamples.Contradictions); ok {
			s.model.AddContradictions(c.ContradictionEntries)
		}
	}
	s.http, s.cancel, s.served = srv, cancel, make(chan struct{})
	s.set.Logger.Info("page", zap.String("address", "http://"+listener.Addr().String()))
	go func() {
		defer close(s.served)
		if err := srv.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			componentstatus.ReportStatus(host, componentstatus.NewFatalErrorEvent(err))
		}
	}()
	return nil
}

// closeTimeout is how long a shutdown waits for requests in progress.
const closeTimeout = time.Second

// shutdown closes the page.
func (s *server) shutdown(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started--; s.started > 0 || s.http == nil {
		return nil
	}
	s.cancel()
	limit, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	err := s.http.Shutdown(limit)
	if err != nil { // a client that has not sent its request
		err = s.http.Close()
	}
	<-s.served
	s.http = nil
	s.forget()
	return err
}

func (s *server) traces(_ context.Context, td ptrace.Traces) error {
	s.model.Traces(td)
	return nil
}

func (s *server) metrics(_ context.Context, md pmetric.Metrics) error {
	s.model.Metrics(md)
	return nil
}
