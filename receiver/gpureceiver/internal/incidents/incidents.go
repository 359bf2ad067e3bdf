// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package incidents unites the notifications of one fault. A driver may report it as an XID, as an
// operational event that names the XID, and as a group of operational events. DCGM reports the XID
// again.
package incidents

import (
	"slices"
	"time"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
)

// Incident is what one or several notifications report.
type Incident struct {
	Device  string // hw.id
	Time    int64  // when it happened, if that is known
	Read    int64  // when the notification was read
	XID     int64  // 0: none
	Plain   bool   // the XID was reported without an operational event
	Count   int64
	Fault   devicesamples.Fault
	Group   uint64 // 0: it is alone
	Primary bool   // the main event of its group
	sent    bool
}

// Pairs holds notifications until the others of their incident have arrived.
type Pairs struct {
	// Operational says that operational events are delivered; otherwise nothing waits.
	Operational bool
	// PlainAfter is by how many nanoseconds plain XIDs may be read later than operational events,
	// and OperationalAfter the reverse; both wait for at least a second.
	PlainAfter, OperationalAfter int64

	waiting []Incident
}

const (
	// pairing is the least time for which a notification waits for another one of its incident, in
	// ns.
	pairing = int64(time.Second)
	// maxIncidents bounds what waits; more are sent at once.
	maxIncidents = 1024
)

// Add adds a notification.
func (p *Pairs) Add(x Incident) {
	for i := range p.waiting {
		if w := &p.waiting[i]; w.Device == x.Device && p.same(w, &x) {
			w.merge(&x)
			return
		}
	}
	p.waiting = append(p.waiting, x)
}

// wait returns for how long an incident waits for further notifications.
func (p *Pairs) wait(x *Incident) int64 {
	switch {
	case x.XID == 0 || x.Plain && x.Fault != devicesamples.Fault{}:
		return pairing // for others of its group
	case x.Plain:
		return max(pairing, p.OperationalAfter)
	}
	return max(pairing, p.PlainAfter)
}

// same reports whether two notifications are of one incident.
func (p *Pairs) same(w, x *Incident) bool {
	if w.Group != 0 && w.Group == x.Group {
		return true
	}
	return w.XID != 0 && w.XID == x.XID && w.Plain != x.Plain && x.Read-w.Read <= p.wait(w) &&
		!(w.Plain && w.Fault != devicesamples.Fault{})
}

// merge adds the facts of a further notification. An incident that was sent is not sent again.
func (w *Incident) merge(x *Incident) {
	w.XID = max(w.XID, x.XID)
	w.Plain = w.Plain || x.Plain
	if none := (devicesamples.Fault{}); x.Fault != none && (w.Fault == none || x.Primary) {
		w.Fault = x.Fault
	}
	w.Group = max(w.Group, x.Group)
	w.Time = min(w.Time, x.Time)
	w.Count = max(w.Count, x.Count)
}

// Ready returns the incidents that are complete. It removes them once no further notification can
// belong to them.
func (p *Pairs) Ready(now int64) (done []Incident) {
	full := len(p.waiting) >= maxIncidents
	for i := range p.waiting {
		x := &p.waiting[i]
		if !x.sent && (!p.Operational || full || now-x.Read >= p.wait(x)) {
			x.sent = true
			done = append(done, *x)
		}
	}
	p.waiting = slices.DeleteFunc(p.waiting, func(x Incident) bool {
		return x.sent && (!p.Operational || full || now-x.Read >= p.wait(&x)+2*pairing)
	})
	return done
}

// Event returns the incident as an event of its device.
func (x *Incident) Event() devicesamples.Event {
	e := devicesamples.Event{
		Time: x.Time, Kind: devicesamples.EventFault, Code: int64(x.Fault.Code), Count: max(x.Count, 1), Fault: x.Fault,
	}
	if x.XID != 0 {
		e.Kind, e.Code = devicesamples.EventXID, x.XID
	}
	return e
}
