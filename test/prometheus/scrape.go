// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/discovery/targetgroup"
	"github.com/prometheus/prometheus/scrape"
	"github.com/prometheus/prometheus/tsdb"
)

// scraper is Prometheus' own scrape manager. It reads each target every second; other settings are
// from the job's configuration.
type scraper struct {
	manager *scrape.Manager
	sets    chan map[string][]*targetgroup.Group
	config  *config.Config

	mu      sync.Mutex
	targets map[string][]*targetgroup.Group
}

func newScraper(db *tsdb.DB, cfg *config.Config, log *slog.Logger) (*scraper, error) {
	opts := &scrape.Options{DiscoveryReloadInterval: model.Duration(100 * time.Millisecond)}
	m, err := scrape.NewManager(opts, log, nil, db, nil, prometheus.NewRegistry())
	if err != nil {
		return nil, err
	}
	return &scraper{
		manager: m, config: cfg, sets: make(chan map[string][]*targetgroup.Group),
		targets: map[string][]*targetgroup.Group{},
	}, nil
}

// run runs the manager until it is stopped.
func (s *scraper) run() { _ = s.manager.Run(s.sets) }

func (s *scraper) stop() {
	close(s.sets)
	s.manager.Stop()
}

// add serves POST /scrape?job=&target=host:port.
func (s *scraper) add(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	job := r.FormValue("job")
	s.targets[job] = append(s.targets[job], &targetgroup.Group{
		Source:  r.FormValue("target"),
		Targets: []model.LabelSet{{model.AddressLabel: model.LabelValue(r.FormValue("target"))}},
	})
	sets, c := map[string][]*targetgroup.Group{}, *s.config
	c.ScrapeConfigs = nil
	for _, known := range s.config.ScrapeConfigs {
		if groups, ok := s.targets[known.JobName]; ok {
			often := *known
			often.ScrapeInterval, often.ScrapeTimeout = model.Duration(time.Second), model.Duration(time.Second)
			c.ScrapeConfigs = append(c.ScrapeConfigs, &often)
			sets[known.JobName] = groups
		}
	}
	err := s.manager.ApplyConfig(&c)
	if err == nil && len(sets) != len(s.targets) {
		err = fmt.Errorf("no scrape_configs entry for job %q", job)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.sets <- sets
}
