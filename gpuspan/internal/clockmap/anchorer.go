// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package clockmap

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
)

const (
	probes = 6 // per anchor

	// spinLimit is how long a probe is polled without pause: a busy device must not cost a core.
	// spinQueries is the same limit for stopped (simulated) clocks.
	spinLimit   = 200 * time.Microsecond
	spinQueries = 1 << 14

	// pause and patience are for probes that take longer. Waiting in the driver would observe them
	// slightly earlier, but would block the thread if the device hangs.
	pause    = 50 * time.Microsecond
	patience = 100 * time.Millisecond

	// near is the distance between an event and its anchor beyond which a nearer anchor is used:
	// float32 milliseconds resolve 122 ns at 2 s and worse beyond.
	near = 2e9

	ringSize = 256
	apart    = 0.5e9 // minimum ns between two marks of the ring, except the newest
)

// Anchorer keeps the [Map] of one device supplied with anchors and places events on the host's
// clock. It belongs to one goroutine (the polling thread), except Map().Drift and Map().Anomalies.
type Anchorer struct {
	dev     backend.Backend
	context backend.Context
	stream  backend.StreamHandle
	events  [ringSize + probes]backend.Event // all created events
	spare   [probes]backend.Event            // events of the next burst
	ring    [ringSize]mark                   // marks of past anchors, half a second apart
	count   int                              // anchors in the ring; the newest is ring[(count-1)%ringSize]
	made    int                              // anchors since the beginning
	opened  int                              // how often stream and events were created
	broken  bool                             // the last anchor failed: stream and events may be gone with their context
	refused int                              // anchors in a row that the map did not accept

	restarts atomic.Int64

	m        *Map
	base     time.Time // where the axis begins, at its unix nanoseconds
	shares   bool      // an event may share the marker of the previous work on its stream, as in older ROCm (package hip)
	stands   bool      // the clock is simulated, has no monotonic readings and advances only in waits
	schedule schedule
	call     *backend.Call
	rest     func(time.Duration) // time.Sleep
}

// mark is an anchor's event with its position on the chained axis.
type mark struct {
	event backend.Event
	gpu   float64
}

// NewAnchorer creates the stream and the events for anchors of a context's device. It returns the
// driver's status.
func NewAnchorer(dev backend.Backend, c backend.Context, opts Options) (*Anchorer, backend.Status) {
	base := dev.Now()
	a := &Anchorer{
		dev: dev, context: c, m: New(opts), base: base, stands: base == base.Round(0), call: new(backend.Call),
		rest: time.Sleep, shares: dev.Name() == "hip_event",
	}
	if st := a.open(); st != backend.StatusOK {
		return nil, st
	}
	return a, backend.StatusOK
}

func (a *Anchorer) open() backend.Status {
	var st backend.Status
	if a.stream, st = a.dev.NewAnchorStream(a.context); st != backend.StatusOK {
		return st
	}
	if st = a.dev.NewEvents(a.context, a.events[:]); st != backend.StatusOK {
		a.dev.FreeStream(a.context, a.stream)
		return st
	}
	copy(a.spare[:], a.events[ringSize:])
	for i := range a.ring {
		a.ring[i].event = a.events[i]
	}
	a.count, a.broken = 0, false
	if a.opened++; a.opened > 1 {
		a.renew()
	}
	return backend.StatusOK
}

// renew starts another map; readings of the previous clock keep theirs.
func (a *Anchorer) renew() {
	m := New(a.m.opts)
	m.anomalies.Store(a.m.Anomalies())
	a.m = m
}

// refusedAtMost is how many anchors in a row a map may refuse before the clock has another one: it
// jumped backward, as by a reset or a restored checkpoint, and would only reach its old value after
// the time of the jump.
const refusedAtMost = 2

// Restarts counts the backward jumps of the device's clock.
func (a *Anchorer) Restarts() int64 { return a.restarts.Load() }

// reopen starts over after a failure. Old stream and events are freed, unless their context is
// gone, which makes their handles invalid.
func (a *Anchorer) reopen(failure backend.Status) backend.Status {
	stream, events := a.stream, a.events
	st := a.open()
	if st != backend.StatusOK {
		a.stream, a.events = stream, events
		return st
	}
	switch failure {
	case backend.StatusInvalidContext, backend.StatusInvalidHandle, backend.StatusContextDestroyed:
	default:
		a.dev.FreeEvents(a.context, events[:])
		a.dev.FreeStream(a.context, stream)
	}
	return backend.StatusOK
}

// Close destroys stream and events.
func (a *Anchorer) Close() {
	a.dev.FreeEvents(a.context, a.events[:])
	a.dev.FreeStream(a.context, a.stream)
}

// Made returns how many anchors were made.
func (a *Anchorer) Made() int { return a.made }

// Map returns the map that the anchors feed.
func (a *Anchorer) Map() *Map { return a.m }

// Maintain takes an anchor if one is due. busy means that sections were started or are pending;
// after ten idle seconds no anchors are taken until the next busy call. It returns the time until
// the next call (0: not before the next busy call) and the driver's status; a failed anchor is
// retried at the next due time.
func (a *Anchorer) Maintain(busy bool) (wait time.Duration, st backend.Status) {
	due, wait := a.schedule.next(a.Axis(a.dev.Now()), busy)
	if !due {
		return wait, backend.StatusOK
	}
	return wait, a.Anchor()
}

