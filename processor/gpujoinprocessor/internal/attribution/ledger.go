// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"cmp"
	"math"
	"slices"
	"sort"
)

// ledger keeps what one more request of a process would have received of the settled time, and the
// energy of requests without a span that is left. A request whose span arrives after its time was
// settled is paid from it. A request of half an hour takes 7,200 entries of the default length.
type ledger struct {
	list []entry
	// What the process had at the end of the last entry.
	to, covered int64
	request     sum
}

// entry is a piece of settled time.
type entry struct {
	from, to int64
	share    float64 // energy of one request
	left     float64 // energy of requests without a span
	covered  int64   // ns in which the counter was known
}

const (
	// ledgerGrain is the longest piece, in ns. Inside a piece, energy is proportional to time.
	ledgerGrain = int64(250e6)
	// maxEntries bounds the pieces of a process: 68 minutes that are never idle.
	maxEntries = 1 << 14
	// maxLedgers bounds the processes of a device that have one.
	maxLedgers = 16
)

// add appends a piece and drops the oldest ones in portions.
func (l *ledger) add(e entry) {
	if len(l.list) >= maxEntries {
		l.list = l.list[:copy(l.list, l.list[maxEntries/4:])]
	}
	l.list = append(l.list, e)
}

// payment is what a late request receives for [from, to].
type payment struct {
	paid, fair float64
	covered    int64
}

// pay takes the share of a request that ran in [from, to], or what is left of it.
func (l *ledger) pay(from, to int64) (p payment) {
	i := sort.Search(len(l.list), func(i int) bool { return l.list[i].to > from })
	for ; i < len(l.list) && l.list[i].from < to; i++ {
		e := &l.list[i]
		f := float64(min(e.to, to)-max(e.from, from)) / float64(e.to-e.from)
		share := e.share * f
		paid := min(share, e.left)
		e.left -= paid
		p.paid, p.fair = p.paid+paid, p.fair+share
		p.covered += int64(math.Round(f * float64(e.covered)))
	}
	return p
}

// keep gives a process a ledger from the settled time on, if there is room.
func (d *Device) keep(p *process) {
	if p.ledger == nil && d.ledgers < maxLedgers {
		d.ledgers++
		p.advance(d.v)
		p.pot = 0
		p.ledger = &ledger{to: d.settled, covered: d.covered, request: p.request}
	}
}

// record ends the current piece of each ledger at the settled time.
func (d *Device) record() {
	for i := range d.procs.all {
		p := &d.procs.all[i]
		l := p.ledger
		if l == nil || d.settled <= l.to {
			continue
		}
		p.advance(d.v)
		if share := p.request.since(l.request); share > 0 || p.pot > 0 {
			l.add(entry{l.to, d.settled, share, p.pot, d.covered - l.covered})
		}
		l.to, l.covered, l.request, p.pot = d.settled, d.covered, p.request, 0
	}
}

// advanceBy moves the integrals to t, and records each piece of the ledgers on the way.
func (s *sweep) advanceBy(t int64) {
	d := s.d
	for d.ledgers > 0 {
		next := (d.settled/ledgerGrain + 1) * ledgerGrain
		if next > t {
			break
		}
		s.advance(next)
		d.record()
	}
	s.advance(t)
}

// backfill turns the free time of [from, to] in which a process ran requests, by its own count,
// into entries of its ledger: nothing was known of it on this device.
func (d *Device) backfill(p *process, from, to int64, m Meter) {
	if !d.free.overlaps(from, to) {
		return
	}
	n := len(p.ledger.list)
	d.levels, d.steps = m.Levels(p.id, from, to, d.levels[:0]), d.steps[:0]
	for j := range d.levels {
		start, end := from, to
		if j > 0 {
			start = max(from, d.since(j))
		}
		if j+1 < len(d.levels) {
			end = min(end, d.since(j+1))
		}
		if n := d.running(j); n > 0 && start < end {
			d.backfillPart(p, start, end, max(1, n), m)
		}
	}
	if len(p.ledger.list) > n {
		slices.SortFunc(p.ledger.list, func(a, b entry) int { return cmp.Compare(a.from, b.from) })
	}
}

func (d *Device) backfillPart(p *process, from, to int64, running float64, m Meter) {
	d.pieces = d.free.take(from, to, d.pieces[:0])
	if len(d.pieces) == 0 {
		return
	}
	d.knots = m.Knots(from, to, d.knots[:0])
	line := curve{knots: d.knots}
	for _, x := range d.pieces {
		before, known := line.at(x.from)
		for at := x.from; at < x.to; {
			end := min(x.to, (at/ledgerGrain+1)*ledgerGrain)
			after, covered := line.at(end)
			energy := (after - before) * d.fraction(p.id, interval{at, end}, m)
			p.ledger.add(entry{at, end, energy / running, energy, covered - known})
			at, before, known = end, after, covered
		}
	}
}

// claim is free time that late requests of processes without a count divide, because all of them
// ran in it. It is divided when the first of them ends, by when the others have arrived.
type claim struct {
	interval
	energy float64
}

// waiting is a late request that has not ended in settled time.
type waiting struct {
	n    *node
	span interval // settled before it arrived
	each float64  // how many requests it represents
}

// wait makes a late request take part in the division of free time.
func (d *Device) wait(n *node, s Span, to int64, m Meter) (taken int64) {
	d.eachFree(s, to, m, func(p interval, energy float64) {
		d.claims = append(d.claims, claim{p, energy})
	})
	for _, c := range d.claims {
		taken += max(0, min(c.to, to)-max(c.from, s.Start))
	}
	d.waiting = append(d.waiting, waiting{n, interval{s.Start, to}, max(1, s.Weight)})
	return taken
}

// divide gives the free time of a request that ends now to all late requests that ran in it.
func (d *Device) divide(n *node) {
	at := -1
	for i := range d.waiting {
		if d.waiting[i].n == n {
			at = i
		}
	}
	if at < 0 {
		return
	}
	own := d.waiting[at].span
	rest := d.claims[:0]
	var cut []claim
	for _, c := range d.claims {
		from, to := max(c.from, own.from), min(c.to, own.to)
		if from >= to {
			rest = append(rest, c)
			continue
		}
		power := c.energy / float64(c.to-c.from)
		for _, outside := range []interval{{c.from, from}, {to, c.to}} {
			if outside.to > outside.from {
				cut = append(cut, claim{outside, power * float64(outside.to-outside.from)})
			}
		}
		for from < to {
			next, crowd := to, 0.
			for _, w := range d.waiting {
				switch {
				case w.span.from > from:
					next = min(next, w.span.from)
				case w.span.to > from:
					next = min(next, w.span.to)
					crowd += w.each
				}
			}
			energy := power * float64(next-from)
			for _, w := range d.waiting {
				if w.span.from <= from && w.span.to > from {
					w.n.own += energy / crowd
					d.totals.Late += energy / crowd
				}
			}
			from = next
		}
	}
	d.claims = append(rest, cut...)
	d.waiting = append(d.waiting[:at], d.waiting[at+1:]...)
	if len(d.waiting) == 0 {
		d.claims = nil
	}
}
