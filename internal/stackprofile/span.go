// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package stackprofile

import (
	"cmp"
	"math"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/profiletrace/vocabulary"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/semconv"
)

// span is what is kept of a span until its tree is resolved.
type span struct {
	key        spanfacts.Key // in its process
	process    uint64        // 0 without a rank
	parent     pcommon.SpanID
	start, end uint64  // unix ns; of GPU work on the device
	launch     uint64  // unix ns; 0: unknown
	time       int64   // on the device, ns; 0: none
	energy     float64 // of the span alone, as far as it is stated, J
	total      float64 // with its descendants, J
	weight     float64 // how many spans it represents
	seen       int64   // when it arrived, unix ns
	frame      *Frame
	labels     *Labels
	source     *Source
	device     *timeline
	extra      *extra
	up         int32 // in Builder.spans; noParent or unknown
	entry      bool  // nothing around it belongs to its stack
	gpu        bool
	placed     bool // its times are usable
	projected  bool // a profiler derived it from a range of the host
	whole      bool // it has no energy attribute for itself: energy is total minus what descendants have
}

const (
	unknown  = -1 // the parent has not arrived
	noParent = -2
)

// extra is what few spans have.
type extra struct {
	link   spanfacts.Key // request that a batch serves
	above  []*Frame      // between the parent and the span: where a graph's node was captured
	leaves []leaf        // activities that were summed on the span
}

type leaf struct {
	frame *Frame
	time  int64
}

const (
	maxSkew    = 5 * time.Minute // that another host's clock may be ahead
	maxDevices = 16_384
	maxJoules  = 1e12 // of one span; no device uses more in a century
)

// Add adds spans at a time in unix nanoseconds. It keeps no reference to td.
func (b *Builder) Add(td ptrace.Traces, now int64) { b.AddEach(td, now, nil) }

// Visit reads a span with its facts, which are valid during the call and must not be changed; gpu
// reports whether it is a GPU span.
type Visit func(s ptrace.Span, f *spanfacts.Facts, r *spanfacts.Resource, gpu bool)

// AddEach is like Add, and calls visit for each span that is not a repetition, in the order of td,
// so that a caller that needs the same facts reads no span twice. A nil visit is not called.
func (b *Builder) AddEach(td ptrace.Traces, now int64, visit Visit) {
	var r spanfacts.Resource
	var sc spanfacts.Scope
	b.nest, b.nested = b.nest[:0], b.nested[:0]
	for i, rs := range td.ResourceSpans().All() {
		attrs := rs.Resource().Attributes()
		r.Load(attrs)
		process := uint64(0) // the parents of spans without a rank may be in other processes
		if r.Rank >= 0 {
			process = r.Process()
		}
		src := b.source(Source{r.Service, text(attrs, "service.namespace"), text(attrs, "service.version")})
		for _, ss := range rs.ScopeSpans().All() {
			sc.Load(&r, ss.Scope().Attributes())
			for j, s := range ss.Spans().All() {
				if j%ahead == 0 {
					b.lookAhead(ss.Spans(), j, process)
				}
				if len(b.spans) >= b.opts.MaxSpans {
					b.flushNest()
					b.makeRoom(now)
				}
				b.add(s, &r, &sc, src, process, uint64(i), now, b.hashes[j%ahead], visit)
			}
		}
	}
	b.flushNest()
}

// ahead is how many spans are hashed together.
const ahead = 16

// lookAhead hashes the keys of the spans from i on.
func (b *Builder) lookAhead(spans ptrace.SpanSlice, i int, process uint64) {
	for j := range min(ahead, spans.Len()-i) {
		s := spans.At(i + j)
		h := spanfacts.Key{Trace: s.TraceID(), Span: s.SpanID()}.In(process).Hash()
		b.hashes[j] = h
		b.repeats.Prefetch(h, uint64(s.StartTimestamp()), uint64(s.EndTimestamp()))
	}
}

