// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gpucapturereceiver

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/collector/consumer"

	"github.com/otelgpu/otelgpu/internal/profiletrace"
	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
	"github.com/otelgpu/otelgpu/internal/profiletrace/vocabulary"
	"github.com/otelgpu/otelgpu/receiver/gpucapturereceiver/internal/metadata"
	"github.com/otelgpu/otelgpu/receiver/gpucapturereceiver/internal/ring"
	"github.com/otelgpu/otelgpu/semconv"
)

// pollInterval is how often a window's ring is read: the ring holds more than ten times what CUPTI
// delivers in it.
const pollInterval = 2 * time.Millisecond

// othersPerActivity is the number of calls and contexts that a window holds at most for each
// activity of the budget.
const othersPerActivity = 4

// answerTimeout is how long after its end a window may take: CUPTI waits for running kernels at
// most that long.
const answerTimeout = 10 * time.Second

// window is one window of one process.
type window struct {
	cfg     *Config
	ring    *ring.Ring
	request uint32

	raw        []byte // the activities, concatenated
	calls      []byte // the calls of CUDA, concatenated
	parents    map[uint32]uint64
	pushed     map[uint64]*pushed // by number
	begin, end clocks
	cost       cost
}

// clocks are the readings of the clocks at one moment.
type clocks struct {
	cupti, wall int64
	set         bool
}

// run opens the window, reads it to its end and passes its spans to emit. Errors are from ctx and
// emit.
func (w *window) run(ctx context.Context, emit consumer.ConsumeTracesFunc) (Result, error) {
	res := Result{Dropped: map[string]int64{}}
	w.cost.begin = time.Now()
	before, err := w.ring.Counts()
	if err != nil {
		return broken(res, err), nil
	}
	// What an earlier reader left unread belongs to another window.
	if err := w.ring.Discard(); err != nil {
		return broken(res, err), nil
	}
	if w.request, err = w.ring.Request(w.cfg.Window, w.cfg.kinds(), w.cfg.budget()); err != nil {
		return broken(res, err), nil
	}
	w.parents, w.pushed = map[uint32]uint64{}, map[uint64]*pushed{}
	state, err := w.read(ctx)
	after, countErr := w.ring.Counts()
	err = cmp.Or(err, countErr)
	w.cost.end, w.cost.before, w.cost.after = time.Now(), before.Pushes, after.Pushes
	res.Outcome = "recorded"
	switch {
	case ctx.Err() != nil:
		return res, ctx.Err()
	case errors.Is(err, errTimeout):
		res.Outcome, res.Message = "timeout", err.Error()
	case err != nil:
		return broken(res, err), nil
	case state.Refused:
		res.Outcome, res.Message = state.Reason.String(), state.Message
		return res, nil
	case state.Reason == ring.ReasonBudget:
		res.Outcome = "budget"
	}
	for reason, n := range map[string]uint64{
		"ring_full": after.DroppedFull - before.DroppedFull, "budget": after.DroppedBudget - before.DroppedBudget,
		"cupti": after.DroppedCUPTI - before.DroppedCUPTI, "name": after.NamesDropped - before.NamesDropped,
	} {
		if n > 0 && n < math.MaxInt64 {
			res.Dropped[reason] += int64(n)
		}
	}
	w.cost.records = w.records(res.Dropped["ring_full"] + res.Dropped["budget"])
	return w.spans(ctx, res, emit)
}

func broken(res Result, err error) Result {
	res.Outcome, res.Message = "broken", err.Error()
	return res
}

var errTimeout = errors.New("the process did not respond to the request for a window (is it stopped?)")

// read reads the records as they are written, until the process has answered.
func (w *window) read(ctx context.Context) (ring.State, error) {
	deadline := time.NewTimer(w.cfg.Window + answerTimeout)
	defer deadline.Stop()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	most := int(w.cfg.budget()) + 2
	left := (1+othersPerActivity)*most + 2 // with where the window begins and ends
	for {
		state, err := w.ring.State()
		if err != nil {
			return state, err
		}
		alive := w.ring.Alive()
		n, err := w.ring.Read(left, func(r ring.Record) { w.take(r, most) })
		if err != nil {
			return state, err
		}
		if left -= n; left <= 0 {
			_ = w.ring.Cancel(w.request)
			return state, fmt.Errorf("%w: it has more records than the budget of %d allows", ring.ErrBroken, w.cfg.budget())
		}
		if state.Answered == w.request || !alive {
			return state, nil
		}
		select {
		case <-ctx.Done():
			_ = w.ring.Cancel(w.request)
			return state, ctx.Err()
		case <-deadline.C:
			return state, errTimeout
		case <-tick.C:
		}
	}
}

