// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpusamplesextension

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/plausibility"
	"github.com/otelgpu/otelgpu/internal/servermetrics"
)

// ServerConfig is an inference server whose load is read.
type ServerConfig struct {
	// Endpoint is the URL of the server's Prometheus metrics, required.
	Endpoint string `mapstructure:"endpoint"`
	// Service is the service.name of the server's spans. Default: every service that no other entry
	// names.
	Service string `mapstructure:"service"`
	// Devices are the hw.id of the devices that the server uses. Default: the devices of Pod,
	// otherwise of the process on this machine that listens on the endpoint's port and its
	// children, otherwise the only device.
	Devices []string `mapstructure:"devices"`
	// Pod is the server's pod as namespace/name.
	Pod string `mapstructure:"pod"`
	// Interval is the mean time between two readings, at least 100ms. It varies by a quarter.
	Interval time.Duration `mapstructure:"interval"`
}

// slowestAnswer is how long a server may take to answer. Some answer between two batches, and others
// not while they tokenize long prompts.
const slowestAnswer = 5 * time.Second

// maxMetricsSize bounds how much of a server's response is read.
const maxMetricsSize = 16 << 20

// scraper reads the load of one server.
type scraper struct {
	cfg     ServerConfig
	client  *http.Client
	out     *devicesamples.Store
	logger  *zap.Logger
	counts  servermetrics.Counts
	meter   *servermetrics.Meter
	clock   plausibility.Clock
	failing bool
	waiting int // more refused connections without a warning, because the server may start later
}

// startingReadings is how many connections a server may refuse before its first answer without a
// warning: it loads a model for minutes, and the Collector starts first.
const startingReadings = 600

// run reads until the context ends.
func (s *scraper) run(ctx context.Context) {
	tick := time.NewTimer(0)
	defer tick.Stop()
	<-tick.C
	for {
		// Bursts of the same period as the readings would have all of them at the same moment of a
		// burst.
		tick.Reset(s.cfg.Interval*3/4 + rand.N(s.cfg.Interval/2))
		err := s.read(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			s.out.MissLoad(devicesamples.LoadSeries{Service: s.cfg.Service, Source: s.cfg.Endpoint}, time.Now().UnixNano())
		}
		s.note(err)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// note logs the first of several failures.
func (s *scraper) note(err error) {
	switch {
	case err == nil:
		s.failing, s.waiting = false, 0
	case s.waiting > 0 && errors.Is(err, syscall.ECONNREFUSED):
		s.waiting--
	case !s.failing:
		s.failing = true
		s.logger.Warn("Cannot read how many requests a server runs, so the energy of its requests is an upper bound "+
			"(set `endpoint` under `servers` to the server's Prometheus metrics); logged once until it works",
			zap.String("endpoint", s.cfg.Endpoint), zap.Error(err))
	}
}

func (s *scraper) read(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, max(s.cfg.Interval, slowestAnswer))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.cfg.Endpoint, nil)
	if err != nil {
		return err
	}
	before := time.Now()
	res, err := s.client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%q answered %s", s.cfg.Endpoint, res.Status)
	}
	took := time.Since(before)
	at := before.Add(took / 2).UnixNano()
	if took <= dateInterval { // else it is unknown when the answer was written
		s.checkClock(res.Header.Get("Date"), at)
	}
	return s.parse(io.LimitReader(res.Body, maxMetricsSize), at)
}

// dateInterval is how often the Date of answers changes.
const dateInterval = time.Second

// checkClock compares the Date of an answer at a time, in Unix nanoseconds, with this machine's
// clock. Spans cannot show that a clock is behind, because exporters wait. Not all servers send a
// Date.
func (s *scraper) checkClock(header string, at int64) {
	date, err := http.ParseTime(header)
	if err != nil {
		return
	}
	offset, judged := s.clock.Add(at, date.UnixNano(), dateInterval)
	if !judged {
		return
	}
	series := devicesamples.LoadSeries{Service: s.cfg.Service, Source: s.cfg.Endpoint}
	s.out.SetLoadClock(series, offset)
	if offset != 0 {
		where := "behind"
		if offset > 0 {
			where = "ahead of"
		}
		s.out.Contradict(plausibility.Contradiction{
			Reason: plausibility.ServerClock, Source: "server " + cmp.Or(s.cfg.Service, s.cfg.Endpoint),
			Found: fmt.Sprintf("the `Date` of its answers is %.3g s %s this machine's clock", offset.Abs().Seconds(), where),
			Other: "this machine's clock at " + time.Unix(0, at).UTC().Format(time.RFC3339) + ", when it sent " + header,
		})
	}
}

// parse reads a page of time at, in Unix nanoseconds.
func (s *scraper) parse(r io.Reader, at int64) error {
	page, err := servermetrics.Read(r)
	if err != nil {
		return fmt.Errorf("%q: %w", s.cfg.Endpoint, err)
	}
	s.meter.Add(page, at)
	if !s.counts.Write(s.out, devicesamples.LoadSeries{Service: s.cfg.Service, Source: s.cfg.Endpoint}, page, at) {
		return fmt.Errorf("%q has no metric of running requests (the table in docs/llm.md lists servers that have one)",
			s.cfg.Endpoint)
	}
	return nil
}
