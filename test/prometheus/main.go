// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Command prometheus runs the parts of Prometheus that receive metrics, over OTLP and by scraping,
// and answer queries: its own write handler, scrape manager, time series database, query engine and
// rules. Tests push to it and query it, to verify real behavior, such as rejecting a whole request
// for one sample that already exists with another value.
//
// Its argument is a configuration file of Prometheus, of which storage, otlp and scrape_configs are
// used (targets and intervals are set by POST /scrape). It prints the address that it listens on.
// Paths: POST /api/v1/otlp/v1/metrics; POST /scrape?job=&target=host:port, which is read every
// second from then on; GET /api/v1/query?query=&time= (unix seconds); GET /rules?file=&time=, a
// file of rules evaluated; GET /samples?match= (a series selector), all samples at all times; GET
// /exemplars?match=; GET /answers, counts of the write handler's statuses.
//
// It is a separate module, so that no released module depends on Prometheus.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage/remote"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	dir, err := os.MkdirTemp("", "prometheus")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	cfg := &config.DefaultConfig
	if len(os.Args) > 1 {
		if cfg, err = config.LoadFile(os.Args[1], false, log); err != nil {
			return err
		}
	}
	s, err := newServer(dir, cfg, log)
	if err != nil {
		return err
	}
	defer s.db.Close()
	go s.scraper.run()
	defer s.scraper.stop()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: s.routes(log), ReadHeaderTimeout: time.Minute}
	go func() {
		<-ctx.Done()
		server.Close()
	}()
	fmt.Printf("listening on %s\n", l.Addr())
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

type server struct {
	db      *tsdb.DB
	engine  *promql.Engine
	parser  parser.Parser
	scraper *scraper
	config  *config.Config

	mu      sync.Mutex
	answers map[string]int
}

func newServer(dir string, cfg *config.Config, log *slog.Logger) (*server, error) {
	opts := tsdb.DefaultOptions() // defaults of Prometheus, except for retention and exemplars
	opts.RetentionDuration = int64(48 * time.Hour / time.Millisecond)
	if c := cfg.StorageConfig.TSDBConfig; c != nil {
		opts.OutOfOrderTimeWindow = c.OutOfOrderTimeWindow
	}
	opts.EnableExemplarStorage, opts.MaxExemplars = true, 100_000
	db, err := tsdb.Open(dir, log, prometheus.NewRegistry(), opts, nil)
	if err != nil {
		return nil, err
	}
	p := parser.NewParser(parser.Options{})
	engine := promql.NewEngine(promql.EngineOpts{
		Logger: log, MaxSamples: 50_000_000, Timeout: time.Minute, LookbackDelta: 5 * time.Minute, EnableAtModifier: true,
		EnableNegativeOffset: true, Parser: p,
	})
	scraper, err := newScraper(db, cfg, log)
	if err != nil {
		return nil, err
	}
	return &server{db: db, config: cfg, engine: engine, parser: p, scraper: scraper, answers: map[string]int{}}, nil
}

func (s *server) routes(log *slog.Logger) http.Handler {
	otlp := remote.NewOTLPWriteHandler(log, prometheus.NewRegistry(), s.db, func() config.Config { return *s.config },
		remote.OTLPOptions{})
	mux := http.NewServeMux()
	mux.HandleFunc("POST /api/v1/otlp/v1/metrics", func(w http.ResponseWriter, r *http.Request) {
		c := &capture{ResponseWriter: w, status: http.StatusOK}
		otlp.ServeHTTP(c, r)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.answers[strconv.Itoa(c.status)+" "+c.text]++
	})
	mux.HandleFunc("GET /answers", func(w http.ResponseWriter, _ *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		reply(w, s.answers, nil)
	})
	mux.HandleFunc("POST /scrape", s.scraper.add)
	for path, answer := range map[string]func(*http.Request) (any, error){
		"/api/v1/query": s.query, "/rules": s.rules, "/samples": s.samples, "/exemplars": s.exemplars,
	} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			v, err := answer(r)
			reply(w, v, err)
		})
	}
	return mux
}

// capture records a response's status, and the text of an error.
type capture struct {
	http.ResponseWriter
	status int
	text   string
}

func (c *capture) WriteHeader(status int) {
	c.status = status
	c.ResponseWriter.WriteHeader(status)
}

func (c *capture) Write(b []byte) (int, error) {
	if c.status >= 300 {
		c.text += string(b)
	}
	return c.ResponseWriter.Write(b)
}

func reply(w http.ResponseWriter, v any, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(v); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// series is one series in a response of /samples and /api/v1/query: pairs of Unix ms and value.
type series struct {
	Labels  map[string]string `json:"labels"`
	Samples [][2]float64      `json:"samples"`
}

// timeOf returns the time parameter of a request, in Unix seconds.
func timeOf(r *http.Request) (time.Time, error) {
	at, err := strconv.ParseFloat(r.FormValue("time"), 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("cannot read time %q: %w", r.FormValue("time"), err)
	}
	return time.UnixMilli(int64(at * 1000)), nil
}

func (s *server) query(r *http.Request) (any, error) {
	at, err := timeOf(r)
	if err != nil {
		return nil, err
	}
	q, err := s.engine.NewInstantQuery(r.Context(), s.db, nil, r.FormValue("query"), at)
	if err != nil {
		return nil, err
	}
	defer q.Close()
	result := q.Exec(r.Context())
	if result.Err != nil {
		return nil, result.Err
	}
	out := []series{}
	switch v := result.Value.(type) {
	case promql.Vector:
		for _, x := range v {
			out = append(out, series{x.Metric.Map(), [][2]float64{{float64(x.T), number(x.F)}}})
		}
	case promql.Scalar:
		out = append(out, series{nil, [][2]float64{{float64(v.T), number(v.V)}}})
	default:
		return nil, fmt.Errorf("cannot answer with a %s (ask for a vector)", v.Type())
	}
	return out, nil
}

// number returns a value that JSON can represent.
func number(v float64) float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return -1
	}
	return v
}

func (s *server) samples(r *http.Request) (any, error) {
	match, err := s.parser.ParseMetricSelector(r.FormValue("match"))
	if err != nil {
		return nil, err
	}
	q, err := s.db.Querier(math.MinInt64, math.MaxInt64)
	if err != nil {
		return nil, err
	}
	defer q.Close()
	out := []series{}
	set := q.Select(r.Context(), true, nil, match...)
	for set.Next() {
		x := series{Labels: set.At().Labels().Map(), Samples: [][2]float64{}}
		for it := set.At().Iterator(nil); it.Next() == chunkenc.ValFloat; {
			t, v := it.At()
			x.Samples = append(x.Samples, [2]float64{float64(t), number(v)})
		}
		out = append(out, x)
	}
	return out, set.Err()
}

func (s *server) exemplars(r *http.Request) (any, error) {
	match, err := s.parser.ParseMetricSelector(r.FormValue("match"))
	if err != nil {
		return nil, err
	}
	q, err := s.db.ExemplarQuerier(r.Context())
	if err != nil {
		return nil, err
	}
	type found struct {
		Labels    map[string]string `json:"labels"`
		Exemplars []map[string]any  `json:"exemplars"`
	}
	out := []found{}
	all, err := q.Select(math.MinInt64, math.MaxInt64, [][]*labels.Matcher{match}...)
	for _, x := range all {
		f := found{Labels: x.SeriesLabels.Map()}
		for _, e := range x.Exemplars {
			f.Exemplars = append(f.Exemplars, map[string]any{"labels": e.Labels.Map(), "value": number(e.Value), "time": e.Ts})
		}
		out = append(out, f)
	}
	return out, err
}
