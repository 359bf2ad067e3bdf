// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package link

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	"github.com/otelgpu/otelgpu/internal/profiletrace/criticalpath"
	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
	"github.com/otelgpu/otelgpu/internal/profiletrace/vocabulary"
)

// maxPaths bounds the processes whose critical paths are found.
const maxPaths = 16

// followPaths starts recording what critical paths consist of, of the processes with most calls.
func (s *Sweep) followPaths() {
	if !s.in.Paths || s.ordinals == 0 {
		return
	}
	calls := func(pid int64) event.ProcessCount {
		if c := s.in.Processes()[pid]; c != nil {
			return *c
		}
		return event.ProcessCount{}
	}
	list := slices.SortedFunc(maps.Keys(s.Processes), func(a, b int64) int {
		return cmp.Or(cmp.Compare(calls(b).Calls, calls(a).Calls), cmp.Compare(a, b))
	})
	for _, pid := range list[:min(maxPaths, len(list))] {
		s.Processes[pid].path = criticalpath.NewRecorder(calls(pid).Steps > 0, s.first)
	}
	s.waits = s.newStreamWaits()
	for i, t := range s.tracks {
		th := &s.threads[i]
		if !t.Device && th.process.path != nil && th != s.profiler {
			th.process.path.Thread(uint32(i), th.log.Remember())
		}
	}
}

// path records an activity of the process.
func (s *Sweep) path(proc *Process, a *Activity, stream uint32) {
	x := criticalpath.Activity{
		Start: a.Start, End: a.End, Stream: stream, Device: uint32(a.Device), Name: a.Name,
		Launched: a.HasLaunch && a.Launch.Process == proc, Called: a.Launch.Start, Returned: a.Launch.End,
		Thread: a.Launch.thread,
	}
	switch {
	case a.Communicates:
		x.Kind = criticalpath.Communication
		name := a.Detail.Collective
		if name == "" {
			name = vocabulary.ShortName(s.in.Names.Name(a.Name))
		}
		x.Name = proc.path.Label(name)
	case a.Kind == event.KindKernel:
		x.Kind = criticalpath.Kernel
	case a.Kind == event.KindMemset:
		x.Kind, x.Name = criticalpath.Copy, proc.path.Label("memset")
	default:
		x.Kind, x.Name = criticalpath.Copy, proc.path.Label(cmp.Or(a.Detail.Direction, "copy"))
		toHost := a.Detail.Direction == "host_to_device" || a.Detail.Direction == "device_to_host"
		x.Blocks = toHost && a.Detail.HostMemory != "pinned"
	}
	proc.path.Add(x)
}

// CriticalPaths returns the critical paths by process.
func (s *Sweep) CriticalPaths() (list []*criticalpath.Path) {
	n := &criticalpath.Naming{
		Range: s.in.Names.Text, Kernel: s.in.ShortName, Thread: s.threadName, Stream: s.streamName, Base: s.in.Meta.Base,
	}
	for _, pid := range slices.Sorted(maps.Keys(s.Processes)) {
		if r := s.Processes[pid].path; r != nil {
			if p := r.Path(n); p != nil {
				p.Process = pid
				list = append(list, p)
			}
		}
	}
	if len(list) == 1 {
		list[0].Process = 0 // it needs no name
	}
	return list
}

func (s *Sweep) threadName(track uint32) string {
	return "thread " + strconv.FormatInt(s.tracks[track].Inner, 10)
}

func (s *Sweep) streamName(track uint32) string {
	t := s.tracks[track]
	name := "stream " + strconv.FormatInt(t.Inner, 10)
	if s.ordinals > 1 {
		return vocabulary.DeviceName(t.Outer) + " " + name
	}
	return name
}
