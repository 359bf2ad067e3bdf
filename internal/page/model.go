// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package page provides the GPU page: a model of recent GPU work in bounded memory, the page that
// shows it live, and the same page as one file.
//
//	spans, metrics ──► Model ──► State (JSON) ──┬─► Handler: /, /api/state, /api/events   live
//	                                            └─► Report: one HTML file, no network
//
// The page's scripts and styles are in assets, without any library: six views, drawn as SVG, each
// under the question that it answers. No text from the wire reaches HTML but as text.
package page

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/otelgpu/otelgpu/internal/boundedmap"
	"github.com/otelgpu/otelgpu/internal/plausibility"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/internal/spansums"
	"github.com/otelgpu/otelgpu/internal/stackprofile"
)

// Limits of a Model: beyond them the oldest data is removed and counted.
const (
	bucketSeconds = 5   // length of the intervals over which operations are summed; a chosen range is rounded to it
	keptSeconds   = 600 // ten minutes
	maxBuckets    = 100_000
	maxOperations = 10_000
	maxDevices    = 64
	maxSteps      = 16_000
	maxLate       = 4_000 // late steps
	maxRequests   = 4_000
	maxRecent     = 256 // newest spans of a device
	maxServices   = 8   // names of the services that a device worked for
	maxCounters   = 64  // throttle reasons of a device
	maxBetween    = 75  // s from a sample to the next; beyond it the values between them are unknown
	maxSkew       = 300 // s that another host's clock may be ahead: later data would push out the present
)

// Model holds recent GPU work. Its methods may be called from any goroutine.
type Model struct {
	mu         sync.Mutex
	now        func() time.Time
	operations map[operationKey]*operation
	buckets    int // of all operations
	devices    map[string]*device
	roofs      map[string]*Roof // by model of the device
	steps      ring[Step]
	requests   boundedmap.Recent[pcommon.TraceID, *Request]
	slowest    *Request                                    // of operations removed within the kept time
	lengths    boundedmap.Recent[pcommon.TraceID, float64] // of requests without a usage record, s
	late       ring[late]
	errors     ring[deviceError]
	sections   ring[sectionTime]
	jobs       map[string]*JobTime
	health     Health
	sources    []func() []plausibility.Entry
	stacks     *stackprofile.Builder // of a live page
	traces     traceStore
	resolved   time.Time // when stacks were resolved last
	generation uint64
	since      int64 // index of the first kept bucket
	latest     int64 // unix s beyond which a time is wrong
}

// AddContradictions makes the page show what entries returns.
func (m *Model) AddContradictions(entries func() []plausibility.Entry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sources = append(m.sources, entries)
}

// New returns an empty model that follows the clock.
func New() *Model { return NewWithClock(time.Now) }

// NewWithClock returns an empty model that follows the caller's clock.
func NewWithClock(now func() time.Time) *Model {
	return &Model{
		now: now, operations: map[operationKey]*operation{}, devices: map[string]*device{}, roofs: map[string]*Roof{},
		jobs:     map[string]*JobTime{},
		requests: boundedmap.NewRecent[pcommon.TraceID, *Request](maxRequests),
		lengths:  boundedmap.NewRecent[pcommon.TraceID, float64](maxRequests),
		stacks:   stackprofile.New(liveProfile),
		traces:   newTraceStore(),
	}
}

type operationKey struct{ service, name, kind string }

// String returns the key as the page has it.
func (k operationKey) String() string { return k.service + "\n" + k.name + "\n" + k.kind }

// operation is one operation of one service.
type operation struct {
	category, precision, direction, itemType, model string
	hostMemory                                      string   // of a copy
	throttle                                        string   // reasons for throttling
	buckets                                         []bucket // by index, each once
	last                                            int64    // newest end, unix s
	trace                                           string   // of the slowest span
	slowest                                         float64
	parent                                          operationKey // the operation that contains it most often
}

