// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package devicesamples

import (
	"crypto/sha256"
	"encoding/hex"
	"math"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/otelgpu/otelgpu/internal/spanfacts"
)

// LoadSeries identifies one source of the number of running requests. A service with several
// engines has several series; their sum is the load of the service.
type LoadSeries struct {
	Service string // service.name of the server's spans; empty: every service without its own series
	// Source distinguishes the series of a service: the server, then `{` and the labels of its
	// engine.
	Source string
}

// maxSource bounds the source of a series, in bytes.
const maxSource = 1024

// bounded returns s with texts of a limited length. Labels only distinguish series, so long ones
// become a hash.
func (s LoadSeries) bounded() LoadSeries {
	s.Service = spanfacts.Clip(s.Service)
	if len(s.Source) > maxSource {
		hash := sha256.Sum256([]byte(s.Source))
		s.Source = spanfacts.Valid(s.server(), maxSource) + "{" + hex.EncodeToString(hash[:])
	}
	return s
}

// server returns the server of the series.
func (s LoadSeries) server() string {
	server, _, _ := strings.Cut(s.Source, "{")
	return server
}

// LoadWriter writes the number of requests that servers run.
type LoadWriter interface {
	// WriteLoad appends one reading; time is in Unix nanoseconds. Readings that are not newer than
	// the newest one of their series are dropped.
	WriteLoad(s LoadSeries, time int64, running float64)
	// AddLoad adds n requests that ran from one time to another to the readings of that time: the
	// server reports requests when they end.
	AddLoad(s LoadSeries, from, to int64, n float64)
}

// LoadReader returns the number of requests that servers run.
type LoadReader interface {
	// LoadOf returns the name of the series that has the load of a service; false if nothing
	// reports it.
	LoadOf(service string) (name string, ok bool)
	// LoadLevels appends the readings of a service that cover [from, to] (Unix nanoseconds) to dst
	// in time order: the last one at or before from, if any, all until to, and the next one.
	// LoadLapsed and LoadAhead mark times without a reading nearby.
	LoadLevels(name string, from, to int64, dst []LoadLevel) []LoadLevel
	// LoadKnown reports whether readings of each server of a service cover all of [from, to], and
	// at least one of each is inside. A server whose last reading was long before does not count.
	LoadKnown(name string, from, to int64) bool
	// LoadClock returns by how much the clock of a service's servers is ahead, negative if it is
	// behind; 0 if it is right or unknown. Of several servers, the largest offset counts.
	LoadClock(name string) time.Duration
}

// LoadLevel is the number of running requests at a time, or LoadLapsed or LoadAhead.
type LoadLevel struct {
	Time    int64   // Unix nanoseconds
	Running float64 // number of running requests
}

// Values of LoadLevel.Running that are not readings.
const (
	LoadLapsed = -1 // unknown up to the next level
	LoadAhead  = -2 // the next level is near enough from here on
)

// loadHold is how far from a reading its value counts: half of the longest usual interval between
// scrapes, a minute.
const loadHold = int64(30 * time.Second)

// loadKept is for how long a reading is kept at least, in ns: a request of half an hour is divided
// by the readings of all its time.
const loadKept = int64(time.Hour)

// maxLoadSeries bounds the series, maxLoadReadings the readings of one.
const maxLoadSeries, maxLoadReadings = 1 << 10, 1 << 12

// loadTable holds the recent readings by service.
type loadTable struct {
	maxAge  int64
	dropped *atomic.Int64

	mu     sync.RWMutex
	series map[string]map[string]*[]LoadLevel // by service and source
	count  int
	missed map[LoadSeries]int64 // when a server could not be read last; Source is the server
	clocks map[LoadSeries]time.Duration
}

// WriteLoad implements LoadWriter.
func (st *Store) WriteLoad(s LoadSeries, t int64, running float64) {
	st.loads.write(s.bounded(), t, running)
}

