// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"slices"

	"github.com/otelgpu/otelgpu/internal/boundedmap"
	"github.com/otelgpu/otelgpu/processor/gpujoinprocessor/internal/attribution"
)

// arrivals are the requests of one service whose spans have arrived, by the devices on which they
// ran. Several servers of one name, such as replicas on one host, have one count: what runs on
// other devices is subtracted from it before a physical GPU's own requests are, because otherwise
// each GPU would miss the requests of all others.
type arrivals struct {
	sets []requestTimes
	// nested are the parents of requests (true), and requests (false): a request inside another one
	// is not counted again.
	nested boundedmap.Recent[attribution.Key, bool]
}

// requestTimes are the starts and ends of requests on the same physical GPUs, each in order.
type requestTimes struct {
	boards       []string
	starts, ends []int64
}

const (
	// maxArrivals bounds the requests of a set, maxSets the sets of a service.
	maxArrivals, maxSets = 1 << 15, 1 << 8
	// arrivalsKept is how long they are kept, in waits of a batch.
	arrivalsKept = 4
)

// arrive records a request.
func (l *loads) arrive(x *target, s *attribution.Span) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.arrived[x.res.load]
	if a == nil {
		if l.arrived == nil || len(l.arrived) >= maxServers {
			l.arrived = map[string]*arrivals{}
		}
		a = &arrivals{nested: boundedmap.NewRecent[attribution.Key, bool](maxSums)}
		l.arrived[x.res.load] = a
	}
	parent := attribution.Key{Trace: s.Trace, Span: s.Parent}
	around, known := a.nested.Get(s.Key), a.nested.Find(parent)
	inside := known != nil && !*known
	a.nested.Put(s.Key, around)
	if around || inside {
		return
	}
	a.nested.Put(parent, true)
	if set := a.of(x); set != nil {
		set.add(s.Start, s.End, arrivalsKept*l.wait)
	}
}

// of returns the set of a target's physical GPUs; nil if there is no room.
func (a *arrivals) of(x *target) *requestTimes {
	for i := range a.sets {
		set := &a.sets[i]
		if len(set.boards) == 1+len(x.more) && set.boards[0] == x.board.id &&
			slices.EqualFunc(set.boards[1:], x.more, func(id string, s spot) bool { return id == s.board.id }) {
			return set
		}
	}
	if len(a.sets) >= maxSets {
		return nil
	}
	set := requestTimes{boards: []string{x.board.id}}
	for _, s := range x.more {
		set.boards = append(set.boards, s.board.id)
	}
	a.sets = append(a.sets, set)
	return &a.sets[len(a.sets)-1]
}

func (r *requestTimes) add(start, end, keep int64) {
	i, _ := slices.BinarySearch(r.starts, start)
	r.starts = slices.Insert(r.starts, i, start)
	i, _ = slices.BinarySearch(r.ends, end)
	r.ends = slices.Insert(r.ends, i, end)
	old, _ := slices.BinarySearch(r.ends, r.ends[len(r.ends)-1]-keep)
	if old = max(old, len(r.ends)-maxArrivals); old > len(r.ends)/2 {
		// As many starts as ends are dropped, so the number of running requests at later times
		// stays right, even if they belong to different requests.
		r.starts, r.ends = slices.Delete(r.starts, 0, old), slices.Delete(r.ends, 0, old)
	}
}

// running returns how many of the requests run at a time.
func (r *requestTimes) running(t int64) int {
	started, _ := slices.BinarySearch(r.starts, t+1)
	ended, _ := slices.BinarySearch(r.ends, t+1)
	return max(0, started-ended)
}

// elsewhere returns how many requests of a service ran at a time on other physical GPUs only. The
// caller holds the lock.
func (l *loads) elsewhere(load, board string, t int64) (n int) {
	a := l.arrived[load]
	if a == nil {
		return 0
	}
	for i := range a.sets {
		if set := &a.sets[i]; !slices.Contains(set.boards, board) {
			n += set.running(t)
		}
	}
	return n
}
