// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"slices"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/boundedmap"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/semconv"
)

// Limits of the spans that are kept for waterfalls. The oldest traces are dropped first; a trace
// that a State has shown is kept longer.
const (
	maxTraceSpans = 400 // of one trace
	maxHeldSpans  = 100_000
	maxShown      = 512 // traces that a State has shown
	maxTexts      = 20_000
	learnedTraces = 128 // newest traces in which the parents of operations are looked up
)

// Trace is one trace, as far as it is kept; its spans are sorted by start.
type Trace struct {
	ID    string      `json:"id"`
	Start float64     `json:"start"` // unix ms
	Spans []TraceSpan `json:"spans"`
	More  int         `json:"more,omitempty"` // spans beyond the limit
}

// TraceSpan is a span of a trace. Times are seconds, energies joules.
type TraceSpan struct {
	ID       string  `json:"id"`
	Parent   string  `json:"parent,omitempty"` // its own process's, or another's
	Start    float64 `json:"start"`            // since the start of the trace
	Duration float64 `json:"duration"`
	Name     string  `json:"name"`
	Type     string  `json:"type,omitempty"` // empty: not GPU work
	Service  string  `json:"service,omitempty"`
	Device   string  `json:"device,omitempty"`
	Rank     int64   `json:"rank"` // -1: not stated
	Energy   float64 `json:"energy,omitempty"`
}

// heldSpan is a span that is kept. Its texts are shared.
type heldSpan struct {
	id, parent      pcommon.SpanID
	start, end      uint64
	energy          float64
	rank            int64
	process         uint64
	name, kind      string
	service, device string
}

type heldTrace struct {
	id    pcommon.TraceID
	spans []heldSpan
	more  int
	next  *heldTrace // the next younger one
	prev  *heldTrace
}

// traceStore keeps the spans of recent traces, for waterfalls.
type traceStore struct {
	traces         map[pcommon.TraceID]*heldTrace
	oldest, newest *heldTrace
	spans, most    int // of traces
	pinned         map[pcommon.TraceID]bool
	shown          boundedmap.Recent[pcommon.TraceID, *heldTrace] // pinned, and no longer in traces
	texts          map[string]string
}

func newTraceStore() traceStore {
	return traceStore{
		traces: map[pcommon.TraceID]*heldTrace{}, texts: map[string]string{}, most: maxHeldSpans,
		shown: boundedmap.NewRecent[pcommon.TraceID, *heldTrace](maxShown),
	}
}

// text returns the one copy of a text.
func (t *traceStore) text(s string) string {
	if x, ok := t.texts[s]; ok || s == "" {
		return x
	}
	if len(t.texts) >= maxTexts {
		clear(t.texts)
	}
	t.texts[s] = s
	return s
}

// add keeps a span.
func (t *traceStore) add(s ptrace.Span, f *spanfacts.Facts, r *spanfacts.Resource, gpu bool) {
	id := f.Key.Trace
	if id.IsEmpty() {
		return
	}
	x := t.traces[id]
	if x == nil {
		x = t.shown.Get(id)
	}
	if x == nil {
		x = &heldTrace{id: id, prev: t.newest}
		t.traces[id] = x
		if t.newest != nil {
			t.newest.next = x
		} else {
			t.oldest = x
		}
		t.newest = x
	}
	if len(x.spans) >= maxTraceSpans {
		x.more++
		return
	}
	out := heldSpan{
		id: f.Key.Span, parent: f.Parent, start: f.Start, end: f.End, rank: r.Rank, process: r.Process(),
		name: t.text(spanfacts.Clip(s.Name())), service: t.text(r.Service),
	}
	if gpu {
		out.kind, out.device = t.text(cmp.Or(f.Type, "section")), t.text(cmp.Or(f.Device.Name, f.Device.ID))
		out.energy = f.Energy
		if f.Name != "" {
			out.name = t.text(f.Name)
		}
	}
	x.spans = append(x.spans, out)
	t.spans++
	for t.spans > t.most && t.oldest != t.newest {
		t.evict()
	}
}

// evict drops the oldest trace, or keeps it with the ones that a State has shown.
func (t *traceStore) evict() {
	x := t.oldest
	t.oldest, t.oldest.next.prev = x.next, nil
	x.next = nil
	delete(t.traces, x.id)
	t.spans -= len(x.spans)
	if t.pinned[x.id] {
		t.shown.Put(x.id, x)
	}
}

// get returns a trace, nil if it is not kept.
func (t *traceStore) get(id pcommon.TraceID) *heldTrace {
	if x := t.traces[id]; x != nil {
		return x
	}
	return t.shown.Get(id)
}

