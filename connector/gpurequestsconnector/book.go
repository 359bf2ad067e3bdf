// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpurequestsconnector

import (
	"container/list"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/boundedmap"
	"github.com/otelgpu/otelgpu/internal/series"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/internal/spantree"
)

// reason is the reason why a usage record was closed.
type reason uint8

const (
	settled reason = iota
	idle
	evicted
	shutdown
	reasons
)

// counts for the connector's own telemetry, since the last read.
type counts struct {
	closed                     [reasons]int64
	late, repeated             int64
	lostChildren, lostRequests int64
	lostOperations             int64
	charged, unassigned        float64 // J
	ended                      float64 // J of requests that have ended
}

// book keeps the usage records. Its methods are called under the connector's lock; now is from a
// series.Clock.
type book struct {
	cfg      *Config
	requests map[key]*request
	byAge    *list.List // of *request, the oldest first
	waiting  children
	arrived  *spantree.Tree[seenSpan, pending] // spans of a request arrive in any order, and a batch may arrive twice
	closed   boundedmap.Recent[key, struct{}]  // requests
	outer    boundedmap.Recent[key, division]  // recent batches that state work inside that has not arrived

	operations map[operation]*operation
	texts      map[string]string
	sources    map[string]*source
	targets    series.Targets

	done   []*request       // closed, not yet sent
	ending map[key]*request // closed requests that may still get work of their traces
	stats  counts
	infos  traceInfos

	// scratch of one payload
	spans []span
	index map[key]int
	parts []spanfacts.LinkShare
}

func newBook(cfg *Config) *book {
	return &book{
		cfg: cfg, requests: make(map[key]*request), byAge: list.New(), infos: newTraceInfos(cfg),
		waiting: newChildren(),
		arrived: spantree.New(spantree.Rules[seenSpan, pending]{MaxSpans: cfg.MaxSpans, MaxSums: cfg.MaxSpans}),
		closed:  boundedmap.NewRecent[key, struct{}](cfg.MaxRequests),
		outer:   boundedmap.NewRecent[key, division](maxDivisions),
		ending:  make(map[key]*request), operations: make(map[operation]*operation), texts: make(map[string]string),
		sources: make(map[string]*source), index: make(map[key]int),
	}
}

// read returns the counts since the last read. Counters of energy cannot fall: the energy of a
// request, which may be corrected, is counted once the request has ended, and a correction of the
// unassigned energy remains until there is more to count.
func (b *book) read() counts {
	s := b.stats
	b.stats = counts{unassigned: min(s.unassigned, 0)}
	s.unassigned = max(s.unassigned, 0)
	return s
}

// take processes a payload.
func (b *book) take(td ptrace.Traces, now int64) {
	var f spanfacts.Facts
	var s span
	var resource spanfacts.Resource
	var scope spanfacts.Scope
	for _, rs := range td.ResourceSpans().All() {
		var src *source // made for the first GPU span
		resource.Load(rs.Resource().Attributes())
		process := uint64(0) // the parents of spans without a rank may be in other processes
		if resource.Rank >= 0 {
			process = resource.Process()
		}
		for _, ss := range rs.ScopeSpans().All() {
			scope.Load(&resource, ss.Scope().Attributes())
			for _, x := range ss.Spans().All() {
				f.Load(x, &scope)
				s.load(x, &f)
				s.process = process
				if f.Key.Trace.IsEmpty() || f.Key.Span.IsEmpty() {
					if s.kind != hostSpan {
						b.stats.unassigned += s.energy
					}
					continue
				}
				b.addInfo(x, rs.Resource().Attributes(), &s)
				if s.kind == hostSpan {
					b.remember(&s, now)
					continue
				}
				if src == nil {
					src = b.source(rs.Resource().Attributes(), process)
				}
				if b.known(&s) {
					b.stats.repeated++
					continue
				}
				s.source = src
				b.index[s.key.In(s.home())] = len(b.spans)
				b.spans = append(b.spans, s)
			}
		}
	}
	b.nest(now)
	for i := range b.spans {
		s := &b.spans[i]
		s.done = true
		s.counted = s.nested && !s.batch
		var inner []key
		if s.kind != leafWork && s.kind != windowWork || s.batch {
			inner = b.remember(s, now)
		}
		switch {
		case s.nested && s.rest == 0:
		case s.batch:
			b.charge(s, now)
		case s.kind == requestSpan:
			b.hostTimed(s, inner, now)
		default:
			b.wait(s, now)
		}
	}
	clear(b.spans) // nothing may refer to the payload's memory
	b.spans = b.spans[:0]
	clear(b.index)
	b.end(now)
}

