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
func (e *engine) look(b *batch) (known int, again bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	view := e.reader.Acquire()
	defer view.Release()
	e.find(view, &b.targets)
	b.waiting = 0
	for i := range b.joinable() {
		b.waiting++
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
// written, and determines what they wait for. fresh means that not all of them were known. leaving
// means that the batch comes from the queue: then its known spans are its own, which arrived before
// it was stored; otherwise they are another batch's, which arrived in the meantime.
func (e *engine) arrive(b *batch, now time.Time, leaving bool) (fresh bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	view := e.reader.Acquire()
	defer view.Release()

	e.find(view, &b.targets)
	known := 0
	b.seen, b.waiting = now.UnixNano(), 0
	e.follow(b.host)
	var from attribution.Key // siblings mostly follow each other
	var parent [8]byte
	for i, p := range b.joinable() {
		g, share := &b.spans[i], &b.shares[i]
		if k := (attribution.Key{Trace: share.Trace, Span: share.Parent}); k != from {
			from, parent = k, e.hosts.above(k)
		}
		share.Parent = parent
		b.waiting++
		p.latest = max(p.latest, g.end)
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
		b.seen = min(b.seen, seen)
	}
	if !leaving {
		for i := range b.targets.list {
			if p := &b.targets.list[i]; p.latest > 0 {
				// If the clock of the samples is off, that is judged instead.
				if p.board.checks.clock.Possible(p.board.meter.dev.Interval()) > 0 {
					continue
				}
				age := now.UnixNano() - p.latest // now is on the clock of spans
				e.clocks.arrive(p.res, now.UnixNano(), age, e.contradict)
			}
		}
	}
	b.await()
	e.reunite(b)
	e.connect(b)
	e.sawBeside(b.others())
	return known == 0 || known < b.waiting
}

// follow remembers host spans, and moves what waits for them to their parents.
func (e *engine) follow(list []hostSpan) {
	for i := range list {
		e.hosts.add(list[i])
	}
	for _, b := range e.boards {
		if !b.dev.Awaiting() {
			continue
		}
		for i := range list {
			if k := list[i].key; b.dev.Awaits(k) {
				b.dev.Pass(k, e.hosts.above(k))
			}
		}
	}
}

// awaiting returns the physical GPUs where descendants of spans have arrived that have not arrived
// there themselves. The list is valid until the next call.
func (e *engine) awaiting() []*board {
	e.others = e.others[:0]
	if len(e.boards) < 2 {
		return nil
	}
	for _, b := range e.boards {
		if b.dev.Awaiting() {
			e.others = append(e.others, b)
		}
	}
	return e.others
}

// connect gives the parents of spans on one device what descendants of the spans have on others,
// whichever of them arrives first.
func (e *engine) connect(b *batch) {
	others := e.awaiting()
	if len(others) == 0 {
		return
	}
	for i, p := range b.joinable() {
		if b.shares[i].Parent == ([8]byte{}) {
			continue
		}
		for _, o := range others {
			if o != p.board {
				o.dev.Pass(b.spans[i].Key, b.shares[i].Parent)
			}
		}
	}
	for _, o := range others {
		o.dev.Adopt(func(k attribution.Key) (parent [8]byte, ok bool) {
			for _, of := range e.boards {
				if parent, ok = of.dev.Parent(k); ok {
					return parent, true
				}
			}
			return parent, false
		})
	}
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

// await sets until when the batch waits for which physical GPUs.
func (b *batch) await() {
	b.latest = 0
	for i := range b.targets.list {
		p := &b.targets.list[i]
		if p.latest == 0 {
			continue
		}
		b.latest = max(b.latest, p.latest)
		b.awaitBoard(p.board, p.latest)
		for i := range p.more {
			b.awaitBoard(p.more[i].board, p.latest)
		}
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
	ready := true
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
		b.energy.reported, b.energy.lost = attribution.Totals{}, 0
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
			b.check(now.UnixNano(), e.cfg.Settle, e.contradict)
			report(b)
		}
	}
	return views
}

// elsewhere returns what the descendants of a span have on the physical GPUs where the span itself
// is not, and the bound of its error.
func elsewhere(others []*board, own *board, g *gpuSpan) (value, bound float64) {
	for _, o := range others {
		if o == own {
			continue
		}
		if v := o.dev.OnOtherDevices(g.Key); v > 0 {
			value, bound = value+v, bound+o.boundOf(g.start+o.meter.shift, g.end+o.meter.shift, v)
		}
	}
	return value, bound
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