// public returns at most so many spans of a trace, sorted by start.
func (x *heldTrace) public(most int) *Trace {
	list := slices.Clone(x.spans)
	slices.SortStableFunc(list, func(a, b heldSpan) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(b.end, a.end))
	})
	out := &Trace{ID: x.id.String(), More: x.more + max(0, len(list)-most), Spans: []TraceSpan{}}
	list = list[:min(len(list), most)]
	if len(list) > 0 {
		out.Start = millis(list[0].start)
	}
	for i := range list {
		s := &list[i]
		y := TraceSpan{
			ID: s.id.String(), Parent: s.parent.String(), Start: float64(s.start-list[0].start) / 1e9,
			Duration: spanfacts.Elapsed(s.start, s.end), Name: s.name, Type: s.kind, Service: s.service, Device: s.device,
			Rank: s.rank, Energy: s.energy,
		}
		out.Spans = append(out.Spans, y)
	}
	return out
}

// Trace returns what is kept of a trace, nil if that is nothing.
func (m *Model) Trace(id string) *Trace {
	var key pcommon.TraceID
	if n, err := hex.Decode(key[:], []byte(id)); err != nil || n != len(key) {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if x := m.traces.get(key); x != nil {
		return x.public(maxTraceSpans)
	}
	return nil
}

// pin keeps the traces that a State names beyond their time, and returns them in the order of
// their importance.
func (t *traceStore) pin(s *State) (list []string) {
	pinned := map[pcommon.TraceID]bool{}
	add := func(id string) {
		var key pcommon.TraceID
		if n, err := hex.Decode(key[:], []byte(id)); err == nil && n == len(key) && !key.IsEmpty() && !pinned[key] {
			pinned[key] = true
			list = append(list, id)
		}
	}
	for i := range s.Findings {
		add(s.Findings[i].Trace)
	}
	for i := range s.Requests[:min(len(s.Requests), 15)] {
		add(s.Requests[i].Trace)
	}
	for i := range s.Longest {
		add(s.Longest[i].Trace)
	}
	for i := range s.Operations[:min(len(s.Operations), 40)] {
		add(s.Operations[i].Trace)
	}
	for i := range s.Requests {
		add(s.Requests[i].Trace)
	}
	for i := range s.Steps {
		add(s.Steps[i].Trace)
	}
	t.pinned = pinned
	return list
}

// saved returns the traces of these ids, as far as they are kept and a file has room.
func (t *traceStore) saved(ids []string) (list []*Trace) {
	room := shownInTraces
	for _, id := range ids {
		var key pcommon.TraceID
		_, _ = hex.Decode(key[:], []byte(id))
		if x := t.get(key); x != nil && room > 0 && len(list) < shownTraces {
			y := x.public(min(room, maxTraceSpans))
			room -= len(y.Spans)
			list = append(list, y)
		}
	}
	return list
}

// learnParents sets the operation that contains an operation most often, from the newest traces.
func (m *Model) learnParents() {
	votes := map[operationKey]map[operationKey]int{}
	n := 0
	for x := m.traces.newest; x != nil && n < learnedTraces; x = x.prev {
		n++
		x.vote(votes)
	}
	for k, parents := range votes {
		if o := m.operations[k]; o != nil {
			o.parent, _ = largest(parents, func(p operationKey, count int) float64 {
				if p == o.parent {
					return float64(count) + 0.5
				}
				return float64(count)
			})
		}
	}
}

// vote counts, for each operation, the nearest operations above its spans.
func (x *heldTrace) vote(votes map[operationKey]map[operationKey]int) {
	type spanKey struct {
		process uint64
		id      pcommon.SpanID
	}
	at := make(map[spanKey]int, len(x.spans))
	for i := range x.spans {
		at[spanKey{x.spans[i].process, x.spans[i].id}] = i
	}
	for i := range x.spans {
		s := &x.spans[i]
		if s.kind == "" {
			continue
		}
		k := operationKey{s.service, s.name, s.kind}
		parents := votes[k]
		if parents == nil {
			parents = map[operationKey]int{}
			votes[k] = parents
		}
		parent := operationKey{}
		for up, depth := s, 0; depth < 16; depth++ {
			j, known := at[spanKey{up.process, up.parent}]
			if !known || &x.spans[j] == up {
				break
			}
			up = &x.spans[j]
			if up.kind != "" && up.kind != semconv.GPUOperationTypeStep {
				parent = operationKey{up.service, up.name, up.kind}
				break
			}
		}
		if parent != k {
			parents[parent]++
		}
	}
}

// handleTraces serves the spans of a trace.
func handleTraces(mux *http.ServeMux, m *Model) {
	mux.HandleFunc("GET /api/trace", atMost(maxAnswers, func(w http.ResponseWriter, r *http.Request) {
		x := m.Trace(r.URL.Query().Get("id"))
		if x == nil {
			http.Error(w, "the spans of this trace are not in memory (the page keeps the newest 100,000)", http.StatusNotFound)
			return
		}
		b, err := json.Marshal(x)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		write(w, r, b)
	}))
}
