// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpusamplesextension

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
)

// ServerConfig is an inference server whose load is read.
type ServerConfig struct {
	// Endpoint is the URL of the server's Prometheus metrics, required.
	Endpoint string `mapstructure:"endpoint"`
	// Service is the service.name of the server's spans. Default: every service that no other entry
	// names.
	Service string `mapstructure:"service"`
	// Interval is the time between two readings, at least 100ms.
	Interval time.Duration `mapstructure:"interval"`
}

// maxMetricsSize bounds how much of a server's response is read.
const maxMetricsSize = 16 << 20

// scraper reads the load of one server.
type scraper struct {
	cfg      ServerConfig
	client   *http.Client
	out      *devicesamples.Store
	logger   *zap.Logger
	counters devicesamples.LoadCounters
	failing  bool
}

// run reads until the context ends.
func (s *scraper) run(ctx context.Context) {
	tick := time.NewTicker(s.cfg.Interval)
	defer tick.Stop()
	for {
		err := s.read(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			s.out.MissLoad(devicesamples.LoadSeries{Service: s.cfg.Service, Source: s.cfg.Endpoint}, time.Now().UnixNano())
		}
		switch {
		case err == nil:
			s.failing = false
		case !s.failing:
			s.failing = true
			s.logger.Warn("Cannot read how many requests a server runs, so the energy of its requests is an upper bound "+
				"(set `endpoint` under `servers` to the server's Prometheus metrics); logged once until it works",
				zap.String("endpoint", s.cfg.Endpoint), zap.Error(err))
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (s *scraper) read(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, max(s.cfg.Interval, time.Second))
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
	at := before.Add(time.Since(before) / 2).UnixNano()
	found, err := s.parse(io.LimitReader(res.Body, maxMetricsSize), at)
	if err == nil && !found {
		err = fmt.Errorf("%q has no metric of running requests (vLLM, SGLang, TGI and Triton have one)", s.cfg.Endpoint)
	}
	return err
}

// parse finds the load in the Prometheus text format. Only a handful of lines are of interest, and
// a full parser would put its modules into the graph of everybody who uses the extension.
func (s *scraper) parse(r io.Reader, at int64) (found bool, err error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 64<<10), 1<<20)
	for lines.Scan() {
		line := lines.Text()
		end := strings.IndexAny(line, "{ ")
		if end <= 0 || line[0] == '#' {
			continue
		}
		form, ok := devicesamples.LoadMetric(line[:end])
		if !ok {
			continue
		}
		labels, rest := "", line[end:]
		if i := strings.LastIndexByte(line, '}'); i >= end {
			labels, rest = line[end:i+1], line[i+1:]
		}
		fields := strings.Fields(rest)
		if len(fields) == 0 {
			continue
		}
		v, err := strconv.ParseFloat(fields[0], 64)
		if err != nil {
			return found, fmt.Errorf("%q: value %q of %s is not a number", s.cfg.Endpoint, fields[0], line[:end])
		}
		found = true
		series := devicesamples.LoadSeries{Service: s.cfg.Service, Source: s.cfg.Endpoint + labels}
		s.counters.Write(s.out, series, form, at, v)
	}
	return found, lines.Err()
}