// AddLoad implements LoadWriter. A reading applies to half of the time to the ones before and
// after.
func (st *Store) AddLoad(s LoadSeries, from, to int64, n float64) {
	s = s.bounded()
	x := &st.loads
	x.mu.Lock()
	defer x.mu.Unlock()
	p := x.series[s.Service][s.Source]
	if p == nil || to <= from {
		return
	}
	r := *p
	i := max(0, sort.Search(len(r), func(i int) bool { return r[i].Time > from })-1)
	for ; i < len(r); i++ {
		start, end := int64(math.MinInt64), int64(math.MaxInt64)
		if i > 0 {
			start = r[i-1].Time + (r[i].Time-r[i-1].Time)/2
		}
		if i+1 < len(r) {
			end = r[i].Time + (r[i+1].Time-r[i].Time)/2
		} else if i > 0 {
			end = r[i].Time + r[i].Time - start
		}
		if start >= to {
			break
		}
		if start == math.MinInt64 {
			if start = from; end != math.MaxInt64 {
				start = 2*r[i].Time - end
			}
		}
		if end == math.MaxInt64 {
			end = to
		}
		if part := min(end, to) - max(start, from); part > 0 {
			r[i].Running += n * float64(part) / float64(end-start)
		}
	}
}

// LoadOf implements LoadReader.
func (st *Store) LoadOf(service string) (string, bool) {
	st.loads.mu.RLock()
	defer st.loads.mu.RUnlock()
	if st.loads.series[service] != nil {
		return service, true
	}
	return "", st.loads.series[""] != nil
}

// LoadLevels implements LoadReader.
func (st *Store) LoadLevels(name string, from, to int64, dst []LoadLevel) []LoadLevel {
	return st.loads.levels(name, from, to, dst)
}

// LoadKnown implements LoadReader.
func (st *Store) LoadKnown(name string, from, to int64) bool {
	return st.loads.known(name, from, to)
}

// MissLoad notes that a server could not be read.
func (st *Store) MissLoad(s LoadSeries, t int64) {
	x := &st.loads
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.missed == nil || len(x.missed) >= maxLoadSeries {
		x.missed = map[LoadSeries]int64{}
	}
	x.missed[LoadSeries{s.Service, s.server()}] = t
}

// SetLoadClock sets by how much a server's clock is ahead; 0: it is right.
func (st *Store) SetLoadClock(s LoadSeries, offset time.Duration) {
	x := &st.loads
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.clocks == nil || len(x.clocks) >= maxLoadSeries {
		x.clocks = map[LoadSeries]time.Duration{}
	}
	x.clocks[s.bounded()] = offset
}

// LoadClock implements LoadReader.
func (st *Store) LoadClock(name string) (offset time.Duration) {
	st.loads.mu.RLock()
	defer st.loads.mu.RUnlock()
	for s, d := range st.loads.clocks {
		if s.Service == name && d.Abs() > offset.Abs() {
			offset = d
		}
	}
	return offset
}

func (x *loadTable) known(name string, from, to int64) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	servers := map[string]bool{} // whether the readings suffice
	for source, s := range x.series[name] {
		if (*s)[len(*s)-1].Time < from-loadHold {
			continue
		}
		server := LoadSeries{Source: source}.server()
		servers[server] = servers[server] || covers(*s, from, to) && inside(*s, from, to)
	}
	for s, t := range x.missed {
		if _, read := servers[s.Source]; s.Service == name && t >= from && !read {
			servers[s.Source] = false
		}
	}
	all := len(servers) > 0
	for _, ok := range servers {
		all = all && ok
	}
	return all
}

