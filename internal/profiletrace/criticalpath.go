// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package profiletrace

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	"github.com/otelgpu/otelgpu/internal/profiletrace/criticalpath"
)

// maxPaths bounds the processes whose critical paths are found.
const maxPaths = 16

// followPaths starts recording what critical paths consist of, of the processes with most calls.
func (s *sweep) followPaths() {
	if !s.p.opts.Paths || s.ordinals == 0 {
		return
	}
	calls := func(pid int64) processCount {
		if c := s.p.processes[pid]; c != nil {
			return *c
		}
		return processCount{}
	}
	list := slices.SortedFunc(maps.Keys(s.processes), func(a, b int64) int {
		return cmp.Or(cmp.Compare(calls(b).calls, calls(a).calls), cmp.Compare(a, b))
	})
	for _, pid := range list[:min(maxPaths, len(list))] {
		s.processes[pid].path = criticalpath.NewRecorder(calls(pid).steps > 0, s.p.first)
	}
	s.waits = s.p.newStreamWaits()
	for i, t := range s.p.trackList {
		th := &s.threads[i]
		if !t.device && th.process.path != nil && th != s.profiler {
			th.process.path.Thread(uint32(i), th.log.Remember())
		}
	}
}

// path records an activity of the process.
func (s *sweep) path(proc *process, a *activity, stream uint32) {
	x := criticalpath.Activity{
		Start: a.start, End: a.end, Stream: stream, Device: uint32(a.device), Name: a.name,
		Launched: a.hasLaunch && a.launch.process == proc, Called: a.launch.start, Returned: a.launch.end,
		Thread: a.launch.thread,
	}
	switch {
	case a.comm:
		x.Kind = criticalpath.Communication
		name := a.detail.Collective
		if name == "" {
			name = shortNameOf(s.p.Names.Name(a.name))
		}
		x.Name = proc.path.Label(name)
	case a.kind == KindKernel:
		x.Kind = criticalpath.Kernel
	case a.kind == KindMemset:
		x.Kind, x.Name = criticalpath.Copy, proc.path.Label("memset")
	default:
		x.Kind, x.Name = criticalpath.Copy, proc.path.Label(cmp.Or(a.detail.Direction, "copy"))
		toHost := a.detail.Direction == "host_to_device" || a.detail.Direction == "device_to_host"
		x.Blocks = toHost && a.detail.HostMemory != "pinned"
	}
	proc.path.Add(x)
}

// criticalPaths returns the critical paths by process; kernel returns the short name of a kernel.
func (s *sweep) criticalPaths(kernel func(uint32) string) (list []*criticalpath.Path) {
	n := &criticalpath.Naming{
		Range: s.p.Names.text, Kernel: kernel, Thread: s.threadName, Stream: s.streamName, Base: s.p.Meta.Base,
	}
	for _, pid := range slices.Sorted(maps.Keys(s.processes)) {
		if r := s.processes[pid].path; r != nil {
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

func (s *sweep) threadName(track uint32) string {
	return "thread " + strconv.FormatInt(s.p.trackList[track].inner, 10)
}

func (s *sweep) streamName(track uint32) string {
	t := s.p.trackList[track]
	name := "stream " + strconv.FormatInt(t.inner, 10)
	if s.ordinals > 1 {
		return "GPU " + strconv.FormatInt(t.outer, 10) + " " + name
	}
	return name
}
