// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package processmeter measures what each process uses of each device: energy, time and memory. It
// combines the values of a source, the driver's answers about processes, and what this host knows
// of them.
package processmeter

import (
	"slices"
	"sync"
	"time"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/gpuquantity"
	"github.com/otelgpu/otelgpu/internal/processenergy"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/processes"
)

// Meter measures all devices. Its methods can be called from several goroutines.
type Meter struct {
	host      *processes.Host // nil: the host's processes are not visible
	perDevice int
	shares    devicesamples.ShareWriter // nil: none

	mu     sync.Mutex
	boards map[string]*board       // by hw.id
	parts  map[string]*part        // of boards and instances, by hw.id
	known  map[int64]*processFacts // by PID
	names  map[string]processes.Container
}

// New returns a meter that keeps up to perDevice processes of each physical GPU, and writes how
// they share it, unless shares is nil. host is nil if the processes of the host are not visible.
func New(host *processes.Host, perDevice int, shares devicesamples.ShareWriter) *Meter {
	return &Meter{
		host: host, perDevice: perDevice, shares: shares,
		boards: map[string]*board{}, parts: map[string]*part{}, known: map[int64]*processFacts{},
	}
}

// board is a physical GPU.
type board struct {
	desc     devicesamples.Device
	device   *processenergy.Device
	parts    []*part // itself, and its instances
	reported bool    // the driver reports the utilization of each process
	divided  int64   // when the utilization was last divided without such reports
	counter  bool    // there is an energy counter
	power    power   // the last reading
	joules   float64 // integral of the power
	used     map[processenergy.Key]*series
	through  int64 // of the last reading
	dropped  int64 // samples of processes beyond the limit, then
	listed   int64 // when its processes were
}

type power struct {
	t     int64
	watts float64
}

// part is a device on which processes are listed: a physical GPU or a MIG instance.
type part struct {
	desc     devicesamples.Device
	running  []running
	busy     float64 // integral of the utilization in seconds
	covered  float64 // seconds of it
	newest   int64
	recently float64 // utilization at newest
}

type running struct {
	key   processenergy.Key
	bytes int64
}

// processFacts are the facts of a process that do not change.
type processFacts struct {
	key   processenergy.Key
	facts processes.Facts
	given bool // by the source, not read from this host
	asUse *devicesamples.DeviceUse
	seen  int64
}

// series is what was emitted of a process.
type series struct {
	usage processenergy.Usage // at the last reading
	err   float64
	facts processes.Facts
	on    string // hw.id of the board or instance
	bytes int64
	gone  int64 // when it was missing in the list first; 0: it runs
}

// Adopt sets the devices. What is known of devices that continue is kept, also if they were absent
// between two readings only: their values must not fall.
func (m *Meter) Adopt(devices []devicesamples.Device) {
	m.mu.Lock()
	defer m.mu.Unlock()
	present := map[string]bool{}
	for _, b := range m.boards {
		b.parts = b.parts[:0]
	}
	for _, d := range devices {
		present[d.ID] = true
		p := m.parts[d.ID]
		if p == nil {
			p = &part{}
			m.parts[d.ID] = p
		}
		p.desc = d
		if d.Parent == "" && m.boards[d.ID] == nil {
			m.boards[d.ID] = &board{
				device: processenergy.NewDevice(d.Limits.Power, m.perDevice), used: map[processenergy.Key]*series{},
			}
			if m.shares != nil {
				m.boards[d.ID].device.Shared = m.writeShares(d.ID)
			}
		}
	}
	for _, d := range devices {
		id := d.ID
		if d.Parent != "" {
			id = d.Parent
		}
		if b := m.boards[id]; b != nil {
			b.parts = append(b.parts, m.parts[d.ID])
			if d.Parent == "" {
				b.desc = d
			}
		}
	}
	for id := range m.parts {
		if !present[id] {
			delete(m.parts, id)
		}
	}
}

