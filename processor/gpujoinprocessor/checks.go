// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/plausibility"
	"github.com/otelgpu/otelgpu/processor/gpujoinprocessor/internal/attribution"
)

const (
	// idleWindow is the settled time over which spans are compared with the utilization that the
	// device reports.
	idleWindow = time.Minute
	// leastBusy is the share of that time in which spans ran, mostIdle the utilization below which
	// the device contradicts them.
	leastBusy, mostIdle = 0.5, 0.001
)

// checks compare what the sources of a physical GPU report with each other, once per tick.
type checks struct {
	counter  plausibility.Counter
	clock    plausibility.Clock
	newest   int64 // newest sample that the clock was compared with
	compared int64 // time of the last change of the counter that was compared with power
	changes  float64
	slow     bool // the counter was reported as slow

	from, busy int64 // settled time, and busy time then, at the start of the window of utilization
	idle       bool  // the device reports no utilization although spans run

	counts map[uint64]bool // servers whose count was reported as wrong
}

// check runs the checks.
func (b *board) check(settle time.Duration, report func(plausibility.Contradiction)) {
	x := &b.checks
	contradict := func(c plausibility.Contradiction) {
		c.Source, c.Device = b.meter.dev.Device().Source, b.meter.dev.Device().ID
		report(c)
	}
	e := b.meter.energy
	if r, ok := e.Compare(); ok && r.Time > x.compared {
		if r.Counter < x.changes {
			x.counter.Restart()
		}
		x.compared, x.changes = r.Time, r.Counter
		if c, is := x.counter.Add(r); is {
			contradict(c)
		}
	}
	if c, is := x.counter.Still(e.Standstill()); is {
		contradict(c)
	}
	if settled, ok := b.dev.Settled(); ok {
		e.Settle(settled + b.meter.shift) // what was attributed keeps its curve, and its error
	}
	if x.counter.Wrong {
		e.UsePower(x.counter.Calibrated)
	} else {
		e.UseCounter()
	}
	if period := e.Period(); period > int64(settle) && !x.slow {
		x.slow = true
		contradict(plausibility.Contradiction{
			Reason: plausibility.CounterSlow,
			Found:  fmt.Sprintf("%.3g s between two changes of the counter", float64(period)*1e-9),
			Other:  fmt.Sprintf("`settle` of %.3g s", settle.Seconds()),
		})
	}
	e.Widen(x.counter.Deviation, b.checkClock(contradict))
	b.checkIdle(contradict)
	b.checkServers(report)
}

// checkServers compares the counts of servers with the requests that ran on the board by their
// spans.
func (b *board) checkServers(report func(plausibility.Contradiction)) {
	for id, name := range b.meter.loads.all() {
		wrong := b.dev.Contradicts(id)
		if wrong && !b.checks.counts[id] {
			report(plausibility.Contradiction{
				Source: serverSource(name), Device: b.meter.dev.Device().ID, Reason: plausibility.ServerCount,
				Found: "the server's number of running requests", Other: "the spans of its requests",
			})
		}
		if b.checks.counts == nil {
			b.checks.counts = map[uint64]bool{}
		}
		b.checks.counts[id] = wrong
	}
}

// serverSource names a server as the source of a contradiction.
func serverSource(service string) string {
	if service == "" {
		return "server"
	}
	return "server " + service
}

// checkClock returns by how much the clock of the samples may be off. It compares a sample with the
// time of its arrival: a source that reads histories delivers more rarely than this is called.
func (b *board) checkClock(contradict func(plausibility.Contradiction)) time.Duration {
	x, interval := &b.checks, b.meter.dev.Interval()
	if newest, at := b.meter.dev.Arrived(); newest != x.newest {
		x.newest = newest
		// The shift may correct the source's clock already, or be for the services' clocks.
		if age, shift := time.Duration(at-newest), b.meter.shift; (age + time.Duration(shift)).Abs() < age.Abs() {
			newest -= shift
		}
		if offset, judged := x.clock.Add(at, newest, interval); judged && offset != 0 {
			contradict(plausibility.OffsetOf(offset, interval))
		}
	}
	return x.clock.Possible(interval)
}

// checkIdle compares the time in which spans ran with the utilization.
func (b *board) checkIdle(contradict func(plausibility.Contradiction)) {
	x := &b.checks
	settled, ok := b.dev.Settled()
	if !ok {
		return
	}
	if settled < x.from || x.from == 0 {
		x.from, x.busy = settled, b.dev.Busy()
	}
	length := settled - x.from
	if length < int64(idleWindow) {
		return
	}
	busy := float64(b.dev.Busy()-x.busy) / float64(length)
	used, coverage := b.meter.dev.Mean(devicesamples.Utilization, x.from+b.meter.shift, settled+b.meter.shift)
	x.idle = coverage > wholeCoverage && used < mostIdle && busy > leastBusy
	if x.idle {
		contradict(plausibility.Contradiction{
			Reason: plausibility.DeviceIdle, Found: fmt.Sprintf("utilization %.2g in %.3g s", used, float64(length)*1e-9),
			Other: fmt.Sprintf("spans ran for %.0f %% of this time", 100*busy),
		})
	}
	x.from, x.busy = settled, b.dev.Busy()
}

