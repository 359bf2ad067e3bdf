// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package devicesamples

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.uber.org/zap"

	"github.com/otelgpu/otelgpu/internal/plausibility"
)

// Store holds the rings of all devices; the extension gpu_samples is a Store with a life cycle. It
// implements Writer, Reader, UseReader, LoadWriter, LoadReader, ShareWriter and ShareReader. All
// methods are safe for concurrent use.
type Store struct {
	maxAge     int64
	maxBytes   int64
	maxDevices int
	now        func() time.Time

	mu      sync.RWMutex
	devices map[string]*device // by NormalizeID
	byPCI   map[hostPCI]*device
	bytes   int64
	rings   [64]int // number of rings with 2^(i-1) points
	swept   time.Time

	lease  atomic.Pointer[component.ID] // nil: not leased
	subs   sync.Map                     // of channels: readers that are woken
	Stats  Stats
	uses   useTable
	loads  loadTable
	shares shareTable
	divisionTable

	ledger plausibility.Ledger

	hostedMu sync.Mutex // of hosted; callers of onlyDevice may hold the rings' lock already
	hosted   map[*device]*Device
	written  atomic.Bool // the Writer has been requested
}

// SetLogger sets where the first contradiction of each source is logged. Call it before the first
// write.
func (st *Store) SetLogger(l *zap.Logger) { st.ledger.Logger = l }

// Requested reports whether FindWriter returned the store.
func (st *Store) Requested() bool { return st.written.Load() }

func (st *Store) markRequested() { st.written.Store(true) }

// Stats are what a Store has counted.
type Stats struct {
	Written                                      atomic.Int64 // samples
	Duplicate, OutOfOrder, Future, NotRegistered atomic.Int64 // rejected values
	LoadDropped                                  atomic.Int64 // rejected readings of running requests
	EvictedAge, EvictedBytes                     atomic.Int64 // values
	MissUnknown, MissOld, MissNew                atomic.Int64 // lookups
	UsesDropped                                  atomic.Int64
}

// Bytes returns the memory of all rings.
func (st *Store) Bytes() int64 {
	st.mu.RLock()
	defer st.mu.RUnlock()
	return st.bytes
}

// Devices returns the number of devices.
func (st *Store) Devices() int64 {
	st.mu.RLock()
	defer st.mu.RUnlock()
	return int64(len(st.devices))
}

type hostPCI struct{ host, bdf string }

const (
	// maxFuture is how far a sample may be ahead of the clock (the clocks of two hosts differ); one
	// wrong timestamp would otherwise make every later sample look old.
	maxFuture = time.Minute
	// clockSlack is how far the newest point may be ahead of the clock before a step back of the
	// clock is assumed.
	clockSlack = time.Second
	sweepEvery = time.Minute
)

// Config bounds the rings.
type Config struct {
	MaxAge     time.Duration // of a sample
	MaxBytes   int64         // of all rings
	MaxDevices int           // GPUs and MIG instances
}

// NewDefaultConfig returns the bounds of the extension without a configuration.
func NewDefaultConfig() Config {
	return Config{MaxAge: 5 * time.Minute, MaxBytes: 64 << 20, MaxDevices: 1024}
}

// NewStore returns empty rings with the limits of cfg. now is the clock that samples are compared
// with; nil means time.Now.
func NewStore(cfg Config, now func() time.Time) *Store {
	if now == nil {
		now = time.Now
	}
	st := &Store{
		maxAge:     int64(cfg.MaxAge),
		maxBytes:   cfg.MaxBytes,
		maxDevices: cfg.MaxDevices,
		now:        now,
		devices:    map[string]*device{},
		byPCI:      map[hostPCI]*device{},
		hosted:     map[*device]*Device{},
		loads:      loadTable{maxAge: max(int64(cfg.MaxAge), loadKept)},
		uses:       useTable{maxAge: int64(cfg.MaxAge), now: now, origins: map[UseOrigin]*useList{}},
	}
	st.loads.dropped, st.uses.dropped = &st.Stats.LoadDropped, &st.Stats.UsesDropped
	return st
}

