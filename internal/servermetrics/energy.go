// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package servermetrics

import (
	"math"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
)

const (
	// silence is for how long a server without new pages is taken to be in its last state, at
	// least, and in multiples of the time between its pages.
	silence, silentPages = int64(5 * time.Second), 3
	// sharesLag is by how much later than samples the shares of processes are known at most, and
	// sharesKept for how long a device has them after the last one.
	sharesLag, sharesKept = int64(5 * time.Second), int64(time.Minute)
	// knownAfter is for how long a server is read before its devices must be known.
	knownAfter = int64(time.Minute)
)

const (
	// certain is the share of a stretch whose state is known for all of its time.
	certain = -1
	// fade is by how much older pages weigh less in means, and restFades after how many seconds the
	// power of an idle server has half of its weight.
	fade, restFades = 63. / 64, 45.
)

// progress is what counters of a server rose by from one page to the next.
type progress struct {
	moved bool    // any of them
	timed bool    // the time of requests that ended is on the page
	busy  float64 // this time, s
	ended float64 // requests
}

// loads are means over about a minute of pages.
type loads struct {
	busy, ended    float64 // time of requests that ended, s, and their number
	running, pages float64 // requests on pages with any, and these pages
	counted        float64 // s of requests that run and were counted before they ended
}

// extend adds the time since the last page: its first half has the earlier state, unless the server
// was restarted. In how much of it requests ran is certain if both pages agree and no request began
// and ended between them. Requests that are shorter than the time between two pages would be found
// by chance: the time that they took, by the counter of ended ones, tells more.
func (x *Meter) extend(now state, running float64, t int64, restarted bool, did progress) {
	before := x.state
	x.state = now
	if x.read == 0 {
		return
	}
	if restarted {
		x.append(stretch{t, absent, certain})
		return
	}
	l := &x.loads
	l.busy, l.ended = fade*l.busy+did.busy, fade*l.ended+did.ended
	if running > 0 {
		l.running, l.pages = fade*l.running+running, fade*l.pages+1
	}
	length := float64(t-x.read) * 1e-9
	short := did.timed && l.ended > 0 && l.busy < length*l.ended
	share := float64(certain)
	switch {
	case now == unknown || before == unknown, now == idle && before == idle && !did.moved:
	case short && now == active && before == active && did.ended == 0: // one runs throughout
		l.counted += running * length
	case short:
		paid := min(l.counted, did.busy)
		l.counted -= paid
		share = (did.busy - paid) / max(l.running/max(l.pages, 1), 1) / length
	case now != before:
		share = 0.5
	case now == idle:
		share = 0
	}
	x.append(stretch{x.read + (t-x.read)/2, before, share})
	x.append(stretch{t, now, share})
}

func (x *Meter) append(s stretch) {
	if n := len(x.states); n > 0 && x.states[n-1].state == s.state && x.states[n-1].share == s.share {
		x.states[n-1].to = s.to
		return
	}
	if over := len(x.states) - maxStretches; over >= 0 {
		x.states = slices.Delete(x.states, 0, 1+over)
	}
	x.states = append(x.states, s)
}

// stateAt returns the state at a time that is not before the first stretch, and until when it
// lasts.
func (x *Meter) stateAt(t int64) stretch {
	for _, s := range x.states {
		if t < s.to {
			return s
		}
	}
	if to := x.read + max(silence, silentPages*x.every); x.read > 0 && t < to {
		return stretch{to, x.state, certain}
	}
	return stretch{math.MaxInt64, absent, certain}
}

// count adds the energy of a time. If requests ran in a part of it, the rest of the time has the
// power of the idle server, so that requests have all of the energy above it. What exceeds the
// energy of one stretch is taken from the next ones.
func (x *Meter) count(s stretch, joules, seconds float64) {
	if s.state == absent {
		x.pending = 0
		return
	}
	to := x.joules[x.model()]
	if to == nil {
		to = new([numStates]float64)
		x.joules[x.model()] = to
	}
	rest := 0.
	switch {
	case s.state == unknown:
		to[unknown] += joules
		return
	case s.share != certain:
		if x.restSeconds > 0 {
			rest = x.restJoules / x.restSeconds * seconds * (1 - s.share)
		}
	case s.state == idle:
		older := math.Exp2(-seconds / restFades)
		x.restJoules, x.restSeconds = older*x.restJoules+joules, older*x.restSeconds+seconds
		rest = joules
	}
	rest += x.pending
	part := min(max(rest, 0), joules)
	x.pending = rest - part
	to[idle] += part
	to[active] += joules - part
}

// model returns the only model of the server; empty if it has several.
func (x *Meter) model() (only string) {
	for at := range x.totals {
		switch {
		case at.model == "" || at.model == only:
		case only != "":
			return ""
		default:
			only = at.model
		}
	}
	return only
}

// Users tell which processes use devices, and how they share them. A [devicesamples.Store] does.
type Users interface {
	devicesamples.UseReader
	devicesamples.ShareReader
}

// board is a physical GPU with the servers that use it.
type board struct {
	devicesamples.DeviceView
	meters  []*Meter
	windows []devicesamples.ShareWindow // of the time to measure
}

