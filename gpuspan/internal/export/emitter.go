// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package export

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan/internal/record"
	"github.com/otelgpu/otelgpu/gpuspan/internal/sink"
	"github.com/otelgpu/otelgpu/gpuspan/internal/timeline"
	"github.com/otelgpu/otelgpu/gpuspan/internal/tree"
	"github.com/otelgpu/otelgpu/gpuspan/report"
)

// EmitBudget is how many outermost sections of one stream become spans before another stream has its turn.
const EmitBudget = 16

// Exporter ends spans and updates metrics and statistics. It has its own goroutine, because all of this runs the
// application's code: a slow span processor delays neither the polling of the driver nor the clocks.
type Exporter struct {
	timeline.Worker
	spanMaker
	tree          *tree.Assembler
	line          []byte // of the log of outputs
	outputsFailed bool
	spare         *record.SpareNests // for the polling thread
}

// spanMaker ends the span of one section, for a TracerProvider or a sink, and counts it in metrics and statistics.
type spanMaker struct {
	p       *record.Core
	metrics *Metrics

	linkLimit int // links that the tracer provider keeps; 0: it has kept all so far,
	linksKept int // whose maximum this was

	one       record.Record // of a plain section
	sink      sink.Span     // reused for each span
	facts     sink.Facts
	attrs     []attribute.KeyValue
	start     []trace.SpanStartOption
	constants map[*record.OpState][]streamConstant // for a sink
	share     []attribute.KeyValue                 // of the links of a span for the sink
	end       []trace.SpanEndOption
}

func New(p *record.Core, m *Metrics, spare *record.SpareNests) *Exporter {
	t := &Exporter{
		Worker: timeline.NewWorker(), spare: spare,
		spanMaker: spanMaker{p: p, metrics: m, linksKept: usualLinks, constants: map[*record.OpState][]streamConstant{}},
	}
	t.tree = tree.NewAssembler(p, t.endStep)
	p.Exporting.Wakeups = t.Wakeups
	return t
}

// always is ready: the remaining work is done without waiting.
var always = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// Loop works until told to stop. A panic ends it early; expected panics are recovered closer to their cause.
func (t *Exporter) Loop() (quit bool) {
	defer t.p.Guard("spans were made")
	defer t.p.Exporting.Since.Store(0)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		now := t.p.Clock.Now()
		more := t.round(now)
		t.tree.CheckSealed(now, false)
		if t.p.Exporting.Untimed.Load() && t.p.Exporting.Untimed.CompareAndSwap(true, false) {
			t.ReportUntimed()
		}
		var due <-chan time.Time // nil: woken only
		var ready <-chan struct{}
		switch {
		case more:
			ready = always
		case len(t.tree.Sealed) > 0:
			timer.Reset(timeline.MaxSleep)
			due = timer.C
		}
		select {
		case <-ready:
		case <-due:
		case <-t.Wakeups:
		case f := <-t.Calls:
			f()
		case <-t.Quit: // queued work is the last
			t.DrainUntil(math.MaxInt64)
			t.tree.CheckSealed(t.p.Clock.Now(), true)
			t.ReportUntimed()
			return true
		}
	}
}

// round exports some of what each stream has read by then; more: there is more.
func (t *Exporter) round(until int64) (more bool) {
	for _, s := range t.p.StreamList.All() {
		more = t.Turn(s, until) || more
	}
	return more
}

// DrainUntil exports everything read by then, and returns how many steps still wait for sections that have ended.
func (t *Exporter) DrainUntil(until int64) (waiting int) {
	for t.round(until) {
	}
	t.tree.CheckSealed(t.p.Clock.Now(), false)
	for _, st := range t.tree.Sealed {
		if st.ResolvedAt <= until && st.Open.Load() > st.Running.Load() {
			waiting++
		}
	}
	return waiting
}

// Turn exports what is pending on a stream and reports whether there may be more. If the application's code ends the
// goroutine, the section in progress is lost and the rest is exported later.
func (t *Exporter) Turn(s *record.Stream, until int64) bool {
	if s.Emitted == len(s.Emitting) {
		s.EmitMu.Lock()
		s.Emitting, s.Emits, s.Emitted = s.Emits, s.Emitting[:0], 0
		s.EmitMu.Unlock()
	}
	done := int32(0)
	t.p.Exporting.Since.Store(t.p.Clock.Now())
	defer func() {
		t.p.Exporting.Since.Store(0)
		if done > 0 && s.InFlight.Add(-done) == 0 && s.IsClosed() {
			t.p.Polling.Wake() // it can be dropped
		}
	}()
	for n := range EmitBudget {
		if s.Emitted == len(s.Emitting) {
			return n > 0
		}
		q := &s.Emitting[s.Emitted]
		if q.Read > until {
			return false
		}
		s.Emitted++
		done += int32(q.Count())
		if x, read := q.Nest, q.Read; x != nil {
			q.Nest = nil
			t.nest(x, read)
		} else {
			t.plain(s, q)
		}
	}
	return true
}