// Anchor takes an anchor now: a burst of probes, of which the tightest counts. A device that
// completes none within 100 ms is "not ready".
func (a *Anchorer) Anchor() backend.Status {
	st := a.anchor()
	if st != backend.StatusOK && st != backend.StatusNotReady {
		if a.broken = true; a.reopen(st) == backend.StatusOK {
			st = a.anchor()
		}
	}
	return st
}

func (a *Anchorer) anchor() backend.Status {
	unbind, st := a.dev.Bind(a.context) // some drivers may need a context for a record on any stream
	if st != backend.StatusOK {
		a.schedule.done(a.Axis(a.dev.Now()))
		return st
	}
	defer unbind()
	best, made := -1, 0
	var before, after [probes]int64
	for i := range a.spare {
		if before[i], after[i], st = a.probe(i); st != backend.StatusOK {
			break
		}
		if made++; best < 0 || after[i]-before[i] < after[best]-before[best] {
			best = i
		}
	}
	a.schedule.done(a.Axis(a.dev.Now()))
	if best < 0 || st != backend.StatusOK && st != backend.StatusNotReady {
		return st
	}

	gpu := 0.0
	if a.count > 0 {
		last := a.newest()
		d, st := a.dev.Elapsed(last.event, a.spare[best])
		if st != backend.StatusOK {
			return st
		}
		gpu = last.gpu + d
	}
	from, to := a.intersect(best, before[:made], after[:made])
	if a.count > 1 && gpu-a.ring[(a.count-2)%ringSize].gpu < apart {
		a.count-- // the newest mark is replaced, so that the ring reaches back for minutes
	}
	slot := &a.ring[a.count%ringSize]
	slot.event, a.spare[best] = a.spare[best], slot.event
	slot.gpu = gpu
	a.count++
	a.made++

	anomalies := a.m.Anomalies()
	if next := (Anchor{GPU: gpu, Before: from, After: to}); a.m.Add(next) {
		a.refused = 0
	} else if a.refused++; a.refused == refusedAtMost {
		a.refused = 0
		a.restarts.Add(1)
		a.renew()
		a.m.Add(next)
	}
	if a.m.Anomalies() != anomalies {
		a.schedule.hurry()
	}
	return backend.StatusOK
}

// intersect combines all probes of a burst to bound the stamp of the best one. Each starts at a
// different phase of a tick, so together they bound the stamp more tightly than the length of a
// tick.
func (a *Anchorer) intersect(best int, before, after []int64) (from, to int64) {
	from, to = before[best], after[best]
	for i := range before {
		if i == best {
			continue
		}
		d, ok := a.elapsed(a.spare[best], a.spare[i])
		if !ok {
			continue
		}
		bent := math.Abs(d)*a.m.opts.MaxDrift*1e-6 + 1
		b, e := before[i]-int64(math.Floor(d+bent)), after[i]-int64(math.Ceil(d-bent))
		if max(from, b) <= min(to, e) { // otherwise a clock jumped within the burst
			from, to = max(from, b), min(to, e)
		}
	}
	return from, to
}

// probe records an event on the idle stream and waits for it; its stamp lies between the two times.
func (a *Anchorer) probe(i int) (before, after int64, st backend.Status) {
	a.call.Args = [2]uintptr{uintptr(a.spare[i]), a.stream}
	t0 := a.dev.Now()
	if st = a.dev.Record(a.call); st != backend.StatusOK {
		return 0, 0, st
	}
	t1 := t0
	for n := 0; ; n++ {
		late := t1.Sub(t0) > patience // before the query: this thread may have waited for a processor since
		st = a.dev.Query(a.spare[i])
		t1 = a.dev.Now()
		if st != backend.StatusNotReady {
			break
		}
		if t1.Sub(t0) < spinLimit && n < spinQueries {
			continue
		}
		if a.stands {
			st = a.dev.Synchronize(a.spare[i]) // moves the clock
			t1 = a.dev.Now()
			break
		}
		if late || n > spinQueries+int(patience/pause) {
			return 0, 0, backend.StatusNotReady
		}
		a.rest(pause)
	}
	return a.Axis(t0), a.Axis(t1), st
}

func (a *Anchorer) newest() *mark { return &a.ring[(a.count-1)%ringSize] }

const (
	firstInterval  = 10 * time.Millisecond
	steadyInterval = 60 * time.Millisecond
	idleAfter      = 10 * time.Second
)

// schedule determines when anchors are due: immediately on first use, then after 10, 20, 40 ms,
// then every 60 ms, none after ten seconds without use. Times are on the host axis, in ns.
type schedule struct {
	running  bool
	lastUse  int64
	due      int64
	interval time.Duration
}

// next returns whether an anchor is due now and how long to sleep until the next; 0 while idle.
func (s *schedule) next(now int64, busy bool) (due bool, wait time.Duration) {
	if busy {
		s.lastUse = now
		if !s.running {
			s.running, s.interval, s.due = true, firstInterval, now
		}
	}
	if s.running && now-s.lastUse > int64(idleAfter) {
		s.running = false
	}
	if !s.running {
		return false, 0
	}
	if now >= s.due {
		return true, s.interval
	}
	return false, time.Duration(s.due - now)
}

// done records that an anchor was taken (or attempted) at now.
func (s *schedule) done(now int64) {
	s.due = now + int64(s.interval)
	s.interval = min(2*s.interval, steadyInterval)
}

// hurry restarts the dense schedule immediately, after an anomaly.
func (s *schedule) hurry() {
	if s.running {
		s.interval, s.due = firstInterval, math.MinInt64
	}
}