// known reports whether GPU work has arrived before or is in this payload.
func (b *book) known(s *span) bool {
	id := s.key.In(s.home())
	if _, here := b.index[id]; here || b.waiting.find(id) != nil {
		return true
	}
	old, _ := b.arrived.Find(s.home(), s.key)
	return old != nil && old.kind != hostSpan
}

// find returns a span that has arrived, nil if it is not known: one of the process, or a host span
// or a request of any.
func (b *book) find(process uint64, k key) *seenSpan {
	s, _ := b.arrived.Find(process, k)
	if s == nil {
		s, _ = b.arrived.Find(0, k)
	}
	return s
}

// pending is what waits for a span.
type pending struct {
	debts []debt
	inner []key // requests inside it
}

// pending removes and returns what waits for a span, as of its process and as of any.
func (b *book) pending(s *span) (all pending) {
	for _, process := range [...]uint64{0, s.process} {
		o, _ := b.arrived.Take(process, s.key)
		all.debts, all.inner = append(all.debts, o.debts...), append(all.inner, o.inner...)
	}
	return all
}

// remember keeps what later spans may need, and returns the requests inside that waited for it. An
// open request learns its start from its own span here.
func (b *book) remember(s *span, now int64) (inner []key) {
	waited := b.pending(s)
	seen, _ := b.arrived.Find(s.home(), s.key)
	if seen == nil {
		seen = &s.seenSpan
		seen.model, seen.device = b.text(seen.model), b.text(seen.device)
		b.arrived.Add(spantree.Span{Process: s.home(), Key: s.key, Parent: s.parent}, *seen, false, now)
	}
	if r := b.requests[s.key]; r != nil {
		r.begin(seen, now)
	}
	if s.kind == hostSpan {
		for _, o := range waited.debts {
			b.lift(s.process, s.above(), o, now)
		}
		for _, k := range waited.inner {
			b.merge(k, s.above(), now)
		}
	}
	return append(s.waited, waited.inner...)
}

// text returns a copy of s that does not keep a payload alive; equal texts share one.
func (b *book) text(s string) string {
	if s == "" {
		return ""
	}
	if t, ok := b.texts[s]; ok {
		return t
	}
	if len(b.texts) >= maxOperations {
		clear(b.texts)
	}
	t := strings.Clone(s)
	b.texts[t] = t
	return t
}

// maxOperations bounds the operations that are known by identity; beyond it they are looked up
// again.
const maxOperations = 10_000

func (b *book) operation(o operation) *operation {
	if p := b.operations[o]; p != nil {
		return p
	}
	if len(b.operations) >= maxOperations {
		clear(b.operations)
	}
	p := &operation{
		strings.Clone(o.name), strings.Clone(o.category), strings.Clone(o.itemType), strings.Clone(o.model),
	}
	b.operations[*p] = p
	return p
}

// charge divides a batch among its requests.
func (b *book) charge(s *span, now int64) {
	own := s.debt(s.device)
	if s.nested {
		own.time, own.energy = 0, min(s.rest, own.energy)
	}
	b.parts = spanfacts.Shares(s.links, b.parts[:0])
	size := max(float64(len(b.parts))+float64(s.links.DroppedLinksCount()), s.batchSize)
	op := b.operation(s.operation)
	s.device = b.text(s.device)
	rest := 1.0
	for i := range b.parts {
		p := &b.parts[i]
		if p.Key.Trace.IsEmpty() || p.Key.Span.IsEmpty() {
			continue
		}
		rest -= p.Share
		r := b.requests[p.Key] // inlined: a function for both callers would cost a fifth of a link's time
		if r == nil {
			r = b.open(p.Key, now)
		}
		r.seen = now
		r.flags, r.unsampled = p.Flags, p.Flags&knownParent != 0 && p.Flags&sampled == 0
		if r.state == "" {
			r.state = strings.Clone(p.State)
		}
		a := b.account(r, op, s.source)
		a.linked = true
		if a.last != s.key {
			a.last = s.key
			a.batches++
			a.sizes += size
			a.times(s, i)
		}
		if s.nested {
			p.Items = 0
		}
		a.add(s, p.Items, p.Share*own.time, p.Share*own.energy)
		b.stats.charged += p.Share * own.energy
	}
	if rest > 1e-12 {
		b.stats.unassigned += rest * own.energy
	}
	if s.inner > leastRest*s.energy && !s.nested {
		for i := range b.parts {
			b.parts[i].State = "" // of the payload
		}
		old, _ := b.outer.Put(s.key.In(s.process), division{op, s.source, b.parts})
		b.parts = old.parts[:0]
	}
}

