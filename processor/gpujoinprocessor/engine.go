// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/boundedmap"
	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/plausibility"
	"github.com/otelgpu/otelgpu/processor/gpujoinprocessor/internal/attribution"
)

// engine is the state of the join: the physical GPUs under one lock. Each method takes the lock of
// the samples once.
type engine struct {
	cfg      *Config
	reader   devicesamples.Reader
	uses     devicesamples.UseReader // nil: unknown which process uses which device
	ordinals map[int64]string
	loads    loads
	sharing  devicesamples.ShareReader // nil: unknown how processes share devices
	shared   sharedIDs
	clocks   spanClocks
	unnamed  bool                         // that several services have no count of their own was reported
	ledger   devicesamples.Contradictions // nil: none are reported

	mu     sync.Mutex
	boards map[string]*board
	others []*board // scratch: see awaiting
	budget attribution.Budget
	beside boundedmap.Recent[uint64, struct{}] // other spans of batches, by batch.others
	hosts  hosts

	undecided undecided
}

// boardOf returns the physical GPU of a device, bound to the current view. A MIG instance whose
// physical GPU has no samples is another.
func (e *engine) boardOf(dev devicesamples.DeviceView) *board {
	view, ok := dev.Board()
	if !ok {
		view = dev
	}
	id := devicesamples.NormalizeID(view.Device().ID)
	b := e.boards[id]
	if b == nil {
		b = newBoard(view, e.cfg, &e.loads, &e.budget)
		b.meter.sharing.reader = e.sharing
		e.boards[id] = b
		if d := view.Device(); !ok && (view.Has(devicesamples.Energy) || view.Has(devicesamples.Power)) {
			e.contradict(plausibility.Contradiction{
				Source: d.Source, Device: d.ID, Reason: plausibility.ParentUnknown, Found: "energy of an instance of " + d.Parent,
				Other: "no samples of the physical GPU",
			})
		}
	}
	b.bind(view)
	if dev.Device().Parent != "" {
		b.addInstance(dev.Device().ID)
	}
	return b
}

func (e *engine) contradict(c plausibility.Contradiction) {
	if e.ledger != nil {
		e.ledger.Contradict(c)
	}
}

// look finds the devices of a batch's spans, and which of the spans are waited for. known is how
// many of these have arrived before. again means that the batch must be read again, see
// findSharedIDs.
func (e *engine) look(b *batch, now time.Time) (known int, again bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	view := e.reader.Acquire()
	defer view.Release()
	e.find(view, &b.targets)
	known = e.await(b, now)
	for i := range b.joinable() {
		e.budget.Hash(&b.shares[i])
	}
	for i, p := range b.joinable() {
		p.board.dev.Fetch(&b.shares[i])
	}
	for i, p := range b.joinable() {
		if p.board.dev.Contains(&b.shares[i]) {
			known++
		}
	}
	return known, e.findSharedIDs(b)
}

// arrive adds the spans of a batch to the energy attribution, pins them there until the batch is
// written, and determines what they wait for. fresh means that not all of them were known, and
// decided that all devices are. leaving means that the batch comes from the queue: then its known
// spans are its own, which arrived before it was stored; otherwise they are another batch's, which
// arrived in the meantime.
func (e *engine) arrive(b *batch, now time.Time, leaving bool) (fresh, decided bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	view := e.reader.Acquire()
	defer view.Release()

	e.find(view, &b.targets)
	waited := e.await(b, now)
	e.follow(b.host)
	for _, p := range b.joinable() {
		if p.res.sharesIDs { // reunite must find earlier spans, which have the shared IDs
			e.undecided.searched = time.Time{}
			e.decide(view, now)
			break
		}
	}
	known, seen := e.add(b, now, leaving)
	known, b.seen = known+waited, seen
	b.latest = 0
	for i := range b.targets.list {
		p := &b.targets.list[i]
		if p.arrived || p.undecided {
			b.latest = max(b.latest, p.latest)
		}
		// If the clock of the samples is off, that is judged instead.
		if !leaving && p.arrived && p.board.checks.clock.Possible(p.board.meter.dev.Interval()) == 0 {
			age := now.UnixNano() - p.latest // now is on the clock of spans
			e.clocks.arrive(p.res, now.UnixNano(), age, e.contradict)
		}
	}
	if e.postpone(b, leaving) {
		known = b.waiting
	}
	return known == 0 || known < b.waiting, b.undecided == 0
}