// take keeps a record, up to a maximum: the writer respects the budget, an impostor may not.
func (w *window) take(r ring.Record, most int) {
	switch r.Kind() {
	case ring.WindowBegin, ring.WindowEnd:
		c := clocks{int64(r.A()), int64(r.End()), true}
		switch {
		case r.B() != uint64(w.request):
		case r.Kind() == ring.WindowBegin:
			w.begin = c
		default:
			w.end = c
		}
	case ring.Context:
		if len(w.parents) >= most {
			return
		}
		number := r.A()
		w.parents[r.Correlation()] = number
		if _, ok := w.pushed[number]; !ok {
			w.pushed[number] = w.find(number) // now: positions of contexts are reused
		}
	case ring.Call:
		if len(w.calls) < othersPerActivity*most*ring.RecordSize {
			w.calls = append(w.calls, r...)
		}
	default:
		if len(w.raw) < most*ring.RecordSize {
			w.raw = append(w.raw, r...)
		}
	}
}

// pushed identifies who launched them.
type pushed struct {
	parent   string // traceparent; empty: no span
	requests string // traceparents of requests that were served together
	lost     int64  // requests that are not among them
	id       uint32 // of requests among the profile's names
}

// find returns the meaning of a number; nil if its position was reused before it was read.
func (w *window) find(number uint64) *pushed {
	p, ok := w.ring.Pushed(number)
	if !ok {
		return nil
	}
	out := &pushed{parent: traceParent(p), lost: int64(p.LinksLost)}
	var requests []string
	for i := range uint64(p.Links) {
		if x, ok := w.ring.Pushed(number + 1 + i); ok {
			requests = append(requests, traceParent(x))
		} else {
			out.lost++
		}
	}
	out.requests = strings.Join(requests, " ")
	return out
}

func traceParent(p ring.Pushed) string {
	if p.TraceID == [16]byte{} || p.SpanID == [8]byte{} {
		return ""
	}
	return fmt.Sprintf("00-%s-%s-%02x", hex.EncodeToString(p.TraceID[:]), hex.EncodeToString(p.SpanID[:]), p.Flags)
}

// spans converts the window to a profile, as if it were a file.
func (w *window) spans(ctx context.Context, res Result, emit consumer.ConsumeTracesFunc) (Result, error) {
	if !w.begin.set {
		if len(w.raw) > 0 {
			res.Dropped["unreadable"] += int64(len(w.raw) / ring.RecordSize)
		}
		return res, nil
	}
	p := profiletrace.New(w.cfg.Spans, profiletrace.Source{Scope: metadata.ScopeName, Root: "gpu capture"})
	defer p.Close()
	w.describe(&p.Meta)
	n := &names{w.ring, p.Names, map[nameKey]uint32{}}
	for at := 0; at < len(w.raw); at += ring.RecordSize {
		r := ring.Record(w.raw[at : at+ring.RecordSize])
		e, ok := w.event(r, n)
		if ok {
			ok = p.Add(&e) == nil && len(p.Skipped) == 0
			clear(p.Skipped) // counted below
		}
		if !ok {
			reason := "unreadable"
			if r.End() == 0 {
				reason = "unfinished" // the device was still running it when CUPTI's records were collected
			}
			res.Dropped[reason]++
			continue
		}
		res.Records++
		if e.Detail.TraceParent != "" {
			res.Attached++
		} else if number, ok := w.parents[r.Correlation()]; ok && w.pushed[number] == nil {
			res.Dropped["context"]++
		}
	}
	for at := 0; at < len(w.calls); at += ring.RecordSize {
		r := ring.Record(w.calls[at : at+ring.RecordSize])
		e := w.call(r, n)
		if r.End() < r.Start() || p.Add(&e) != nil {
			res.Dropped["unreadable"]++
		}
	}
	if w.end.set {
		p.Window(0, w.end.cupti-w.begin.cupti)
	}
	if jump := w.jump(); jump != 0 {
		res.Remark = fmt.Sprintf(
			"the host's clock was set by %v while the window was open; its spans are placed by the clock as it was set", jump)
	}
	var err error
	res.Stats, err = p.Emit(ctx, emit)
	res.Stats.Unused = event.Unused{} // Dropped has it
	if n := res.Stats.Outliers.Count; n > 0 {
		res.Dropped["unreadable"] += n
	}
	if errors.Is(err, event.ErrTimeRange) {
		return broken(res, err), nil
	}
	return res, err
}

// maxSlew bounds the drift between clocks that are not set: 500 ppm of the longest window, and the
// time to read them.
const maxSlew = 40 * time.Millisecond

// jump returns how far the wall clock was set while the window was open; 0: it was not.
func (w *window) jump() time.Duration {
	if !w.begin.set || !w.end.set {
		return 0
	}
	if d := time.Duration(w.end.wall - w.end.cupti - w.begin.wall + w.begin.cupti); d.Abs() > maxSlew {
		return d
	}
	return 0
}

