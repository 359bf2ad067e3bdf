// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
)

// emitBudget is how many outermost sections of one stream become spans before it is another stream's turn.
const emitBudget = 16

// emitter makes spans and feeds metrics and statistics. It has a goroutine of its own, for all of this is the
// application's code: a span processor that takes its time holds up neither the driver's polling nor the clocks.
type emitter struct {
	worker
	p     *Profiler
	asked atomic.Bool  // untimed sections are to be reported
	since atomic.Int64 // hostClock when the work on a nest began; 0: resting

	linkLimit int // links that the tracer provider keeps; 0: it has kept all so far,
	linksKept int // which were as many at most

	sealed []*Step // ended steps that wait for their sections

	line          []byte // of the log of outputs
	outputsFailed bool

	spare spareNests // for the polling thread
	one   record     // of a plain section
	sink  SinkSpan   // reused for each span
	facts Facts
	attrs []attribute.KeyValue
	start []trace.SpanStartOption
	share []attribute.KeyValue // of the links of a span for the sink
	end   []trace.SpanEndOption
	order []*record
	byID  map[uint64]*record
}

func newEmitter(p *Profiler) *emitter {
	return &emitter{worker: newWorker(), p: p, linksKept: usualLinks, byID: map[uint64]*record{}}
}

// loop works until told to stop. A panic ends it early; those that are foreseen are recovered closer to their cause.
func (t *emitter) loop() (quit bool) {
	defer t.p.guard("spans were made")
	defer t.since.Store(0)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		now := t.p.clock.now()
		more := t.round(now)
		t.checkSealed(now, false)
		if t.asked.Load() && t.asked.CompareAndSwap(true, false) {
			t.reportUntimed()
		}
		var due <-chan time.Time // nil: woken only
		var ready <-chan struct{}
		switch {
		case more:
			ready = closed
		case len(t.sealed) > 0:
			timer.Reset(maxSleep)
			due = timer.C
		}
		select {
		case <-ready:
		case <-due:
		case <-t.wakeups:
		case f := <-t.calls:
			f()
		case <-t.quit: // what is queued is the last
			t.drainUntil(math.MaxInt64)
			t.checkSealed(t.p.clock.now(), true)
			t.reportUntimed()
			return true
		}
	}
}

// round makes spans of some of what each stream has that was read by then; more: there are others.
func (t *emitter) round(until int64) (more bool) {
	for _, s := range t.p.streamList.all() {
		more = t.turn(s, until) || more
	}
	return more
}

// drainUntil makes spans of all that was read by then, and returns how many steps still wait for their sections.
func (t *emitter) drainUntil(until int64) (waiting int) {
	for t.round(until) {
	}
	t.checkSealed(t.p.clock.now(), false)
	for _, st := range t.sealed {
		if st.resolvedAt <= until {
			waiting++
		}
	}
	return waiting
}

// turn is a stream's; it reports whether there may be more. What the application's code ends the goroutine in is lost,
// the rest has its turn again.
func (t *emitter) turn(s *Stream, until int64) bool {
	if s.emitted == len(s.emitting) {
		s.emitMu.Lock()
		s.emitting, s.emits, s.emitted = s.emits, s.emitting[:0], 0
		s.emitMu.Unlock()
	}
	done := int32(0)
	t.since.Store(t.p.clock.now())
	defer func() {
		t.since.Store(0)
		if done > 0 && s.inFlight.Add(-done) == 0 && s.isClosed() {
			t.p.poller.wake() // it can be forgotten
		}
	}()
	for n := range emitBudget {
		if s.emitted == len(s.emitting) {
			return n > 0
		}
		q := &s.emitting[s.emitted]
		if q.read > until {
			return false
		}
		s.emitted++
		done += int32(q.count())
		if x, read := q.nest, q.read; x != nil {
			q.nest = nil
			t.nest(x, read)
		} else {
			t.plain(s, q)
		}
	}
	return true
}

// nest makes the spans of one nest. What it held is given back also when the application's code ends the goroutine.
func (t *emitter) nest(n *nest, read int64) {
	defer n.put(&t.spare)
	if n.step != nil || n.expiry {
		t.boundary(n, read)
		return
	}
	for i := range n.count() {
		if r := n.record(i); r.step != nil {
			t.addToStep(r)
		}
	}
	if t.p.cfg.Outputs != nil {
		for _, r := range n.held {
			t.logOutput(r)
		}
		t.logOutput(n.root)
	}
	switch {
	case n.around != nil:
		t.count(context.Background(), n.root, n.stream, t.nodeOf(n.around))
	case n.late != nil:
		t.emit(n.root, n.stream, n.late.span, n.late.node)
	default:
		t.emitNest(n)
	}
	if n.kept {
		n.span, n.node = n.root.span, n.root.node
	}
	if w := n.root.op.op.cfg.Print; w != nil && n.late == nil && n.around == nil {
		t.print(w)
	}
}