// add adds the spans of found devices that have not arrived.
func (e *engine) add(b *batch, now time.Time, leaving bool) (known int, first int64) {
	first = now.UnixNano()
	var from attribution.Key // siblings mostly follow each other
	var parent [8]byte
	for i, p := range b.joinable() {
		if p.arrived {
			continue
		}
		g, share := &b.spans[i], &b.shares[i]
		if k := (attribution.Key{Trace: share.Trace, Span: share.Parent}); k != from {
			from, parent = k, e.hosts.above(k)
		}
		share.Parent = parent
		p.board.meter.sharing.add(share.Process, &p.res.workload, g.end)
		a, at, seen := p.board.dev.Add(*share, now.UnixNano(), &p.board.meter)
		if a == attribution.Known {
			known++
		}
		g.at = at
		pin := a == attribution.Taken || leaving
		if pin {
			p.board.dev.Pin(g.Key, at)
		}
		p.arriveMore(b, g, share, now.UnixNano(), pin)
		if p.request && p.res.server != 0 && a == attribution.Taken {
			e.loads.arrive(p, share)
		}
		first = min(first, seen)
	}
	for i := range b.targets.list {
		if p := &b.targets.list[i]; p.outcome == found && p.latest > 0 && !p.arrived {
			p.arrived = true
			b.awaitBoard(p.board, p.latest)
			for i := range p.more {
				b.awaitBoard(p.more[i].board, p.latest)
			}
		}
	}
	e.reunite(b)
	e.connect(b)
	e.sawBeside(b.others())
	return known, first
}

// repeats reports whether all waiting spans of a batch have arrived before, as a whole request with
// the same other spans. A sender that was stopped in between sends its spans in other requests.
func (e *engine) repeats(b *batch) bool {
	others := b.others()
	e.mu.Lock()
	defer e.mu.Unlock()
	return others == 0 || e.beside.Find(others) != nil
}

// passed records that the next component has accepted the other spans of a request whose GPU spans
// had arrived before.
func (e *engine) passed(others uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sawBeside(others)
}

func (e *engine) sawBeside(others uint64) {
	if others != 0 {
		e.beside.Put(others, struct{}{})
	}
}

// removeKnown removes the spans that have arrived before from a request and returns their number.
func (e *engine) removeKnown(b *batch, td ptrace.Traces) (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	known := map[ptrace.Span]bool{}
	for i, p := range b.joinable() {
		if p.board.dev.Contains(&b.shares[i]) {
			known[b.wire[b.spans[i].wire]] = true
		}
	}
	for i := range b.spans {
		if g := &b.spans[i]; g.fault == sound && e.waits(b, g) {
			known[b.wire[g.wire]] = true
		}
	}
	return remove(td, known)
}

// remove removes spans from a request and returns their number.
func remove(td ptrace.Traces, which map[ptrace.Span]bool) (n int) {
	for _, rs := range td.ResourceSpans().All() {
		for _, ss := range rs.ScopeSpans().All() {
			ss.Spans().RemoveIf(func(s ptrace.Span) bool {
				if !which[s] {
					return false
				}
				n++
				return true
			})
		}
	}
	return n
}

// giveBack records that a batch was refused after it had arrived.
func (e *engine) giveBack(b *batch) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, p := range b.joinable() {
		p.board.dev.MarkRejected(b.spans[i].Key, b.spans[i].at)
	}
}

func (b *batch) awaitBoard(of *board, end int64) {
	k := slices.IndexFunc(b.boards, func(e boardEnd) bool { return e.board == of })
	if k < 0 {
		k = len(b.boards)
		b.boards = append(b.boards, boardEnd{board: of, dev: of.dev})
	}
	b.boards[k].end = max(b.boards[k].end, end)
}

