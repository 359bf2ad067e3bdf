// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/stackprofile"
)

const (
	profileWindow = 15 * time.Second // a requested time is rounded outward to multiples of it
	profileSettle = 3 * time.Second
	// shownNodes bounds a flame graph: 20,000 nodes are about a megabyte of JSON, and more than a
	// screen has pixels for.
	shownNodes = 20_000
	// maxProfileAnswers is how many profiles are written at a time.
	maxProfileAnswers = 8
)

// liveProfile has the limits of the profile of a live page.
var liveProfile = stackprofile.Options{
	Window: profileWindow, Settle: profileSettle, MaxWait: 30 * time.Second, MaxStacks: 5000, MaxSpans: 50_000,
	Repeats: 200_000,
}

// profiled adds spans to the live profile, calls visit for each, and removes what is older than the
// kept time. The caller holds m.mu.
func (m *Model) profiled(td ptrace.Traces, now time.Time, visit stackprofile.Visit) {
	m.stacks.AddEach(td, now.UnixNano(), visit)
	if now.Sub(m.resolved).Abs() >= profileSettle {
		m.resolved = now
		m.stacks.Resolve(now.UnixNano(), false)
	}
	m.stacks.Take(now.Add(-keptSeconds * time.Second).UnixNano())
	x := m.stacks.Stats()
	m.health.StacksMerged += x.Overflow
}

// ProfileQuery selects a profile.
type ProfileQuery struct {
	Query
	Type             stackprofile.Type // shown first by viewers
	Service, Version string            // "": all
}

// Profiles returns the GPU time, energy and idle time by stack of the requested time.
func (m *Model) Profiles(q ProfileQuery) []*stackprofile.Profile {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	m.stacks.Resolve(now.UnixNano(), false)
	m.stacks.Take(now.Add(-keptSeconds * time.Second).UnixNano())
	from, to := q.From, q.To
	if from.IsZero() {
		from, to = now.Add(-keptSeconds*time.Second), now.Add(maxSkew*time.Second)
		if q.Range > 0 {
			from = now.Add(-q.Range)
		}
	}
	list := m.stacks.Between(uint64(max(0, from.UnixNano())), uint64(max(0, to.UnixNano())))
	return slices.DeleteFunc(list, func(p *stackprofile.Profile) bool {
		return q.Service != "" && p.Source.Service != q.Service || q.Version != "" && p.Source.Version != q.Version
	})
}

// Flames returns the flame graph of everything that the model holds. It counts traces that wait for
// spans as they are: call it when no more spans arrive.
func (m *Model) Flames() *stackprofile.Graph {
	m.mu.Lock()
	m.stacks.Resolve(m.now().UnixNano(), true)
	m.mu.Unlock()
	return stackprofile.NewGraph(m.Profiles(ProfileQuery{}), shownNodes)
}

// profileQuery reads the parameters of /pprof and /api/flames.
func profileQuery(v url.Values) (q ProfileQuery, err error) {
	for name := range v {
		if !slices.Contains([]string{"type", "window", "from", "to", "service", "version"}, name) {
			return q, fmt.Errorf("unknown parameter %q (type, window, from, to, service and version are known)", name)
		}
	}
	if text := v.Get("window"); text != "" {
		q.Range, err = time.ParseDuration(text)
		if err != nil || q.Range < profileWindow || q.Range > keptSeconds*time.Second {
			return q, fmt.Errorf("window must be a duration from 15s to 10m, found %q", text)
		}
	}
	if text := v.Get("type"); text != "" {
		known := false
		if q.Type, known = stackprofile.TypeOf(text); !known {
			return q, fmt.Errorf("type must be one of %v, found %q", stackprofile.Types(), text)
		}
	}
	q.Service, q.Version = v.Get("service"), v.Get("version")
	v.Del("range") // refused above
	times, err := query(v)
	q.From, q.To = times.From, times.To
	return q, err
}

// handleProfiles serves the profile of a model, as pprof and as the tree of a flame graph.
func handleProfiles(mux *http.ServeMux, m *Model) {
	var one sync.Mutex // one at a time queries the model, so that many readers do not delay spans
	read := func(w http.ResponseWriter, r *http.Request) ([]*stackprofile.Profile, ProfileQuery, bool) {
		q, err := profileQuery(r.URL.Query())
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return nil, q, false
		}
		one.Lock()
		defer one.Unlock()
		return m.Profiles(q), q, true
	}
	mux.HandleFunc("GET /pprof", atMost(maxProfileAnswers, func(w http.ResponseWriter, r *http.Request) {
		list, q, ok := read(w, r)
		if !ok {
			return
		}
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("Content-Disposition", `attachment; filename="gpu.pb.gz"`)
		_ = stackprofile.WritePprof(w, list, q.Type)
	}))
	mux.HandleFunc("GET /api/flames", atMost(maxProfileAnswers, func(w http.ResponseWriter, r *http.Request) {
		list, _, ok := read(w, r)
		if !ok {
			return
		}
		b, err := json.Marshal(stackprofile.NewGraph(list, shownNodes))
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(b)
	}))
}