// Register implements Writer.
func (st *Store) Register(owner component.ID, desc Device) (DeviceWriter, error) {
	refused := &deviceWriter{st: st, d: &device{}} // of a closed device
	if desc.ID == "" {
		return refused, errors.New("device without an ID (hw.id) cannot be registered")
	}
	desc = desc.Valid()
	st.mu.Lock()
	defer st.mu.Unlock()
	key := NormalizeID(desc.ID)
	d := st.devices[key]
	switch {
	case d == nil:
		st.sweep(st.now())
		if len(st.devices) >= st.maxDevices {
			return refused, fmt.Errorf("cannot register device %q: `max_devices` (%d) reached", desc.ID, st.maxDevices)
		}
		d = &device{}
		st.devices[key] = d
	case d.open && d.owner != owner:
		return refused, fmt.Errorf("device %q is already written by %q, refused for %q (give each device one source)",
			desc.ID, d.owner, owner)
	}
	st.unindex(d)
	d.owner, d.open = owner, true
	d.gen++
	d.setDescription(desc)
	st.index(d)
	st.hostedMu.Lock()
	st.hosted[d] = &desc
	st.hostedMu.Unlock()
	return &deviceWriter{st: st, d: d, gen: d.gen}, nil
}

func (st *Store) index(d *device) {
	if d.desc.PCIBDF == "" || d.desc.Parent != "" {
		return // an instance shares its board's address
	}
	for _, host := range [...]string{d.desc.HostID, d.desc.HostName} {
		if host != "" {
			st.byPCI[hostPCI{host, d.desc.PCIBDF}] = d
		}
	}
}

func (st *Store) unindex(d *device) {
	for _, host := range [...]string{d.desc.HostID, d.desc.HostName} {
		if k := (hostPCI{host, d.desc.PCIBDF}); st.byPCI[k] == d {
			delete(st.byPCI, k)
		}
	}
}

// sweep removes devices without a writer whose samples are too old; mu is held.
func (st *Store) sweep(now time.Time) {
	for key, d := range st.devices {
		if !d.open && now.UnixNano()-d.newest > st.maxAge {
			st.unindex(d)
			for _, s := range d.series {
				if s != nil {
					st.resize(s, 0)
				}
			}
			delete(st.devices, key)
			st.hostedMu.Lock()
			delete(st.hosted, d)
			st.hostedMu.Unlock()
		}
	}
}

// Lease implements Reader.
func (st *Store) Lease(owner component.ID) (func(), error) {
	for !st.lease.CompareAndSwap(nil, &owner) {
		if by := st.lease.Load(); by != nil {
			return nil, fmt.Errorf(
				"device samples are already joined by %q, refused for %q (energy would be dealt out twice; give the "+
					"second join its own gpu_samples extension)", *by, owner)
		}
	}
	return func() { st.lease.CompareAndSwap(&owner, nil) }, nil
}

// Acquire implements Reader.
func (st *Store) Acquire() View {
	st.mu.RLock()
	return View{st}
}

// Subscribe implements Reader.
func (st *Store) Subscribe() (<-chan struct{}, func()) {
	c := make(chan struct{}, 1)
	st.subs.Store(c, nil)
	return c, func() { st.subs.Delete(c) }
}

// wake wakes readers without ever waiting for them.
func (st *Store) wake() {
	for c := range st.subs.Range {
		select {
		case c.(chan struct{}) <- struct{}{}:
		default:
		}
	}
}

// Contradict implements Contradictions.
func (st *Store) Contradict(c plausibility.Contradiction) { st.ledger.Report(c) }

// ContradictionEntries implements Contradictions.
func (st *Store) ContradictionEntries() []plausibility.Entry { return st.ledger.Entries() }

// SetUses implements UseWriter.
func (st *Store) SetUses(origin UseOrigin, uses []DeviceUse, refresh time.Duration) {
	st.uses.set(origin, uses, refresh)
	st.wake()
}

// DevicesOf implements UseReader.
func (st *Store) DevicesOf(dst []string, w *Workload, start, end int64) ([]string, FoundBy) {
	dst, by := st.uses.find(dst, w, start, end)
	if by != FoundByNothing {
		return dst, by
	}
	if only := st.onlyDevice(w); only != "" && !st.uses.othersUse(only, w, start, end) {
		return append(dst, only), FoundByHost
	}
	return dst, FoundByNothing
}

// onlyDevice returns the only device of the workload's host; empty if it has none or several. A
// physical GPU divided into one MIG instance is that instance. If the workload names no host, its
// host is the only one that has devices. A lost device still counts until its samples are too old:
// a span may have run on it.
func (st *Store) onlyDevice(w *Workload) string {
	st.hostedMu.Lock()
	defer st.hostedMu.Unlock()
	var board, instance *Device
	for _, d := range st.hosted {
		if !onHost(w, d.HostID, d.HostName) {
			continue
		}
		kind := &board
		if d.Parent != "" {
			kind = &instance
		}
		if *kind != nil {
			return ""
		}
		*kind = d
	}
	switch {
	case instance == nil && board == nil:
		return ""
	case instance == nil:
		return board.ID
	case board == nil || NormalizeID(board.ID) == NormalizeID(instance.Parent):
		return instance.ID
	}
	return ""
}