// nodeOf is an outermost section's node in the report, also before it is counted.
func (t *emitter) nodeOf(st *opState) int32 {
	if t.p.recorder == nil {
		return 0
	}
	defer t.p.guard("a section's place in the report was asked for")
	return int32(t.p.recorder.Node(0, st.op.cfg.Info))
}

// emitNest makes the spans of a nest, parents before children.
func (t *emitter) emitNest(n *nest) {
	root := n.root
	if len(n.held) == 0 {
		t.emit(root, n.stream, trace.SpanContext{}, 0)
		return
	}
	t.order = append(t.order[:0], root)
	t.order = append(t.order, n.held...)
	slices.SortStableFunc(t.order, func(a, b *record) int {
		return cmp.Or(cmp.Compare(a.depth, b.depth), cmp.Compare(a.startNs, b.startNs), cmp.Compare(a.id, b.id))
	})
	byID := t.byID
	clear(byID)
	for _, r := range t.order {
		byID[r.id] = r
	}
	for _, r := range slices.Backward(t.order) { // children first: what a parent says of them must be known
		r.sumUp()
		if p := byID[r.parent]; p != nil && p != r {
			p.adopt(r)
		}
	}
	for _, r := range t.order {
		p := cmp.Or(byID[r.parent], root) // root is its own, and that of those whose parent was given up
		t.emit(r, cmp.Or(r.heldOn, n.stream), p.span, p.node)
	}
	clear(byID)
	clear(t.order)
}

// print writes the report where an operation wants it.
func (t *emitter) print(w io.Writer) {
	defer t.p.guard("the report was printed")
	if t.p.recorder == nil {
		return
	}
	t.reportUntimed()
	if err := t.p.recorder.Summary().WriteText(w); err != nil {
		t.p.errors.report("print", fmt.Errorf("cannot print the report: %w", err))
	}
}

// reportUntimed tells the recorder of runs that were not timed since it was last told.
func (t *emitter) reportUntimed() {
	rec := t.p.recorder
	if rec == nil {
		return
	}
	defer t.p.guard("the recorder was told of untimed sections")
	for _, st := range t.p.opList.all() {
		st.outermost.report(rec)
	}
	for _, pl := range t.p.places.all() {
		pl.report(rec)
	}
	if c, ok := rec.(interface{ SetDropped(string, int64) }); ok {
		for i := range dropReasons {
			c.SetDropped(dropNames[i], t.p.drops[i].Load())
		}
	}
}

func (t *emitter) logOutput(r *record) {
	if t.outputsFailed || r.extra == nil || !r.extra.summed {
		return
	}
	defer t.p.guard("an output was logged")
	t.line = fmt.Appendf(t.line[:0], "%016x %d %q\n", r.extra.checksum, r.occurrence, r.op.op.cfg.Info.Name)
	if _, err := t.p.cfg.Outputs.Write(t.line); err != nil {
		t.outputsFailed = true
		t.p.errors.report("outputs", fmt.Errorf("cannot write the log of outputs: %w", err))
	}
}

var errStopped = errors.New("the profiler is shut down")

// worker is a goroutine that others hand functions to.
type worker struct {
	calls   chan func()
	wakeups chan struct{}
	quit    chan struct{}
	done    chan struct{}
}

func newWorker() worker {
	return worker{
		calls: make(chan func()), wakeups: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{}),
	}
}

func (w *worker) wake() {
	select {
	case w.wakeups <- struct{}{}:
	default:
	}
}

// call runs f on the worker's goroutine and waits for it, or for ctx. A panic of f is an error, and so is a Goexit.
func (w *worker) call(ctx context.Context, f func()) error {
	finished := make(chan error, 1)
	g := func() {
		err := errors.New("the goroutine was ended by the application's code")
		defer func() {
			if r := recover(); r != nil {
				err = fmt.Errorf("recovered: %v", r)
			}
			finished <- err
		}()
		f()
		err = nil
	}
	for calls := w.calls; ; {
		select {
		case calls <- g:
			calls = nil
		case err := <-finished:
			return err
		case <-w.done:
			return errStopped
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// keep runs f until it reports that it is done, again and again where code of the application ends the goroutine by
// runtime.Goexit, as test helpers do.
func (w *worker) keep(f func() (quit bool)) {
	quit := false
	defer func() {
		if quit {
			close(w.done)
			return
		}
		go w.keep(f)
	}()
	for !quit {
		quit = f()
	}
}
