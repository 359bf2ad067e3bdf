// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package servermetrics

import (
	"math"
	"slices"
	"time"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
)

const (
	// silence is for how long a server without new pages is taken to be in its last state, at least,
	// and in multiples of the time between its pages.
	silence, silentPages = int64(5 * time.Second), 3
	// sharesLag is by how much later than samples the shares of processes are known at most, and
	// sharesKept for how long a device has them after the last one.
	sharesLag, sharesKept = int64(5 * time.Second), int64(time.Minute)
)

// extend adds the time since the last page: its first half has the earlier state, unless the server
// was restarted.
func (x *Meter) extend(now state, t int64, restarted bool) {
	if n := len(x.states); n > 0 {
		last := &x.states[n-1]
		switch {
		case restarted:
			x.states = append(x.states, stretch{t, absent})
		case last.state == now:
			last.to = t
			return
		default:
			last.to = x.read + (t-x.read)/2
		}
	}
	if over := len(x.states) - maxStretches; over >= 0 {
		x.states = slices.Delete(x.states, 0, 1+over)
	}
	x.states = append(x.states, stretch{t, now})
}

// stateAt returns the state at a time that is not before the first stretch, and until when it lasts.
func (x *Meter) stateAt(t int64) (state, int64) {
	for _, s := range x.states {
		if t < s.to {
			return s.state, s.to
		}
	}
	if to := x.read + max(silence, silentPages*x.every); len(x.states) > 0 && t < to {
		return x.states[len(x.states)-1].state, to
	}
	return absent, math.MaxInt64
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
			s, end := x.stateAt(at)
			end = min(end, to)
			for _, b := range list {
				end = b.constant(at, end)
			}
			for _, b := range list {
				if s != absent {
					x.joules[s] += b.energy(at, end) * b.part(x, at)
				}
			}
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
		if _, to := x.stateAt(at); to > at {
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
		is, _ := y.stateAt(at)
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