// writeShares returns a function that writes the shares of a board's processes, and none for those
// that have a context and were idle.
func (m *Meter) writeShares(board string) func(from, to int64, shares []processenergy.Share) {
	return func(from, to int64, shares []processenergy.Share) {
		w := devicesamples.ShareWindow{From: from, To: to, Users: make([]devicesamples.DeviceShare, 0, len(shares))}
		known := make(map[processenergy.Key]bool, len(shares))
		add := func(s processenergy.Share) {
			if f := m.known[s.Process.PID]; f != nil && f.key == s.Process && !known[s.Process] {
				known[s.Process] = true
				w.Users = append(w.Users, devicesamples.DeviceShare{
					DeviceUse: f.use(m.names), Share: s.Share, Error: s.Error, Resident: s.Resident,
				})
			}
		}
		for _, s := range shares {
			add(s)
		}
		for _, p := range m.boards[board].parts {
			for _, r := range p.running {
				add(processenergy.Share{Process: r.key})
			}
		}
		m.shares.AddShares(board, w)
	}
}

// use returns how gpu_samples identifies the process.
func (f *processFacts) use(names map[string]processes.Container) *devicesamples.DeviceUse {
	name, ok := names[f.facts.ContainerID]
	if !ok {
		name = f.facts.Container
	}
	if f.asUse == nil || f.asUse.Pod != name.Pod {
		f.asUse = &devicesamples.DeviceUse{
			Namespace: name.Namespace, Pod: name.Pod, Container: name.Name, PodUID: f.facts.PodUID,
			ContainerID: f.facts.ContainerID, Job: f.facts.Job(), PID: f.key.PID, LocalPID: f.facts.LocalPID,
			Parents: f.facts.Parents,
		}
	}
	return f.asUse
}

// Uses returns the processes that have a context, without the names of their pods, which the
// kubelet lists.
func (m *Meter) Uses() []devicesamples.DeviceUse {
	m.mu.Lock()
	defer m.mu.Unlock()
	uses := []devicesamples.DeviceUse{}
	for id, p := range m.parts {
		for _, r := range p.running {
			if f := m.known[r.key.PID]; f != nil {
				u := *f.use(m.names)
				u.Device, u.Namespace, u.Pod, u.Container = id, "", "", ""
				uses = append(uses, u)
			}
		}
	}
	return uses
}

// Name sets the names of containers by ID.
func (m *Meter) Name(names map[string]processes.Container) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.names = names
}

// longestGap is the time between two readings beyond which nothing is known of it.
const longestGap = int64(10 * time.Second)

// Value adds a value of a device; quantities without use are ignored.
func (m *Meter) Value(id string, q gpuquantity.Quantity, t int64, v float64) {
	if q != gpuquantity.Energy && q != gpuquantity.Power && q != gpuquantity.Utilization {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch p, b := m.parts[id], m.boards[id]; {
	case p != nil && q == gpuquantity.Utilization:
		if gap := t - p.newest; p.newest > 0 && gap > 0 && gap < longestGap {
			p.busy += v * float64(gap) * 1e-9
			p.covered += float64(gap) * 1e-9
		}
		p.newest, p.recently = t, v
	case b == nil:
	case q == gpuquantity.Energy:
		b.counter = true
		b.device.AddEnergy(t, v)
	default:
		b.device.AddPower(v, b.contexts())
		if gap := t - b.power.t; b.power.t > 0 && gap > 0 && gap < longestGap && !b.counter {
			b.joules += (v + b.power.watts) / 2 * float64(gap) * 1e-9
			b.device.AddEnergy(t, b.joules)
		}
		b.power = power{t, v}
	}
}

// contexts reports whether any process has a context on the board.
func (b *board) contexts() bool {
	return slices.ContainsFunc(b.parts, func(p *part) bool { return len(p.running) > 0 })
}

// takeUtilization returns the mean utilization since the last call; negative if it is unknown.
func (p *part) takeUtilization() float64 {
	if p.covered <= 0 {
		return -1
	}
	mean := p.busy / p.covered
	p.busy, p.covered = 0, 0
	return mean
}

// Running sets the processes that have a context on the devices of boards whose processes were all
// listed at a time.
func (m *Meter) Running(t int64, list []gpudata.ProcessMemory, boards ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, id := range boards {
		if b := m.boards[id]; b != nil {
			b.listed = t
			for _, p := range b.parts {
				p.running = p.running[:0]
			}
		}
	}
	for _, x := range list {
		if p := m.parts[x.Device]; p != nil {
			p.running = append(p.running, running{m.process(x.PID, t, true, x.Facts).key, x.Bytes})
		}
	}
	for _, b := range m.boards {
		if len(b.parts) < 2 {
			continue
		}
		// A divided board lists the processes of its instances, too.
		for _, p := range b.parts {
			if p.desc.Parent == "" {
				p.running = p.running[:0]
			}
		}
	}
	for pid, k := range m.known {
		if t-k.seen > int64(time.Minute) {
			delete(m.known, pid)
		}
	}
}

// Unlisted reports whether the processes of a board have not been listed yet.
func (m *Meter) Unlisted() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, b := range m.boards {
		if b.listed == 0 {
			return true
		}
	}
	return false
}

