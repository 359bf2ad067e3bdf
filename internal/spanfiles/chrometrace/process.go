// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chrometrace

import (
	"cmp"
	"strconv"
)

// Bounds of one file: no viewer shows more, and short-lived services (one instance per request)
// must not fill the memory. Further ones share one process, or one track of their process.
const (
	maxProcesses = 1 << 14 // 1.1 kB each
	maxTracks    = 1 << 16 // 250 B each
)

var (
	furtherProcesses = Process{Service: "further services"}
	furtherTracks    = Track{Kind: Host, ID: -1, Name: "further tracks"}
)

type process struct {
	pid    int64
	label  string
	sort   int64
	tracks map[Track]*track
	order  []*track
	tids   map[int64]bool
	free   int64 // below it, from 1 on, all tids are taken
}

type track struct {
	Track
	lanes []*lane
	// of each lane, contiguous in memory, because many are read if many slices overlap
	latest []inserted
}

func (w *Writer) process(k Process) *process {
	if w.latest != nil && w.latestKey == k { // spans arrive by resource: comparing costs a third of a lookup
		return w.latest
	}
	p, ok := w.procs[k]
	if !ok {
		p = w.addProcess(k)
	}
	w.latest, w.latestKey = p, k
	return p
}

func (w *Writer) addProcess(k Process) *process {
	if len(w.procs) >= maxProcesses && k != furtherProcesses {
		return w.process(furtherProcesses)
	}
	p := w.newProcess(k.PID)
	p.label, p.sort = k.label(), int64(len(w.order))
	if k.HasRank {
		p.sort = k.Rank
	}
	w.procs[k] = p
	return p
}

func (w *Writer) newProcess(pid int64) *process {
	if pid <= 0 || pid > 1<<32-1 || w.pids[pid] {
		pid = nextFree(w.pids, &w.freePID)
	}
	w.pids[pid] = true
	// tid = pid is "main thread" to viewers
	p := &process{pid: pid, tracks: map[Track]*track{}, tids: map[int64]bool{pid: true}}
	w.order = append(w.order, p)
	return p
}

func (k Process) label() string {
	s := cmp.Or(k.Service, "unknown service")
	if k.HasRank {
		s += " rank " + strconv.FormatInt(k.Rank, 10)
	}
	if k.Host != "" {
		s += " on " + k.Host
	}
	return s
}

func (w *Writer) track(p *process, k Track) *track {
	if t, ok := p.tracks[k]; ok {
		return t
	}
	if w.tracks >= maxTracks && k != furtherTracks {
		return w.track(p, furtherTracks)
	}
	w.tracks++
	t := &track{Track: k}
	p.tracks[k] = t
	p.order = append(p.order, t)
	return t
}

// tid returns the thread's own number for the first row of a host thread, and the next free small
// number otherwise.
func (p *process) tid(t Track, row int) int64 {
	tid := t.ID
	main := t.Kind == Host && row == 0 && tid == p.pid
	if t.Kind != Host || row > 0 || tid <= 0 || tid > 1<<32-1 || p.tids[tid] && !main {
		tid = nextFree(p.tids, &p.free)
	}
	p.tids[tid] = true
	return tid
}

// nextFree returns the smallest free number from 1 on. It continues where it stopped, because
// numbers are never freed: files of 100,000 tracks would otherwise take minutes.
func nextFree(taken map[int64]bool, from *int64) int64 {
	*from = max(*from, 1)
	for taken[*from] {
		*from++
	}
	return *from
}

func (t Track) label() string {
	switch t.Kind {
	case Profile:
		return "profile"
	case Steps:
		if t.Name == "" {
			return "steps"
		}
		return "steps of " + t.Name
	case DeviceSteps:
		return "GPU " + strconv.FormatInt(t.Device, 10) + " " + Track{Kind: Steps, Name: t.Name}.label()
	case Stream:
		s := "GPU " + strconv.FormatInt(t.Device, 10)
		if t.ID >= 0 {
			s += " stream " + strconv.FormatInt(t.ID, 10)
		}
		if t.Name != "" {
			s += " " + t.Name
		}
		return s
	}
	switch {
	case t.Name != "":
		return t.Name
	case t.ID >= 0:
		return "thread " + strconv.FormatInt(t.ID, 10)
	}
	return "host"
}