func text(m pcommon.Map, key string) string {
	if v, ok := m.Get(key); ok && v.Type() == pcommon.ValueTypeStr {
		return spanfacts.Clip(v.Str())
	}
	return ""
}

func (b *Builder) add(
	s ptrace.Span, r *spanfacts.Resource, sc *spanfacts.Scope, src *Source, process, owner uint64, now int64,
	hash uint64, visit Visit,
) {
	f := &b.facts
	gpu := f.Load(s, sc)
	work := gpu && f.Kind != spanfacts.Share // a usage record is of work in other spans
	if (work || visit != nil) && b.repeats.AgainHashed(f, hash) {
		b.stats.Repeated++
		return
	}
	if visit != nil {
		visit(s, f, r, gpu)
	}
	key := f.Key.In(process)
	if gpu && !work || !gpu && b.known(key, hash) {
		return
	}
	i := int32(len(b.spans))
	b.spans = append(b.spans, span{
		key: key, process: process, parent: f.Parent, start: f.Start, end: f.End, seen: now, source: src, up: unknown,
		gpu:   gpu,
		entry: s.Kind() == ptrace.SpanKindServer || s.Kind() == ptrace.SpanKindConsumer || remote(s.Flags()),
	})
	x := &b.spans[i]
	if f.Parent.IsEmpty() || x.entry {
		x.up = noParent
	}
	x.placed = spanfacts.Sound(f.Start, f.End) && (b.opts.Window == 0 || f.End < uint64(now)+uint64(maxSkew))
	x.weight = 1
	if gpu {
		b.stats.Spans++
		if n, ok := spanfacts.AdjustedCount(s.TraceState().AsRaw()); ok && b.opts.Weights {
			x.weight = n
		}
		b.work(x, f, r, s)
	} else {
		b.host(x, s)
	}
	if !x.placed {
		x.start, x.end = uint64(now), uint64(now)
	}
	if !f.Key.Span.IsEmpty() {
		b.index.Put(hash, i, b.isPending(&key))
	}
	if x.time > 0 && x.placed && x.up == unknown && f.Stream >= 0 && !f.Recorded() {
		b.nest = append(b.nest, spanfacts.NestSpan{
			Owner: owner, Device: f.Device.Number(), Stream: f.Stream, Trace: f.Key.Trace, Parent: f.Parent,
			Start: int64(x.start), End: int64(x.end),
		})
		b.nested = append(b.nested, i)
	}
}

// isPending returns a function that compares the key of a pending span with a key.
func (b *Builder) isPending(k *spanfacts.Key) func(at int32) bool {
	return func(at int32) bool { return b.spans[at].key == *k }
}

// pending returns the position of a pending span.
func (b *Builder) pending(k spanfacts.Key) (at int32, ok bool) {
	return b.index.Get(k.Hash(), b.isPending(&k))
}

// known reports whether a span of the host is pending, or was counted.
func (b *Builder) known(k spanfacts.Key, hash uint64) bool {
	if _, ok := b.index.Get(hash, b.isPending(&k)); ok {
		return true
	}
	return b.counted(k) != nil
}

func remote(flags uint32) bool { return flags&0x300 == 0x300 }

// flushNest moves sections that ran within others of their stream below those.
func (b *Builder) flushNest() {
	spanfacts.Nest(b.nest, func(inner, outer int) {
		in, out := &b.spans[b.nested[inner]], &b.spans[b.nested[outer]]
		in.parent, b.nest[inner].Parent = out.key.Span, out.key.Span
	})
	b.nest, b.nested = b.nest[:0], b.nested[:0]
}