// Measure counts the energy of the servers' devices up to the newest samples.
func (m *Meters) Measure(view devicesamples.View, users Users) {
	m.mu.Lock()
	defer m.mu.Unlock()
	boards := map[string]*board{}
	used := map[*Meter][]*board{}
	for _, x := range m.list {
		for _, id := range x.devices(users) {
			dev, ok := view.Lookup(id)
			if !ok || dev.Device().Parent != "" {
				delete(used, x) // a part of its energy would be taken for the whole
				break
			}
			b := boards[dev.Device().ID]
			if b == nil {
				b = &board{DeviceView: dev}
				boards[dev.Device().ID] = b
			}
			b.meters = append(b.meters, x)
			used[x] = append(used[x], b)
		}
		if used[x] == nil && !x.logged && x.read-x.start >= knownAfter && m.Logger != nil {
			x.logged = true
			m.Logger.Warn("A server has tokens but no energy, because its devices are unknown, have no samples here, or are "+
				"MIG instances (set `devices` or `pod` of its entry under `servers`; logged once)",
				zap.String("server", x.id.Address))
		}
	}
	until := map[*Meter]int64{}
	for x, list := range used {
		to := x.read
		for _, b := range list {
			to = min(to, b.Newest())
		}
		for _, b := range list {
			if b.windows = users.Shares(b.Device().ID, to-sharesKept, x.read, b.windows[:0]); len(b.windows) > 0 {
				to = min(to, max(to-sharesLag, b.windows[len(b.windows)-1].To))
			}
			b.windows = users.Shares(b.Device().ID, x.through, to, b.windows[:0])
		}
		until[x] = to
		for at := x.through; at < to; {
			s := x.stateAt(at)
			end, joules := min(s.to, to), 0.
			for _, b := range list {
				end = b.constant(at, end)
				if len(b.meters) > 1 {
					s.share = certain // by the states of all servers
				}
			}
			for _, b := range list {
				joules += b.energy(at, end) * b.part(x, at)
			}
			x.count(s, joules, float64(end-at)*1e-9)
			at = end
		}
	}
	oldest := int64(math.MaxInt64)
	for _, x := range m.list {
		if x.through = max(x.through, until[x]); x.start > 0 {
			oldest = min(oldest, x.through)
		}
	}
	for _, x := range m.list {
		for len(x.states) > 1 && x.states[0].to <= oldest {
			x.states = x.states[1:]
		}
	}
}

// devices returns the devices of the server; none if they are unknown.
func (x *Meter) devices(users Users) []string {
	if x.start == 0 {
		return nil
	}
	if x.id.PID != nil && x.id.Workload.PID == 0 {
		x.id.Workload.PID = x.id.PID()
	}
	if len(x.id.Devices) > 0 {
		return x.id.Devices
	}
	ids, _ := users.DevicesOf(nil, &x.id.Workload, x.through, x.read)
	if len(ids) == 0 && x.id.PID != nil {
		x.id.Workload.PID = 0
	}
	return ids
}

// window returns how processes share the board at a time; nil if it is unknown. The time to its
// change is at most end.
func (b *board) window(at, end int64) (*devicesamples.ShareWindow, int64) {
	for i := range b.windows {
		switch w := &b.windows[i]; {
		case at < w.From:
			return nil, min(end, w.From)
		case at < w.To:
			return w, min(end, w.To)
		}
	}
	return nil, end
}

// constant returns until when, at most end, the parts of servers at a time stay the same.
func (b *board) constant(at, end int64) int64 {
	_, end = b.window(at, end)
	for _, x := range b.meters {
		if to := x.stateAt(at).to; to > at {
			end = min(end, to)
		}
	}
	return end
}

// part returns the part of the board's energy at a time that is a server's: the shares of its
// processes. The rest is divided equally among the servers whose processes are unknown: among those
// that run requests, otherwise all.
func (b *board) part(x *Meter, at int64) float64 {
	rest := 1.
	found := map[*Meter]bool{}
	if w, _ := b.window(at, math.MaxInt64); w != nil {
		own := 0.
		host := b.Device()
		for i := range w.Users {
			u := &w.Users[i]
			best, claims, mine := devicesamples.MatchNone, 0, false
			for _, y := range b.meters {
				match := u.Match(&y.id.Workload, host.HostID, host.HostName)
				switch {
				case match == devicesamples.MatchNone:
					continue
				case match > best:
					best, claims, mine = match, 0, false
				}
				if found[y] = true; match == best {
					claims++
					mine = mine || y == x
				}
			}
			if claims > 0 {
				rest -= u.Share
			}
			if mine {
				own += u.Share / float64(claims)
			}
		}
		if found[x] {
			return own
		}
	}
	running, present, s := 0, 0, absent
	for _, y := range b.meters {
		is := y.stateAt(at).state
		if y == x {
			s = is
		}
		if found[y] || is == absent {
			continue
		}
		if present++; is != idle {
			running++
		}
	}
	switch {
	case running == 0:
		return max(rest, 0) / float64(max(present, 1))
	case s == idle:
		return 0
	}
	return max(rest, 0) / float64(running)
}

// energy returns the energy of the board in joules.
func (b *board) energy(from, to int64) float64 {
	watts, known := b.Mean(devicesamples.Energy, from, to)
	if known == 0 {
		watts, known = b.Mean(devicesamples.Power, from, to)
	}
	return watts * known * float64(to-from) * 1e-9
}
