// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"context"
	"hash/maphash"
	"iter"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/processor/gpujoinprocessor/internal/attribution"
	"github.com/otelgpu/otelgpu/semconv"
)

// batch is the GPU spans of one request, in the order of the wire. It is reused.
type batch struct {
	spans     []gpuSpan
	shares    []attribution.Span   // of spans, until they have arrived
	wire      []ptrace.Span        // all spans of the request; nil while it is packed
	frame     ptrace.Traces        // the packed request's resources and scopes
	more      []attribution.Handle // on the further devices of spans on several
	resources []resourceInfo
	targets   targets
	scopes    []scope
	host      []hostSpan
	bridges   map[attribution.Key][8]byte
	boards    []boardEnd
	packed    packed
	results   *results                 // nil until the batch is written
	only      map[attribution.Key]bool // the spans that are sent again; nil: all
	tally     tally
	seed      maphash.Seed
	waiting   int             // the spans that are waited for, undecided ones included
	undecided int64           // until when the devices of some may become known; 0: all are decided
	urgent    bool            // nothing is undecided
	stored    bool            // the queue has a copy
	unplaced  [outcomes]int64 // spans whose device is not found, by the reason
	latest    int64           // end of those
	seen      int64           // when the first of them arrived first
}

// scope is the GPU spans of one instrumentation scope of a request.
type scope struct {
	scope  pcommon.InstrumentationScope
	source string // of the samples of all of its spans
	mixed  bool   // they have several, or some are not joined
	cells  int    // spans of method cell minus spans of method interval
	method string // of its spans without one
}

// hostSpan is a span without GPU operation.
type hostSpan struct {
	key    attribution.Key
	parent [8]byte
}

// boardEnd is when the last span of the batch ended on a board.
type boardEnd struct {
	board *board
	dev   *attribution.Device // of the board when the batch arrived
	end   int64
}

// joinable returns the indexes of the spans that wait for samples of a device, with their targets.
func (b *batch) joinable() iter.Seq2[int, *target] {
	return func(yield func(int, *target) bool) {
		for i := range b.spans {
			g := &b.spans[i]
			if p := &b.targets.list[g.target]; g.fault == sound && p.outcome == found && !yield(i, p) {
				return
			}
		}
	}
}

func (b *batch) reset() {
	clear(b.spans)
	clear(b.scopes)
	clear(b.resources)
	clear(b.boards)
	clear(b.bridges)
	b.targets.reset()
	b.packed.reset()
	b.spans, b.scopes, b.resources, b.host, b.boards = b.spans[:0], b.scopes[:0], b.resources[:0], b.host[:0], b.boards[:0]
	b.wire, b.more, b.shares = nil, b.more[:0], b.shares[:0]
	b.frame, b.waiting, b.tally, b.only = ptrace.Traces{}, 0, tally{}, nil
	b.undecided, b.unplaced, b.urgent, b.stored = 0, [outcomes]int64{}, false, false
	if b.results != nil {
		b.results.reset()
		resultScratch.Put(b.results)
		b.results = nil
	}
}

// furtherHandles returns the handles of a span on the further devices of its target.
func (b *batch) furtherHandles(g *gpuSpan) []attribution.Handle {
	return b.more[g.more : g.more+g.further]
}

// scan reads the GPU spans of a request. Their parents are followed through host spans of the same
// request (a step, the framework's operator below it, the kernel below that), because energy
// attribution needs the nearest ancestor on the GPU.
func (b *batch) scan(td ptrace.Traces, id identifier, now int64, maxWait time.Duration) {
	b.seed = id.seed
	all := td.ResourceSpans()
	if b.shares == nil {
		b.shares = *shareScratch.Get().(*[]attribution.Span)
	}
	if cap(b.resources) < all.Len() {
		b.resources = make([]resourceInfo, 0, all.Len()) // never grown below: targets point into it
	}
	var g gpuSpan
	var f spanfacts.Facts
	var share attribution.Span
	var at targetName
	var resource spanfacts.Resource
	var scoped spanfacts.Scope
	scratch := nestScratch.Get().(*[]spanfacts.NestSpan)
	streams := (*scratch)[:0]
	for _, rs := range all.All() {
		b.resources = append(b.resources, id.resource(rs.Resource().Attributes()))
		r := &b.resources[len(b.resources)-1]
		resource.Load(rs.Resource().Attributes())
		for _, ss := range rs.ScopeSpans().All() {
			scoped.Load(&resource, ss.Scope().Attributes())
			b.wire = slices.Grow(b.wire, ss.Spans().Len())
			for _, s := range ss.Spans().All() {
				b.wire = append(b.wire, s)
				stream, ok := g.read(&share, &f, s, &scoped, r, &at, now, maxWait)
				if !ok {
					b.host = append(b.host, hostSpan{
						attribution.Key{Trace: f.Key.Trace, Span: r.own(f.Key.Span)}, r.ownParent(s, f.Parent),
					})
					continue
				}
				g.wire, g.target, g.scope = int32(len(b.wire)-1), b.targets.number(&at), int32(len(b.scopes))
				b.targets.list[g.target].extend(&share)
				if len(b.spans) == cap(b.spans) { // one growth for a scope, not one for each doubling
					b.spans = slices.Grow(b.spans, ss.Spans().Len())
					b.shares = slices.Grow(b.shares, ss.Spans().Len())
					streams = slices.Grow(streams, ss.Spans().Len())
				}
				b.spans, b.shares = append(b.spans, g), append(b.shares, share)
				streams = append(streams, spanfacts.NestSpan{Owner: r.process, Device: f.Device.Number(), Stream: stream})
			}
			b.scopes = append(b.scopes, scope{scope: ss.Scope()})
		}
	}
	if len(b.spans) > 0 && len(b.host) > 0 {
		b.bridge()
	}
	b.nest(streams)
	*scratch = streams
	nestScratch.Put(scratch)
}

