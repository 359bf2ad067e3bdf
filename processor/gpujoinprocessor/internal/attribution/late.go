// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package attribution

// late gives n its part of the settled time of s, of which descendants have received ns: from the
// ledger of its process what requests without a span have, and what is unattributed.
func (d *Device) late(n *node, s Span, held int64, m Meter) {
	to := min(s.End, d.settled)
	n.late = max(0, to-s.Start-held)
	d.knots = m.Knots(s.Start, to, d.knots[:0])
	n.covered = d.knots[len(d.knots)-1].Covered
	var taken int64
	var p *process
	if s.Request {
		p = d.requests(s, m)
	}
	if p != nil && p.ledger != nil && !d.inside(n, s.Process) {
		d.record()
		if p.counted {
			d.backfill(p, s.Start, to, m)
		}
		x := p.ledger.pay(s.Start, to)
		own := float64(n.late) / float64(to-s.Start)
		n.own += x.paid
		n.covered = max(n.covered, x.covered)
		taken = min(x.covered, to-s.Start)
		if short := x.fair*own - x.paid; short > 1e-9*x.fair {
			d.short[n.self] = short
		}
	}
	d.totals.Late += n.own
	if p != nil && !p.counted && s.End > d.settled {
		taken += d.wait(n, s, to, m)
	} else {
		own, more := d.takeFree(s, to, m)
		n.own, taken = n.own+own, taken+more
		d.totals.Late += own
		if p != nil && p.counted && more > 0 {
			// Each second of it is a reading that missed the request.
			p.judge.add(0, float64(more)*1e-9)
			p.judge.arrived += float64(n.late-more) * 1e-9
			p.judge.readings++
		}
	}
	for a := d.at(n.parent); a != nil; a = d.at(a.parent) {
		if s.End <= d.settled { // else its end does this
			a.below += n.own
		}
		if !a.known {
			a.late += taken
			d.remember(a)
		}
	}
}

// takeFree takes the unattributed energy until to.
func (d *Device) takeFree(s Span, to int64, m Meter) (own float64, taken int64) {
	d.eachFree(s, to, m, func(p interval, energy float64) {
		own += energy / d.crowd(s, p, m)
		taken += p.to - p.from
	})
	return own, taken
}

// eachFree takes the free time of a span until to and passes its pieces with the process's energy.
func (d *Device) eachFree(s Span, to int64, m Meter, pass func(p interval, energy float64)) {
	d.pieces = d.free.take(s.Start, to, d.pieces[:0])
	if k := len(d.pieces); k > 0 {
		d.knots = m.Knots(d.pieces[0].from, d.pieces[k-1].to, d.knots[:0])
		line := curve{knots: d.knots}
		for _, p := range d.pieces {
			before, _ := line.at(p.from)
			after, _ := line.at(p.to)
			pass(p, (after-before)*d.fraction(s.Process, p, m))
		}
	}
}
