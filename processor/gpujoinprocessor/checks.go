// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"fmt"
	"time"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/plausibility"
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

// check runs the checks. now is on the clock of spans.
func (b *board) check(now int64, settle time.Duration, report func(plausibility.Contradiction)) {
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
	e.Widen(x.counter.Deviation, b.checkClock(now, contradict))
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

// checkClock returns by how much the clock of the samples may be off.
func (b *board) checkClock(now int64, contradict func(plausibility.Contradiction)) time.Duration {
	x, interval := &b.checks, b.meter.dev.Interval()
	if newest := b.meter.dev.Newest() - b.meter.shift; newest != x.newest {
		x.newest = newest
		if offset, judged := x.clock.Add(now, newest, interval); judged && offset != 0 {
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