// work reads a GPU span.
func (b *Builder) work(x *span, f *spanfacts.Facts, r *spanfacts.Resource, s ptrace.Span) {
	if !x.placed {
		b.stats.Invalid++
	}
	x.energy, x.total, x.whole = f.SelfEnergy, max(f.Energy, f.SelfEnergy), !f.HasSelfEnergy
	if !(x.total <= maxJoules) {
		b.stats.Invalid++
		x.energy, x.total, x.whole = 0, 0, false
	}
	x.projected = f.Recorded() && f.Kind == spanfacts.Section
	if f.HasStartDelay && f.StartDelay >= 0 && f.StartDelay*1e9 < float64(f.Start) {
		x.launch = f.Start - uint64(math.Round(f.StartDelay*1e9))
	}
	device := f.Device.ID
	if device == "" {
		device = cmp.Or(f.Device.BDF, f.Device.Name)
	}
	l := Labels{Device: device, Model: f.Device.Model, Phase: f.Category, Throttle: f.Throttle, Rank: r.Rank}
	seen := &b.seen[l.slot()]
	if seen.source != x.source || seen.labels == nil || *seen.labels != l {
		*seen = lastSeen{b.labelled(l), x.source, nil}
	}
	x.labels = seen.labels
	if f.Time > 0 && !x.projected {
		x.time = int64(math.Round(min(f.Time, 1e9) * 1e9))
		if seen.device == nil || f.Device.ID == "" {
			seen.device = b.deviceOf(f, x.source)
		}
		x.device = seen.device
		x.end = x.start + uint64(x.time)
	}
	name, full, kind := f.FullName(), "", Section
	switch f.Kind {
	case spanfacts.Step:
		kind, name = Step, vocabulary.LoopOf(name, false)
	case spanfacts.Kernel, spanfacts.Collective, spanfacts.Memset, spanfacts.Graph:
		kind = Kernel
		full = b.activity(x, s)
	case spanfacts.Copy:
		kind, name = Copy, f.Name
		_ = b.activity(x, s)
		if Unmarked(name, f.HostMemory) {
			name = b.pageable(name)
		}
	case spanfacts.Request, spanfacts.Host:
		kind = Range
		b.summed(x, s)
	}
	if s.Links().Len() > 0 && (x.up == noParent || f.Parent.IsEmpty()) && spanfacts.Batch(s) {
		for _, l := range s.Links().All() {
			if !l.SpanID().IsEmpty() && text(l.Attributes(), string(semconv.GPULinkTypeKey)) != semconv.GPULinkTypeWindow {
				x.more().link = spanfacts.Key{Trace: l.TraceID(), Span: l.SpanID()}.In(x.process)
				break
			}
		}
	}
	if f.Kind == spanfacts.Step {
		b.summed(x, s)
	}
	x.frame = b.frame(kind, name, full)
}

// lastSeen is the latest span with labels that are in the same slot: neither its labels nor its
// device are looked up again for the next one.
type lastSeen struct {
	labels *Labels
	source *Source
	device *timeline
}

const slots = 64

// slot returns a number below slots that few labels share.
func (l *Labels) slot() int {
	n := 5*len(l.Phase) + 3*len(l.Throttle) + int(l.Rank&7)
	if d := l.Device; d != "" {
		n += int(d[len(d)-1]) + 7*int(d[0])
	}
	return n % slots
}

// Pageable marks the name of a copy through pageable memory.
const Pageable = " (pageable)"

// Unmarked reports whether a copy is through pageable memory and its name does not state it.
func Unmarked(copied, hostMemory string) bool {
	return hostMemory == semconv.GPUCopyHostMemoryPageable && !strings.Contains(copied, "ageable")
}

// pageable marks the name of a copy, without an allocation for names that were seen.
func (b *Builder) pageable(name string) string {
	key := Frame{Kind: Idle, Name: name} // no frame of a span has this kind
	if f, ok := b.frames.get(key); ok {
		return f.Name
	}
	marked := frameText(name) + Pageable
	b.frames.put(Frame{Kind: Idle, Name: strings.Clone(name)}, &Frame{Name: marked})
	return marked
}