// describe writes whose the window is.
func (w *window) describe(m *event.Meta) {
	offset := w.begin.wall - w.begin.cupti
	switch jump := w.jump(); {
	case jump != 0:
		offset += int64(jump) // the clock after the step is assumed to be the right one
	case w.end.set:
		// One offset for the whole window, so that times within it are exact; the clocks' drift
		// over it is shared by both ends.
		offset += (w.end.wall - w.end.cupti - offset) / 2
	}
	m.Base = w.begin.cupti + offset
	m.TimingSource = semconv.GPUTimingSourceCupti
	info := w.ring.Info
	m.Service = cmp.Or(info.Service, info.Command)
	m.Resource = map[string]string{"process.pid": strconv.Itoa(int(info.PID)), "process.executable.name": info.Command}
	if host, err := os.Hostname(); err == nil {
		m.Host = host
	}
	for pair := range strings.SplitSeq(info.Resource, ",") {
		if k, v, ok := strings.Cut(pair, "="); ok && strings.TrimSpace(k) != "" {
			m.Resource[strings.TrimSpace(k)] = strings.TrimSpace(v)
		}
	}
	for i, d := range w.ring.Devices() {
		m.Devices = append(m.Devices, event.Device{Ordinal: int64(i), Model: d.Name, ID: d.ID, Limits: d.Limits})
	}
}

// names translates the ring's numbers of names into a profile's.
type names struct {
	ring  *ring.Ring
	to    *event.Names
	known map[nameKey]uint32
}

// nameKey identifies a name; calls and activities without one share a number.
type nameKey struct {
	number uint32
	call   bool
}

func (n *names) of(r ring.Record) uint32 {
	key := nameKey{r.Name(), r.Kind() == ring.Call}
	id, ok := n.known[key]
	if !ok {
		text, _ := n.ring.Name(key.number)
		text = strings.ToValidUTF8(text, "?")
		if key.call {
			text = cmp.Or(vocabulary.CallName(text), "call of unknown name")
		}
		id = n.to.ID(cmp.Or(text, "kernel of unknown name"))
		n.known[key] = id
	}
	return id
}

// call converts a call of CUDA.
func (w *window) call(r ring.Record, n *names) event.Event {
	return event.Event{
		Kind: event.KindRuntime, Name: n.of(r), Start: int64(r.Start()) - w.begin.cupti,
		Duration: int64(r.End()) - int64(r.Start()), Process: int64(w.ring.Info.PID), Thread: int64(r.Thread()),
		Correlation: int64(r.Correlation()),
	}
}

// event converts a record for profiletrace.
func (w *window) event(r ring.Record, n *names) (event.Event, bool) {
	start, end := int64(r.Start()), int64(r.End())
	if start <= 0 || end < start {
		return event.Event{}, false // CUPTI writes 0 for unknown times
	}
	e := event.Event{
		Start: start - w.begin.cupti, Duration: end - start, Process: int64(w.ring.Info.PID), HasProcess: true,
		Device: int64(r.Device()), Stream: int64(r.Stream()), Correlation: int64(r.Correlation()),
	}
	if x := w.pushed[w.parents[r.Correlation()]]; x != nil {
		if x.id == 0 && x.requests != "" {
			x.id = n.to.ID(x.requests)
		}
		e.Detail.TraceParent, e.Detail.Requests, e.Detail.RequestsLost = x.parent, x.id, x.lost
	}
	switch r.Kind() {
	case ring.Kernel:
		e.Kind, e.Name = event.KindKernel, n.of(r)
		g, b := r.Grid(), r.Block()
		for i := range 3 {
			e.Detail.Grid[i], e.Detail.Block[i] = int64(g[i]), int64(b[i])
		}
		e.Detail.HasGrid, e.Detail.HasResources = true, true
		e.Detail.Registers, e.Detail.SharedMemory = int64(r.Registers()), int64(min(r.SharedMemory(), math.MaxInt64))
		e.Detail.GraphNode = int64(r.B() & math.MaxInt64)
	case ring.Copy:
		name := vocabulary.CopyName(r.CopyKinds())
		e.Kind, e.Name = event.KindCopy, n.to.ID(name)
		e.Detail.Direction, e.Detail.HostMemory = vocabulary.CopyKind(name)
		e.Detail.Bytes, e.Detail.HasBytes = int64(r.A()&math.MaxInt64), true
	case ring.Memset:
		e.Kind, e.Name = event.KindMemset, n.to.ID("Memset (Device)")
		e.Detail.Bytes, e.Detail.HasBytes = int64(r.A()&math.MaxInt64), true
	default:
		return e, false
	}
	return e, true
}
