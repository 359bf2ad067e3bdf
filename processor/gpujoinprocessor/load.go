// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"hash/maphash"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/otelgpu/otelgpu/internal/boundedmap"
	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/processor/gpujoinprocessor/internal/attribution"
)

// loads finds how many requests a server ran. All requests of a server belong to one process in the
// energy attribution, whichever of the server's processes exports their spans, because the server
// counts them together.
type loads struct {
	reader devicesamples.LoadReader // nil: nothing is known

	mu    sync.Mutex
	names map[uint64]string // by the number of the process
	// Processes that sent requests, and the server that they belong to. Their work on the device is
	// the server's.
	servers map[uint64]uint64
	// Services that sent requests and have no count under their own name. The count without a name
	// is of one server only.
	unnamed map[string]struct{}
	arrived map[string]*arrivals // by load
	wait    int64                // for how long a batch waits at most, ns
}

// maxServers bounds the processes that sent requests.
const maxServers = 1 << 12

// serve records that a process sent a request, and returns the number of the process in the energy
// attribution: its server's, unless it is unknown which service the count is of.
func (l *loads) serve(r *resourceInfo) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.servers == nil || len(l.servers) >= maxServers {
		l.servers, l.unnamed = map[uint64]uint64{}, map[string]struct{}{}
	}
	if r.load == "" && len(l.unnamed) < maxServers {
		if _, ok := l.unnamed[r.service]; !ok {
			l.unnamed[strings.Clone(r.service)] = struct{}{}
		}
	}
	if l.ambiguous(r.load) {
		delete(l.servers, r.process)
		return r.process
	}
	l.servers[r.process] = r.server
	return r.server
}

// ambiguous reports whether a load is of one of several services. The caller holds the lock.
func (l *loads) ambiguous(load string) bool { return load == "" && len(l.unnamed) > 1 }

// unnamedServices returns the services that no count names, if there are several.
func (l *loads) unnamedServices() (names []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ambiguous("") {
		names = slices.Sorted(maps.Keys(l.unnamed))
	}
	return names
}

// processOf returns the number of the process in the energy attribution: its server's if it sent
// requests.
func (l *loads) processOf(process uint64) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if server, ok := l.servers[process]; ok {
		return server
	}
	return process
}

// of returns the name of the load of a service.
func (l *loads) of(service string) (string, bool) {
	if l == nil || l.reader == nil {
		return "", false
	}
	return l.reader.LoadOf(service)
}

// server returns the number of the process that a load belongs to. There are as many as loads,
// which are bounded.
func (l *loads) server(seed maphash.Seed, name string) uint64 {
	id := maphash.String(seed, "load of "+name)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.names == nil {
		l.names = map[uint64]string{}
	}
	l.names[id] = name
	return id
}

// all returns the names of the loads by the numbers of their processes.
func (l *loads) all() map[uint64]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.names)
}

// levels appends the load of a process on a board, on the clock of spans.
func (l *loads) levels(
	process uint64, board string, from, to, shift int64, dst []attribution.Level,
) []attribution.Level {
	if l == nil || l.reader == nil {
		return dst
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	name, ok := l.names[process]
	if !ok || l.ambiguous(name) {
		return dst
	}
	first := len(dst)
	dst = l.reader.LoadLevels(name, from+shift, to+shift, dst)
	for i := range dst[first:] {
		level := &dst[first+i]
		if level.Time -= shift; level.Running >= 0 {
			level.Running = max(0, level.Running-float64(l.elsewhere(name, board, level.Time)))
		}
	}
	return dst
}

// known reports whether the share of a request is its fair one: the load of its server covers its
// time.
func (l *loads) known(r *resourceInfo, start, end int64) bool {
	if r.server == 0 {
		return false
	}
	l.mu.Lock()
	unclear := l.ambiguous(r.load)
	l.mu.Unlock()
	return !unclear && l.reader.LoadKnown(r.load, start, end)
}

// behind returns by how many ns the clock of a resource's server is behind the clock of spans,
// negative if it is ahead; 0: it is right or unknown.
func (l *loads) behind(r *resourceInfo, shift int64) int64 {
	if r.server == 0 {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	offset := int64(l.reader.LoadClock(r.load))
	if offset == 0 || l.ambiguous(r.load) {
		return 0
	}
	return -offset - shift
}

// weightOf returns how many requests one represents at a sampling ratio; 0: the ratio is invalid.
func weightOf(v pcommon.Value) float64 {
	ratio := v.Double()
	if v.Type() == pcommon.ValueTypeStr { // OTEL_RESOURCE_ATTRIBUTES has texts only
		ratio, _ = strconv.ParseFloat(v.Str(), 64)
	}
	if ratio > 0 && ratio <= 1 {
		return 1 / ratio
	}
	return 0
}

// countError returns the part of the energy of a request of some length, in ns, that may be wrong
// because its server's count is known at times only. contradicted means that the count is lower than
// the requests that ran on one of the physical GPUs by their spans.
func (a *attributes) countError(server uint64, length int64) (most float64, contradicted bool) {
	for i := range a.spots {
		d := a.spots[i].board.dev
		most = max(most, d.CountError(server, length))
		contradicted = contradicted || d.Contradicts(server)
	}
	return most, contradicted
}

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