// activity reads the name of a kernel, and where the graph that launched it was captured.
func (b *Builder) activity(x *span, s ptrace.Span) (full string) {
	var within, operator string
	for k, v := range s.Attributes().All() {
		if len(k) < len("gpu.kernel.name") || v.Type() != pcommon.ValueTypeStr {
			continue
		}
		switch k {
		case string(semconv.GPUKernelNameKey):
			full = v.Str()
		case string(semconv.GPUGraphNodeRangeKey):
			within = v.Str()
		case string(semconv.GPUGraphNodeOperatorKey):
			operator = v.Str()
		}
	}
	if within != "" {
		x.more().above = append(x.more().above, b.frame(HostKind(within), within, ""))
	}
	if operator != "" {
		x.more().above = append(x.more().above, b.frame(Operator, operator, ""))
	}
	return full
}

func (x *span) more() *extra {
	if x.extra == nil {
		x.extra = &extra{}
	}
	return x.extra
}

// host reads a span that is not a GPU span.
func (b *Builder) host(x *span, s ptrace.Span) {
	name, kind := s.Name(), HostKind(s.Name())
	method, route, runtime := "", "", false
	for k, v := range s.Attributes().All() {
		switch k {
		case "http.request.method":
			method = v.Str()
		case "http.route":
			route = v.Str()
		case string(semconv.GPUOperationInstanceKey):
			kind = Module
		case string(semconv.GPUOperationCategoryKey):
			runtime = v.Str() == semconv.GPUOperationCategoryRuntime
		}
	}
	b.summed(x, s)
	switch {
	case x.entry && s.Kind() == ptrace.SpanKindServer:
		kind = Route
		if route != "" && !strings.HasSuffix(name, route) {
			name = strings.TrimSpace(method + " " + route)
		}
	case runtime:
		return // a call into the driver is part of what called it
	}
	x.frame = b.frame(kind, name, "")
}

// sums are the attributes that sum activities on a span, with the names of their frames.
var sums = map[string]struct {
	kind Kind
	name string
}{
	string(semconv.GPUSummaryKernelDurationKey):     {Kernel, "(kernels)"},
	string(semconv.GPUSummaryCollectiveDurationKey): {Kernel, "(collectives)"},
	string(semconv.GPUSummaryCopyDurationKey):       {Copy, "(copies)"},
	string(semconv.GPUSummaryMemsetDurationKey):     {Kernel, "(memsets)"},
}

// summed reads the activities that were summed on a span.
func (b *Builder) summed(x *span, s ptrace.Span) {
	for k, v := range s.Attributes().All() {
		if !strings.HasPrefix(k, "gpu.summary.") {
			continue
		}
		if of, ok := sums[k]; ok {
			if t := spanfacts.Positive(v); t > 0 {
				x.more().leaves = append(x.more().leaves, leaf{b.frame(of.kind, of.name, ""), int64(math.Round(min(t, 1e9) * 1e9))})
			}
		}
	}
	if x.extra != nil && len(x.extra.leaves) > 0 && x.labels == nil {
		x.labels = b.labelled(Labels{Rank: -1})
	}
}

// HostKind classifies the names that PyTorch gives ranges.
func HostKind(name string) Kind {
	switch {
	case strings.HasPrefix(name, "nn.Module"):
		return Module
	case strings.Contains(name, ".py("):
		return Python
	case strings.Contains(name, "::") && !strings.Contains(name, " "):
		return Operator
	}
	return Range
}

// deviceKey is a device; one without an ID is its service's.
type deviceKey struct {
	id      string
	ordinal int64
	service *Source
}

func (b *Builder) deviceOf(f *spanfacts.Facts, src *Source) *timeline {
	key := deviceKey{id: spanfacts.Bare(cmp.Or(f.Device.ID, f.Device.BDF))}
	if key.id == "" {
		key.ordinal, key.service = f.Device.Ordinal, src
	}
	t := b.devices[key]
	if t == nil {
		if len(b.devices) >= maxDevices {
			b.evictDevices()
		}
		key.id = strings.Clone(key.id)
		t = &timeline{}
		b.devices[key] = t
	}
	return t
}

// evictDevices forgets all devices, which bounds their number. Idle time around their next
// activities is not counted. Spans that wait still refer to the old ones.
func (b *Builder) evictDevices() {
	b.settleIdle(false)
	clear(b.devices)
	clear(b.seen[:])
}