// settled advances the settled time of the physical GPUs that a batch waits for and reports whether
// all its spans have ended by then. drain waits neither for spans nor for samples that may still
// arrive.
func (e *engine) settled(b *batch, now time.Time, drain bool) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	view := e.reader.Acquire()
	defer view.Release()
	e.decide(view, now)
	ready := b.undecided <= now.UnixNano()
	for _, w := range b.boards {
		if e.boards[w.board.id] != w.board {
			continue // the device was removed
		}
		if e.settle(view, w.board, now, drain) && w.board.dev == w.dev { // otherwise it was removed or replaced
			if t, ok := w.board.dev.Settled(); !ok || t < w.end {
				ready = false
			}
		}
	}
	return ready && e.settledElsewhere(view, b, now, drain)
}

// settledElsewhere does so for the spans of a batch on the devices where only their descendants
// are, which may have arrived after the batch: a span has the energy of all of them.
func (e *engine) settledElsewhere(view devicesamples.View, b *batch, now time.Time, drain bool) bool {
	others := e.awaiting()
	if len(others) == 0 {
		return true
	}
	ready := true
	for i, p := range b.joinable() {
		g := &b.spans[i]
		for _, o := range others {
			if o == p.board || !o.dev.Awaits(g.Key) || !e.settle(view, o, now, drain) {
				continue
			}
			if t, ok := o.dev.Settled(); !ok || t < g.end {
				ready = false
			}
		}
	}
	return ready
}

// settle advances a physical GPU's settled time T to min(newest sample, now − settle), but at least
// to now − max_wait: spans without samples by then stay without. T never decreases, unless the
// host's clock was set back. It returns false if the device is no longer among the samples.
func (e *engine) settle(view devicesamples.View, b *board, now time.Time, drain bool) bool {
	dev, ok := view.Lookup(b.id)
	if !ok {
		b.dev.Close()
		delete(e.boards, b.id)
		return false
	}
	b.bind(dev)
	ns := now.UnixNano()
	if t, ok := b.dev.Settled(); ok && t > ns {
		b.dev.Close()
		b.dev = attribution.New(attribution.Limits{}, &e.budget)
		b.energy.reported, b.energy.orphans, b.energy.lost = [energyStates]float64{}, 0, 0
	}
	t := max(min(b.watermark(view), ns-int64(e.cfg.Settle)), ns-int64(e.cfg.MaxWait))
	if drain {
		t = max(t, ns) // the receivers have stopped: no further sample can add to spans without samples
	}
	b.dev.Settle(t, &b.meter)
	return true
}

// tick settles every device that has samples, so that idle ones are accounted for too, and calls
// report for each.
func (e *engine) tick(now time.Time, views []devicesamples.DeviceView,
	report func(*board),
) []devicesamples.DeviceView {
	e.mu.Lock()
	defer e.mu.Unlock()
	view := e.reader.Acquire()
	defer view.Release()
	e.decide(view, now)
	views = view.Devices(views[:0])
	for _, dev := range views {
		if dev.Device().Parent == "" && dev.Newest() > 0 {
			e.boardOf(dev)
		}
	}
	if names := e.loads.unnamedServices(); names != nil && !e.unnamed {
		e.unnamed = true
		e.contradict(plausibility.Contradiction{
			Source: serverSource(""), Reason: plausibility.ServerUnnamed, Found: "a count without a service",
			Other: "requests of " + strings.Join(names, ", "),
		})
	}
	for _, b := range e.boards {
		if e.settle(view, b, now, false) {
			b.check(e.cfg.Settle, e.contradict)
			report(b)
		}
	}
	return views
}

// known returns the number of spans that energy attribution keeps.
func (e *engine) known() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.budget.Used()
}

// maxSums bounds how many repeated requests are remembered, whose other spans are passed on again
// later: half a megabyte, and half a minute of 500 requests a second.
const maxSums = 1 << 14
