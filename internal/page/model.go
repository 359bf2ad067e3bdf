// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"cmp"
	"math/bits"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/otelgpu/otelgpu/internal/spanfacts"
)

// Limits of a Model: what is beyond leaves oldest first, and is counted.
const (
	bucketLength  = 10 * time.Second
	bucketCount   = 60 // of operations: ten minutes
	maxOperations = 10_000
	maxDevices    = 64
	maxSteps      = 4_000
	maxRequests   = 4_000
	maxRecent     = 256 // newest spans of a device
	stripSeconds  = 600 // of a device's strip
)

// Model is recent GPU work. Its methods may be called from any goroutine.
type Model struct {
	mu         sync.Mutex
	now        func() time.Time
	operations map[operationKey]*operation
	devices    map[string]*device
	roofs      map[string]*Roof // by model of the device
	steps      ring[Step]
	requests   map[pcommon.TraceID]*Request
	order      []pcommon.TraceID // of requests, oldest first
	health     Health
	generation uint64
	fixed      bool // a report: nothing leaves by time
}

// New makes an empty model that follows the clock.
func New() *Model {
	return &Model{now: time.Now, operations: map[operationKey]*operation{}, devices: map[string]*device{}, roofs: map[string]*Roof{}, requests: map[pcommon.TraceID]*Request{}}
}

// NewFixed makes an empty model for a report: everything that is put into it stays, however old.
func NewFixed() *Model {
	m := New()
	m.fixed = true
	return m
}

type operationKey struct{ service, name, kind string }

// operation is one operation of one service.
type operation struct {
	category, precision, direction, itemType, model string
	buckets                                         [bucketCount]bucket
	total                                           bucket // of a report
	last                                            int64  // newest end, unix s
	trace                                           string // of the slowest span
	slowest                                         float64
}

// bucket is what happened in ten seconds. Sums are of spans that state the value; the time beside each is of the same spans.
type bucket struct {
	index                int64 // unix s / 10
	count                int64
	time, energy, items  float64
	flops, flopTime      float64
	bytes, byteTime      float64
	both, bothFlops      float64 // bytes and FLOPs of spans that state both: for the intensity
	use, useTime         float64 // roofline utilisation, weighted by time
	bounds               [4]float64
	coverage, coverCount float64
}

func (b *bucket) add(o *bucket) {
	b.count += o.count
	b.time += o.time
	b.energy += o.energy
	b.items += o.items
	b.flops += o.flops
	b.flopTime += o.flopTime
	b.bytes += o.bytes
	b.byteTime += o.byteTime
	b.both += o.both
	b.bothFlops += o.bothFlops
	b.use += o.use
	b.useTime += o.useTime
	for i := range b.bounds {
		b.bounds[i] += o.bounds[i]
	}
	b.coverage += o.coverage
	b.coverCount += o.coverCount
}

var boundNames = [4]string{"compute", "memory", "launch", "latency"}

// device is one device: what the spans covered of it, and what it said of itself.
type device struct {
	id, name, model string
	covered         [stripSeconds]second
	samples         [stripSeconds]sample
	recent          ring[Recent]
	counters        map[string]float64 // throttle times, by reason
	last            int64
}

// second is what spans covered of one second, by 64ths.
type second struct {
	at   int64
	mask uint64
}

type sample struct {
	at                           int64
	busy, power, temperature     float64
	hasBusy, hasPower, throttled bool
	hasTemperature               bool
}

// ring keeps the newest of a list.
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

// dropOldestOperations makes room for a tenth, so that a flood of names costs a sort now and then and not for each.
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
		delete(m.operations, a.k)
		m.health.OperationsDropped++
	}
}

func (m *Model) device(id *spanfacts.Identity) *device {
	key := id.ID
	if key == "" {
		key = id.Name
	}
	if key == "" && id.Ordinal >= 0 {
		key = "device " + itoa(id.Ordinal)
	}
	if key == "" {
		return nil
	}
	return m.deviceOf(key, id.Name, id.Model)
}

func (m *Model) deviceOf(key, name, model string) *device {
	d := m.devices[key]
	if d == nil {
		if len(m.devices) >= maxDevices {
			m.health.DevicesDropped++
			return nil
		}
		d = &device{id: key}
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

// cover marks what a span covered of the device's last ten minutes, to a 64th of a second.
func (d *device) cover(start, end uint64) {
	const part = uint64(time.Second) / 64
	first, last := start/part, (end+part-1)/part
	if end <= start {
		return
	}
	if last-first > stripSeconds*64 {
		first = last - stripSeconds*64
	}
	for at := first; at < last; {
		s := &d.covered[int64(at/64)%stripSeconds]
		if s.at != int64(at/64) {
			if s.at > int64(at/64) {
				at = (at/64 + 1) * 64 // older than what the strip holds
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
	d.last = max(d.last, int64(end/uint64(time.Second)))
}

func (s *second) share() float64 { return float64(bits.OnesCount64(s.mask)) / 64 }