const (
	// spanAhead is by how much spans may end after they arrive. Clocks that are synchronized differ
	// by less.
	spanAhead = 2 * time.Second
	// spanBehind is how old even the newest spans of a process must be when they arrive, in
	// behindCount arrivals within at least behindWindow, before it is reported. Exporters wait 5 s.
	spanBehind, behindWindow, behindCount = 30 * time.Second, 30 * time.Second, 10
	// aheadCount is how many batches must arrive early before it is certain, with less than
	// aheadFor between them. It is certain for so long after the last one.
	aheadCount, aheadFor = 3, 10 * time.Minute
)

// spanClocks compare the clocks of processes that send spans with the clock of the samples.
type spanClocks struct {
	mu sync.Mutex
	of map[uint64]*spanClock // by process
}

// spanClock is what the arrivals of one process show. Times are Unix nanoseconds.
type spanClock struct {
	since, least  int64 // of the window
	arrivals      int
	early         int   // arrivals that were ahead
	newest        int64 // the last of them
	ahead, behind bool  // reported
}

// arrive adds the newest span of a batch. age is the time since its end, by the clock of samples.
func (c *spanClocks) arrive(x *resourceInfo, now, age int64, report func(plausibility.Contradiction)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.of[x.process]
	if p == nil {
		if c.of == nil || len(c.of) >= maxServers {
			c.of = map[uint64]*spanClock{}
		}
		p = &spanClock{}
		c.of[x.process] = p
	}
	found := ""
	switch {
	case age < -int64(spanAhead):
		if now-p.newest > int64(aheadFor) {
			p.early = 0
		}
		p.newest = now
		if p.early++; p.early < aheadCount {
			break
		}
		if !p.ahead {
			p.ahead = true
			found = fmt.Sprintf("a span ended %.3g s after it arrived", -float64(age)*1e-9)
		}
	case p.arrivals == 0 || age < int64(spanBehind):
		p.since, p.least, p.arrivals, p.behind = now, age, 1, false
	default:
		p.least = min(p.least, age)
		if p.arrivals++; p.arrivals >= behindCount && now-p.since >= int64(behindWindow) && !p.behind {
			p.behind = true
			found = fmt.Sprintf("each of %d batches arrived at least %.3g s after its spans had ended", p.arrivals,
				float64(p.least)*1e-9)
		}
	}
	if found != "" {
		reason := plausibility.SpanAhead
		if age > 0 {
			reason = plausibility.SpanBehind
		}
		report(plausibility.Contradiction{
			Source: serverSource(x.service), Reason: reason, Found: found, Other: "the clock of the samples",
		})
	}
}

// offset returns whether the clock of a process is ahead, and by how many ns it is behind, if its
// spans are not merely delayed.
func (c *spanClocks) offset(process uint64, now int64) (ahead bool, behind int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.of[process]
	if p == nil {
		return false, 0
	}
	if p.behind {
		behind = p.least
	}
	return p.early >= aheadCount && now-p.newest < int64(aheadFor), behind
}

// clockError is by how much the offset of a server's clock may be wrong: a Date has whole seconds.
const clockError = int64(500 * time.Millisecond)

// misplaced returns how much of a span's energy may be wrong because it ran as much later as its
// process's clock is behind. Times are on the clock of samples.
func (x *target) misplaced(start, end int64, energy float64) float64 {
	here := x.board.meter.joules(start, end)
	share := func(behind int64) float64 {
		from, to := start+behind, end+behind
		if x.res.server != 0 && len(x.more) == 0 {
			return x.counted(from, to)
		}
		return energy / here * x.board.meter.joules(from, to)
	}
	later := share(x.behind)
	if here == 0 || later == 0 {
		return energy
	}
	return math.Abs(later-energy) +
		max(math.Abs(share(x.behind-clockError)-later), math.Abs(share(x.behind+clockError)-later))
}

// counted returns the energy of a request by the number of requests that its server counted.
func (x *target) counted(from, to int64) (energy float64) {
	m, before := &x.board.meter, attribution.Level{}
	for _, l := range m.loads.levels(x.res.server, x.board.id, from-m.shift, to-m.shift, m.shift, nil) {
		if l.Running < 0 {
			continue
		}
		if until := min(before.Time+(l.Time-before.Time)/2+m.shift, to); before.Time > 0 && until > from {
			energy += m.joules(from, until) / max(1, before.Running)
			from = until
		}
		before = l
	}
	return energy + m.joules(from, to)/max(1, before.Running)
}

// joules returns the mean power of a time, as far as it is known, as energy.
func (m *meter) joules(from, to int64) float64 {
	watts, known := m.dev.Mean(devicesamples.Energy, from, to)
	if known == 0 {
		watts, _ = m.dev.Mean(devicesamples.Power, from, to)
	}
	return watts * float64(to-from) * 1e-9
}