// nestScratch holds what nest needs of the spans of one request. Batches wait for seconds and need
// it for microseconds, so it is not part of them.
var nestScratch = sync.Pool{New: func() any { return new([]spanfacts.NestSpan) }}

// shareScratch holds the shares of a batch for the same reason.
var shareScratch = sync.Pool{New: func() any { return new([]attribution.Span) }}

// arrived releases what is not needed after arrive.
func (b *batch) arrived() {
	s := b.shares[:0]
	b.shares = nil
	shareScratch.Put(&s)
}

// nest moves spans that ran inside others of their stream below those. A loop's phase, and sections
// of the code that it calls with the step's context, are siblings in the trace; without nesting
// each would get half of the energy.
func (b *batch) nest(streams []spanfacts.NestSpan) {
	for i := range streams {
		s, g := &streams[i], &b.shares[i]
		s.Trace, s.Parent, s.Start, s.End = g.Trace, g.Parent, g.Start, g.End
	}
	spanfacts.Nest(streams, func(inner, outer int) {
		if b.targets.sameDevice(b.spans[inner].target, b.spans[outer].target) {
			b.shares[inner].Parent, streams[inner].Parent = b.shares[outer].Span, b.shares[outer].Span
		}
	})
}

// others returns a checksum of the spans that are not waited for, whatever their order; 0: there
// are none.
func (b *batch) others() (sum uint64) {
	add := func(k *attribution.Key) { sum += maphash.Comparable(b.seed, *k) }
	for i := range b.host {
		add(&b.host[i].key)
	}
	for i := range b.spans {
		g := &b.spans[i]
		if x := &b.targets.list[g.target]; g.fault != sound || x.outcome != found && !x.undecided {
			add(&g.Key)
		}
	}
	return sum
}

// bridge replaces parents that are host spans by their own parents; a root among them leaves none,
// so that no span waits for an ancestor that cannot arrive.
func (b *batch) bridge() {
	if b.bridges == nil {
		b.bridges = map[attribution.Key][8]byte{}
	}
	for _, h := range b.host {
		b.bridges[h.key] = h.parent
	}
	for i := range b.spans {
		s := &b.shares[i]
		for range maxBridge {
			up, ok := b.bridges[attribution.Key{Trace: s.Trace, Span: s.Parent}]
			if !ok {
				break
			}
			s.Parent = up
		}
	}
}

// maxBridge bounds the walk through host spans; cycles of parents end there too.
const maxBridge = 128

// mark writes on each scope what most of its spans would repeat: the source of the samples, if all
// have the same, and then the most frequent method. The source also tells another gpu_join that the
// spans are joined.
func (b *batch) mark() {
	for i := range b.spans {
		g := &b.spans[i]
		s := &b.scopes[g.scope]
		source := ""
		if at := &b.targets.list[g.target]; g.fault == sound && at.outcome == found {
			source = at.dev.Device().Source
			if g.end-g.start < at.cell {
				s.cells++
			} else {
				s.cells--
			}
		}
		if source == "" || s.source != "" && s.source != source {
			s.mixed = true
		}
		s.source = source
	}
	for i := range b.scopes {
		s := &b.scopes[i]
		s.method = semconv.GPUJoinMethodInterval
		if s.mixed {
			s.source = ""
		}
		if s.source == "" {
			continue
		}
		s.scope.Attributes().PutStr(string(semconv.GPUMeasurementSourceKey), s.source)
		if s.cells > 0 {
			s.method = semconv.GPUJoinMethodCell
			s.scope.Attributes().PutStr(string(semconv.GPUJoinMethodKey), s.method)
		}
	}
}

// pendingRequest is a waiting request with the results of reading it, so that it need not be read
// and looked up again when it is released, when its memory is long out of the CPU's caches. It
// passes the queue in the request's context; a storage keeps only the request.
//
// Its spans are added to the energy attribution after the queue has accepted it, because a refused
// request may never arrive again. It is locked until then, and the consumer waits for that.
type pendingRequest struct {
	mu    sync.Mutex
	td    ptrace.Traces
	size  int    // in bytes of OTLP, at arrival
	batch *batch // nil once it was taken
}

type pendingKey struct{}

// pendingBatch returns the batch of a request that leaves the queue. Nil: nothing is known about
// the request that is returned, because it is from the storage or a device has been replaced since
// then.
func pendingBatch(ctx context.Context, td ptrace.Traces, e *engine) (*batch, ptrace.Traces) {
	r, ok := ctx.Value(pendingKey{}).(*pendingRequest)
	if !ok || r.td != td {
		return nil, td
	}
	r.mu.Lock()
	b := r.batch
	r.batch = nil
	r.mu.Unlock()
	if b == nil {
		return nil, td
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	replaced := func(x boardEnd) bool { return e.boards[x.board.id] != x.board || x.board.dev != x.dev }
	if b.waiting == 0 || slices.ContainsFunc(b.boards, replaced) {
		e.undecided.remove(b)
		return nil, b.build(nil)
	}
	return b, td
}
