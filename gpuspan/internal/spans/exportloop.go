// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package spans

import (
	"context"
	"fmt"
	"math"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan/internal/section"
)

// EmitBudget is how many outermost sections of one stream become spans before another stream has
// its turn.
const EmitBudget = 16

// always is ready: the remaining work is done without waiting.
var always = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// Loop works until told to stop. A panic ends it early; expected panics are recovered closer to
// their cause.
func (t *Exporter) Loop() (quit bool) {
	defer t.p.Guard("spans were made")
	defer t.p.MarkExporting(false)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		now := t.p.Clock.Now()
		more := t.round(now)
		t.checkSealed(now, false)
		if t.p.TakeUntimed() {
			t.ReportUntimed()
		}
		var due <-chan time.Time // nil: woken only
		var ready <-chan struct{}
		switch {
		case more:
			ready = always
		case len(t.sealed) > 0:
			timer.Reset(section.MaxSleep)
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
			t.checkSealed(t.p.Clock.Now(), true)
			t.ReportUntimed()
			return true
		}
	}
}

// round exports some of what each stream has read by then; more: there is more.
func (t *Exporter) round(until int64) (more bool) {
	for _, s := range t.p.Streams() {
		more = t.Turn(s, until) || more
	}
	return more
}

// DrainUntil exports everything read by then, and returns how many steps still wait for sections
// that have ended.
func (t *Exporter) DrainUntil(until int64) (waiting int) {
	for t.round(until) {
	}
	t.checkSealed(t.p.Clock.Now(), false)
	for _, st := range t.sealed {
		if st.resolvedAt <= until && st.Open.Load() > st.Running.Load() {
			waiting++
		}
	}
	return waiting
}

// Turn exports what is pending on a stream and reports whether there may be more. If the
// application's code ends the goroutine, the section in progress is lost and the rest is exported
// later.
func (t *Exporter) Turn(s *section.Stream, until int64) bool {
	done := 0
	t.p.MarkExporting(true)
	defer func() {
		t.p.MarkExporting(false)
		s.Exported(done)
	}()
	for range EmitBudget {
		q := s.Next(until)
		if q == nil {
			return false
		}
		done += q.Count()
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
func (t *Exporter) nest(n *section.Nest, read int64) {
	defer n.Put(t.spare)
	if n.Step != nil || n.Expiry {
		t.boundary(n, read)
		return
	}
	for i := range n.Count() {
		if r := n.Record(i); r.Step != nil {
			t.addToStep(r)
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
		t.tally(context.Background(), n.Root, n.Stream, t.nodeOf(n.Around))
	case n.Late != nil:
		t.emit(n.Root, n.Stream, n.Late.Span, n.Late.Node)
	default:
		t.EmitNest(n)
	}
	if n.Kept {
		n.Span, n.Node = n.Root.Span, n.Root.Node
	}
	if n.Root.Op.Cfg.Print != nil && n.Late == nil && n.Around == nil {
		t.print(&n.Root.Op.Cfg)
	}
}

// EmitNest ends the spans of a nest, parents before children.
func (t *Exporter) EmitNest(n *section.Nest) {
	for _, f := range t.assemble(n) {
		if f.parent == nil {
			t.emit(f.record, f.stream, trace.SpanContext{}, 0)
		} else {
			t.emit(f.record, f.stream, f.parent.Span, f.parent.Node)
		}
	}
	clear(t.list)
}

func (t *Exporter) logOutput(r *section.Record) {
	if t.outputsFailed || r.Extra == nil || !r.Extra.Summed {
		return
	}
	defer t.p.Guard("an output was logged")
	t.line = fmt.Appendf(t.line[:0], "%016x %d %q\n", r.Extra.Checksum, r.Occurrence, r.Op.Cfg.Info.Name)
	if _, err := t.p.Cfg.Outputs.Write(t.line); err != nil {
		t.outputsFailed = true
		t.p.Errors.Report("outputs", fmt.Errorf("cannot write the log of outputs: %w", err))
	}
}