// nest exports one nest. Its memory is released even if the application's code ends the goroutine.
func (t *Exporter) nest(n *record.Nest, read int64) {
	defer n.Put(t.spare)
	if n.Step != nil || n.Expiry {
		t.tree.Boundary(n, read)
		return
	}
	for i := range n.Count() {
		if r := n.Record(i); r.Step != nil {
			t.tree.AddToStep(r)
		}
	}
	if t.p.Cfg.Outputs != nil {
		for _, r := range n.Held {
			t.logOutput(r)
		}
		t.logOutput(n.Root)
	}
	switch {
	case n.Around != nil:
		t.count(context.Background(), n.Root, n.Stream, t.nodeOf(n.Around))
	case n.Late != nil:
		t.emit(n.Root, n.Stream, n.Late.Span, n.Late.Node)
	default:
		t.EmitNest(n)
	}
	if n.Kept {
		n.Span, n.Node = n.Root.Span, n.Root.Node
	}
	if n.Root.Op.Op.Cfg.Print != nil && n.Late == nil && n.Around == nil {
		t.print(&n.Root.Op.Op.Cfg)
	}
}

// EmitNest ends the spans of a nest, parents before children.
func (t *Exporter) EmitNest(n *record.Nest) {
	for _, f := range t.tree.Assemble(n) {
		t.emitFinished(f)
	}
	t.tree.Release()
}

// emitFinished ends the span of a section below its parent's, which exists already.
func (t *Exporter) emitFinished(f tree.Finished) {
	if f.Parent == nil {
		t.emit(f.Record, f.Stream, trace.SpanContext{}, 0)
		return
	}
	t.emit(f.Record, f.Stream, f.Parent.Span, f.Parent.Node)
}

// endStep updates metrics and statistics with a step.
func (t *Exporter) endStep(f tree.FinishedStep) {
	t.metrics.duration(f.Step.Ctx, f.Record, f.Stream)
	if t.p.Recorder != nil {
		t.p.Recorder.Step(f.Step.Loop.Op.Cfg.Info.Name, f.Sample)
	}
}

// nodeOf returns an outermost section's node in the report, also before it is counted.
func (t *spanMaker) nodeOf(st *record.OpState) int32 {
	if t.p.Recorder == nil {
		return 0
	}
	defer t.p.Guard("position of a section in the report")
	return int32(t.p.Recorder.Node(0, st.Op.Cfg.Info))
}

// print writes the report if an operation requests it.
func (t *Exporter) print(c *record.OperationConfig) {
	defer t.p.Guard("the report was printed")
	if t.p.Recorder == nil {
		return
	}
	t.ReportUntimed()
	s := t.p.Recorder.Summary()
	list := []report.Summary{s}
	if len(c.PrintOnly) > 0 {
		list = list[:0]
		for _, name := range c.PrintOnly {
			list = append(list, s.Category(name))
		}
	}
	var err error
	for _, s := range list {
		err = cmp.Or(err, s.WriteText(c.Print))
	}
	if err != nil {
		t.p.Errors.Report("print", fmt.Errorf("cannot print the report: %w", err))
	}
}

// ReportUntimed reports to the recorder the untimed runs since the last report.
func (t *Exporter) ReportUntimed() {
	rec := t.p.Recorder
	if rec == nil {
		return
	}
	defer t.p.Guard("recorder's count of untimed sections")
	for _, st := range t.p.OpList.All() {
		reportPosition(&st.Outermost, rec)
	}
	for _, pl := range t.p.Positions.All() {
		reportPosition(pl, rec)
	}
	if c, ok := rec.(interface{ SetDropped(string, int64) }); ok {
		for i := range record.DropReasons {
			c.SetDropped(dropNames[i], t.p.Drops[i].Load())
		}
	}
}

func (t *Exporter) logOutput(r *record.Record) {
	if t.outputsFailed || r.Extra == nil || !r.Extra.Summed {
		return
	}
	defer t.p.Guard("an output was logged")
	t.line = fmt.Appendf(t.line[:0], "%016x %d %q\n", r.Extra.Checksum, r.Occurrence, r.Op.Op.Cfg.Info.Name)
	if _, err := t.p.Cfg.Outputs.Write(t.line); err != nil {
		t.outputsFailed = true
		t.p.Errors.Report("outputs", fmt.Errorf("cannot write the log of outputs: %w", err))
	}
}