// between sums the buckets from the first to the last index.
func (o *operation) between(first, last int64) (sum spansums.Sums) {
	for i := range o.buckets {
		if b := &o.buckets[i]; b.index >= first && b.index <= last {
			sum.Add(&b.Sums, 1)
		}
	}
	return sum
}

// bucket is what happened in bucketSeconds.
type bucket struct {
	index int64 // unix s / bucketSeconds
	spansums.Sums
}

// device is one device: what spans covered of it, and its own metrics.
type device struct {
	id, name, model string
	host            string // of its metrics, otherwise of its first spans
	covered         [keptSeconds]second
	samples         [keptSeconds]sample
	recent          ring[recent]
	counters        map[string]counter // of throttling, errors and processes
	services        []string           // services that used it
	memory          float64            // its size in bytes; 0: unknown
	first           int64              // second of the first span; 0: none came yet
	sampled         int64              // second of the first metric; 0: none came yet
	before, newest  pcommon.Timestamp  // of the newest metrics of two different seconds
	metered         int64              // newest second whose power is from the energy counter; 0: none
}

// counter is the newest reading of a counter.
type counter struct {
	time  pcommon.Timestamp
	value float64
}

// recent is a span of a device.
type recent struct {
	start, end uint64 // unix ns
	name       string
	trace      pcommon.TraceID
}

// second is the part of one second that spans covered, by 64ths.
type second struct {
	at   int64
	mask uint64
}

// Measures of a device, by index. Power is the rise of the energy counter per second since the
// previous sample, or a reading if the device has no such counter; throttling is the throttled
// share of that time, of the reason that had most.
const (
	busy = iota
	power
	temperature
	memory
	throttled
	measures
	energy // stored as power
)

type sample struct {
	at    int64
	value [measures]float64
	known [measures]bool
}

// ring keeps the newest entries of a list.
type ring[T any] struct {
	list []T
	next int
}

func (r *ring[T]) put(v T, limit int) {
	if len(r.list) < limit {
		r.list = append(r.list, v)
		return
	}
	r.list[r.next] = v
	r.next = (r.next + 1) % limit
}

// clip bounds a text from a file or a resource.
func clip(s string) string { return spanfacts.Clip(s) }

// each calls f from the oldest to the newest.
func (r *ring[T]) each(f func(*T)) {
	for i := range r.list {
		f(&r.list[(r.next+i)%len(r.list)])
	}
}

func (m *Model) operation(k operationKey, at int64) *operation {
	o := m.operations[k]
	if o == nil {
		if len(m.operations) >= maxOperations {
			m.dropOldestOperations()
		}
		o = &operation{}
		m.operations[k] = o
	}
	o.last = max(o.last, at)
	return o
}

// dropOldestOperations removes a tenth, so that a flood of names costs a sort now and then instead
// of one for each.
func (m *Model) dropOldestOperations() {
	type aged struct {
		k    operationKey
		last int64
	}
	list := make([]aged, 0, len(m.operations))
	for k, o := range m.operations {
		list = append(list, aged{k, o.last})
	}
	slices.SortFunc(list, func(a, b aged) int { return cmp.Compare(a.last, b.last) })
	for _, a := range list[:maxOperations/10] {
		m.buckets -= len(m.operations[a.k].buckets)
		delete(m.operations, a.k)
		m.health.OperationsDropped++
	}
}