func (x *loadTable) write(s LoadSeries, t int64, running float64) {
	if !(running >= 0) {
		x.dropped.Add(1)
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.series == nil {
		x.series = map[string]map[string]*[]LoadLevel{}
	}
	r := x.series[s.Service][s.Source]
	if r == nil {
		x.expire(t)
		if x.count >= maxLoadSeries {
			x.dropped.Add(1)
			return
		}
		service := strings.Clone(s.Service)
		if x.series[service] == nil {
			x.series[service] = map[string]*[]LoadLevel{}
		}
		r = new([]LoadLevel)
		x.series[service][strings.Clone(s.Source)] = r
		x.count++
	}
	if n := len(*r); n > 0 && (*r)[n-1].Time >= t {
		x.dropped.Add(1)
		return
	}
	*r = append(*r, LoadLevel{t, running})
	old := sort.Search(len(*r), func(i int) bool { return (*r)[i].Time >= t-x.maxAge })
	*r = slices.Delete(*r, 0, max(old, len(*r)-maxLoadReadings))
}

// expire removes the series that ended long ago.
func (x *loadTable) expire(now int64) {
	for service, all := range x.series {
		for source, r := range all {
			if (*r)[len(*r)-1].Time < now-x.maxAge {
				delete(all, source)
				x.count--
			}
		}
		if len(all) == 0 {
			delete(x.series, service)
		}
	}
}

func (x *loadTable) levels(name string, from, to int64, dst []LoadLevel) []LoadLevel {
	x.mu.RLock()
	defer x.mu.RUnlock()
	all := x.series[name]
	if len(all) == 0 {
		return dst
	}
	var times []int64
	for _, s := range all {
		r := *s
		first := max(0, sort.Search(len(r), func(i int) bool { return r[i].Time > from })-1)
		for _, x := range r[first:] {
			times = append(times, x.Time)
			if x.Time > to {
				break
			}
		}
	}
	slices.Sort(times)
	times = slices.Compact(times)
	first := max(0, sort.Search(len(times), func(i int) bool { return times[i] > from })-1)
	last := sort.Search(len(times), func(i int) bool { return times[i] > to })
	times = times[first:min(last+1, len(times))]
	known := int64(math.MinInt64) // a reading is near until then
	for _, t := range times {
		if t-loadHold > known {
			if known != math.MinInt64 {
				dst = append(dst, LoadLevel{known, LoadLapsed})
			} else if t-loadHold > from {
				dst = append(dst, LoadLevel{from, LoadLapsed})
			}
			if known != math.MinInt64 || t > from {
				dst = append(dst, LoadLevel{max(t-loadHold, min(from, t)), LoadAhead})
			}
		}
		var sum float64
		for _, s := range all {
			sum += around(*s, t)
		}
		dst = append(dst, LoadLevel{t, sum})
		known = t + loadHold
	}
	if n := len(times); n > 0 && times[n-1] <= to {
		dst = append(dst, LoadLevel{known, LoadLapsed})
	}
	return dst
}

// around returns the reading at a time. If another engine of the service was read then, it is the
// larger one of the readings before and after; 0 if none is near.
func around(r []LoadLevel, t int64) (running float64) {
	i := sort.Search(len(r), func(i int) bool { return r[i].Time > t })
	if i > 0 && r[i-1].Time == t {
		return r[i-1].Running
	}
	if i > 0 && t-r[i-1].Time < loadHold {
		running = r[i-1].Running
	}
	if i < len(r) && r[i].Time-t <= loadHold {
		running = max(running, r[i].Running)
	}
	return running
}

// inside reports whether a reading is in [from, to]. Between two readings any number of requests
// can start and end.
func inside(r []LoadLevel, from, to int64) bool {
	i := sort.Search(len(r), func(i int) bool { return r[i].Time >= from })
	return i < len(r) && r[i].Time <= to
}

// covers reports whether no part of [from, to] is further than loadHold from a reading.
func covers(r []LoadLevel, from, to int64) bool {
	i := sort.Search(len(r), func(i int) bool { return r[i].Time > from })
	if i > 0 && from-r[i-1].Time <= loadHold {
		i--
	}
	for at := from; i < len(r); i++ {
		if r[i].Time-at > 2*loadHold || at == from && r[i].Time-from > loadHold {
			return false
		}
		if at = r[i].Time; at+loadHold >= to {
			return true
		}
	}
	return false
}