// hostTimed charges a span of type request to itself.
func (b *book) hostTimed(s *span, inner []key, now int64) {
	r := b.requests[s.key]
	if r == nil {
		r = b.open(s.key, now)
	}
	r.seen = now
	s.device = b.text(s.device)
	a := b.account(r, b.operation(s.operation), s.source)
	a.batches++
	a.times(s, 0)
	a.items += s.items
	if s.energy > 0 {
		a.measured = true
		a.energy += s.energy
		b.stats.charged += s.energy
	}
	for _, k := range inner {
		b.merge(k, s.key, now)
	}
	b.merge(s.key, s.above(), now)
}

// merge combines an inner request with the next one at or above k. Servers around an engine send a
// span of the same request: the engine's counts are used, with the joules of both.
func (b *book) merge(inner, k key, now int64) {
	for range maxDepth {
		if k.Span.IsEmpty() {
			return
		}
		up := b.find(0, k)
		if up == nil {
			o := b.arrived.Sum(0, k, now)
			o.inner = append(o.inner, inner)
			return
		}
		if up.kind == requestSpan {
			b.absorb(inner, k)
			return
		}
		if up.kind != hostSpan {
			return
		}
		k.Span = up.parent
	}
}

// absorb moves the usage record of a span above to an open request inside, unless that span has its
// own batches or was reported.
func (b *book) absorb(inner, outer key) {
	r, around := b.requests[inner], b.requests[outer]
	if r == nil || around == nil || len(r.accounts) == 0 || len(around.accounts) != 1 || around.accounts[0].linked {
		return
	}
	a, of := &r.accounts[0], &around.accounts[0]
	a.measured = a.measured || of.measured
	a.energy += of.energy
	b.byAge.Remove(around.at)
	delete(b.requests, outer)
}

// open creates a request, with room for its usage records.
func (b *book) open(k key, now int64) *request {
	for len(b.requests) >= b.cfg.MaxRequests {
		b.close(b.byAge.Front().Value.(*request), evicted, now)
	}
	r := &request{key: k, seen: now}
	r.at = b.byAge.PushBack(r)
	b.requests[k] = r
	b.infos.trace(k.Trace).requests++
	if b.closed.Find(k) != nil {
		r.late = true
		b.stats.late++
	}
	r.begin(b.find(0, k), now)
	return r
}

// due closes usage records that are settled or idle (all usage records if all is set) and returns
// those closed since the last call.
func (b *book) due(now int64, all bool) []*request {
	for e := b.byAge.Front(); e != nil; {
		r := e.Value.(*request)
		e = e.Next()
		switch {
		case r.begun && now-max(r.seen, r.own) >= int64(b.cfg.Settle):
			b.close(r, settled, now)
		case !r.begun && now-r.seen >= int64(b.cfg.Idle):
			b.close(r, idle, now)
		case all:
			b.close(r, shutdown, now)
		}
	}
	b.end(now)
	b.expire(now, all)
	b.end(now)
	done := b.done
	b.done = nil
	for _, r := range done {
		b.stats.ended += r.energy()
	}
	return done
}

// close ends a request, which is passed on with the GPU work of its trace.
func (b *book) close(r *request, why reason, now int64) {
	b.byAge.Remove(r.at)
	delete(b.requests, r.key)
	b.inform(r)
	b.closed.Put(r.key, struct{}{})
	b.stats.closed[why]++
	if len(b.done) >= 4*b.cfg.MaxRequests { // evicted faster than they can be written
		b.stats.lostRequests++
		b.stats.ended += r.energy()
		return
	}
	b.done = append(b.done, r)
	if b.ending[r.key] == nil {
		b.ending[r.key] = r
	}
}

// end adds the GPU work of their traces to closed requests, once for all requests of a trace: there
// may be thousands in one.
func (b *book) end(now int64) {
	if len(b.ending) == 0 {
		return
	}
	traces := make(map[pcommon.TraceID]struct{})
	for k := range b.ending {
		traces[k.Trace] = struct{}{}
	}
	for trace := range traces {
		b.adopt(trace, now)
	}
	clear(b.ending)
}

// source is the resource of spans.
type source struct {
	id       string // the same for equal attributes
	attrs    pcommon.Map
	target   string // of metrics
	instance string // of metrics, if the attributes name no instance
	process  uint64 // 0 without a rank
}

func (b *book) source(attrs pcommon.Map, process uint64) *source {
	id := b.targets.Whole(attrs)
	if s := b.sources[string(id)]; s != nil {
		return s
	}
	if len(b.sources) >= b.cfg.MaxResources {
		clear(b.sources)
	}
	s := &source{id: string(id), process: process}
	s.target = string(b.targets.Key(attrs)) // id is removed by now
	s.attrs, s.instance = b.targets.Attributes(attrs)
	b.sources[s.id] = s
	return s
}