// process returns the facts of a process: given ones, otherwise what this host knows.
// verify reads whether its number was reused.
func (m *Meter) process(pid, t int64, verify bool, given *processes.Facts) *processFacts {
	k := m.known[pid]
	if k != nil && verify && !k.given && given == nil {
		if start := m.host.Start(pid); start != 0 && start != k.key.Start {
			k = nil
		}
	}
	if k == nil || given != nil && !k.given {
		k = &processFacts{given: given != nil}
		if k.given {
			k.facts = *given
		} else {
			k.facts = m.host.Of(pid)
		}
		k.key = processenergy.Key{PID: pid, Start: k.facts.Start}
		m.known[pid] = k
	}
	k.seen = t
	return k
}

// Since returns the time after which the driver must report the use of a board, as for
// gpudata.ProcessSource.
func (m *Meter) Since(id string) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if b := m.boards[id]; b != nil {
		return b.device.Since()
	}
	return 0
}

// Use adds an answer of the driver about a board.
func (m *Meter) Use(u *gpudata.ProcessUse) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b := m.boards[u.Device]
	if b == nil || b.listed == 0 {
		return // without the list it is unknown whether a process has a context
	}
	if b.reported = u.Reported; !b.reported {
		return
	}
	a := processenergy.Answer{Time: u.Time, Contexts: b.contexts(), Utilization: -1}
	if p := m.parts[u.Device]; p != nil {
		a.Utilization = p.takeUtilization()
		if a.Utilization < 0 && p.newest > 0 && u.Time-p.newest < longestGap {
			a.Utilization = p.recently
		}
	}
	for _, x := range u.Percent {
		if s, ok := processenergy.OfPercent(m.process(x.PID, u.Time, false, nil).key, x.Time, x.Percent); ok {
			a.Samples = append(a.Samples, s)
		}
	}
	b.device.Add(a)
}

// divideEvery is the interval at which boards are divided of which the driver does not report the
// utilization of each process.
const divideEvery = int64(time.Second)

// Divide divides these boards by the utilization of the device or of its instances, among the
// processes that have a context there.
func (m *Meter) Divide(now int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, b := range m.boards {
		if b.reported || b.listed == 0 || now-b.divided < divideEvery && now >= b.divided {
			continue
		}
		b.divided = now
		a := processenergy.Answer{Time: now, Contexts: b.contexts(), Utilization: -1, Whole: true}
		for _, p := range b.parts {
			mean := p.takeUtilization()
			keys := make([]processenergy.Key, 0, len(p.running))
			for _, r := range p.running {
				// The server of MPS has a context for its clients, and runs no kernel.
				if k := m.known[r.key.PID]; k == nil || k.facts.Executable != "nvidia-cuda-mps-server" {
					keys = append(keys, r.key)
				}
			}
			if p.desc.Parent == "" {
				a.Utilization = mean
			}
			if len(keys) > 0 && mean > 0 {
				a.Samples = processenergy.OfInstance(a.Samples, keys, now, mean, p.size(&b.desc))
			}
		}
		b.device.Add(a)
	}
}

// size returns the share of an instance in its board: of multiprocessors, otherwise of memory.
func (p *part) size(board *devicesamples.Device) float64 {
	switch d := &p.desc; {
	case d.Parent == "":
		return 1
	case d.SMs > 0 && d.BoardSMs > 0:
		return min(float64(d.SMs)/float64(d.BoardSMs), 1)
	case d.Slices > 0 && d.AllSlices > 0:
		return min(float64(d.Slices)/float64(d.AllSlices), 1)
	case d.Limits.Memory > 0 && board.Limits.Memory > 0:
		return min(float64(d.Limits.Memory)/float64(board.Limits.Memory), 1)
	}
	return 1
}