// bucketAt returns the operation's bucket of an index; nil if that is before everything kept.
func (m *Model) bucketAt(o *operation, index int64) *bucket {
	n := len(o.buckets)
	for n > 0 && o.buckets[n-1].index > index {
		n--
	}
	switch {
	case n > 0 && o.buckets[n-1].index == index:
		return &o.buckets[n-1]
	case index < m.since, n < len(o.buckets) && index <= o.buckets[len(o.buckets)-1].index-keptSeconds/bucketSeconds:
		return nil
	}
	o.buckets = slices.Insert(o.buckets, n, bucket{index: index})
	m.buckets++
	m.trim(o, o.buckets[len(o.buckets)-1].index-keptSeconds/bucketSeconds+1)
	for m.buckets > maxBuckets {
		m.shorten()
	}
	// Trimming may have moved it.
	after := func(b bucket, index int64) int { return cmp.Compare(b.index, index) }
	if n, ok := slices.BinarySearchFunc(o.buckets, index, after); ok {
		return &o.buckets[n]
	}
	return nil
}

// trim removes what is before an index.
func (m *Model) trim(o *operation, index int64) {
	n := 0
	for n < len(o.buckets) && o.buckets[n].index < index {
		n++
	}
	o.buckets = slices.Delete(o.buckets, 0, n)
	m.buckets -= n
}

// shorten removes the oldest quarter of the operations' time: if many operations are always active,
// the history is shorter.
func (m *Model) shorten() {
	first, last := int64(math.MaxInt64), int64(math.MinInt64)
	for _, o := range m.operations {
		if n := len(o.buckets); n > 0 {
			first, last = min(first, o.buckets[0].index), max(last, o.buckets[n-1].index)
		}
	}
	m.since = first + max(1, (last-first)/4)
	for _, o := range m.operations {
		m.trim(o, m.since)
	}
	m.health.OperationsSince = m.since * bucketSeconds
}

func (m *Model) device(id *spanfacts.Identity, host string) *device {
	key, name := id.ID, id.Name
	if key == "" { // a name or number identifies it on its host
		if name == "" && id.Ordinal >= 0 {
			name = fmt.Sprint("device ", id.Ordinal)
		}
		if key = name; host != "" && name != "" {
			key += " on " + host
		}
	}
	if key == "" {
		return nil
	}
	d := m.deviceOf(key, name, id.Model)
	if d != nil && d.host == "" {
		d.host = host
	}
	return d
}

// title returns a device's name for people: with its host, if the devices are of several.
func (m *Model) title(d *device) string {
	name := cmp.Or(d.name, d.id)
	for _, other := range m.devices {
		if d.host != "" && other.host != "" && other.host != d.host {
			return name + " on " + d.host
		}
	}
	return name
}

func (m *Model) deviceOf(key, name, model string) *device {
	d := m.devices[key]
	if d == nil {
		if len(m.devices) >= maxDevices {
			m.health.DevicesDropped++
			return nil
		}
		d = &device{id: key, counters: map[string]counter{}}
		m.devices[key] = d
	}
	if name != "" {
		d.name = name
	}
	if model != "" {
		d.model = model
	}
	return d
}

// cover marks the time that a span covered in the device's last ten minutes, to a 64th of a second.
// Seconds beyond the latest are from a clock that was set back since.
func (d *device) cover(start, end uint64, latest int64) {
	const part = uint64(time.Second) / 64
	first, last := start/part, (end+part-1)/part
	if end <= start {
		return
	}
	if last-first > keptSeconds*64 {
		first = last - keptSeconds*64
	}
	for at := first; at < last; {
		s := &d.covered[int64(at/64)%keptSeconds]
		if s.at != int64(at/64) {
			if s.at > int64(at/64) && s.at <= latest {
				at = (at/64 + 1) * 64 // older than the strip
				continue
			}
			*s = second{at: int64(at / 64)}
		}
		n := min(last, (at/64+1)*64) - at
		s.mask |= (1<<n - 1) << (at % 64)
		if n == 64 {
			s.mask = ^uint64(0)
		}
		at += n
	}
	if at := int64(start / uint64(time.Second)); d.first == 0 || at < d.first {
		d.first = at
	}
}

// share returns the part of a second that is covered.
func (s *second) share(at int64) float64 {
	if s.at != at {
		return 0
	}
	return float64(bits.OnesCount64(s.mask)) / 64
}
