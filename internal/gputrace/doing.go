// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gputrace

import (
	"math"
	"slices"
	"strings"

	"github.com/otelgpu/otelgpu/internal/gputrace/verdict"
)

// nameFlag is what the name of a host range says, found once per name.
type nameFlag struct {
	found  bool
	phase  string
	opaque bool // a region that a compiler made
	class  verdict.Range
	kernel bool // a call that launches one kernel
}

func (s *sweep) flag(r *record) nameFlag {
	f := &s.flags[r.name]
	if !f.found {
		*f = flagOf(r.kind, s.p.Names.Name(r.name))
	}
	return *f
}

func flagOf(kind Kind, name string) nameFlag {
	f := nameFlag{found: true}
	switch kind {
	case KindRuntime:
		f.opaque, f.class = strings.Contains(name, "GraphLaunch"), callClass(name)
		f.kernel = strings.Contains(name, "LaunchKernel") || strings.Contains(name, "LaunchCooperativeKernel") || strings.Contains(name, "KernelLaunch")
		return f
	case KindStep:
		f.class = verdict.RangeStep
		return f
	case KindFrame:
		f.class = verdict.RangeFrame
		if strings.Contains(name, "torch/utils/data/dataloader.py") && strings.HasSuffix(name, "__next__") {
			f.class = verdict.RangeLoader
		}
		return f
	case KindOperator:
		f.class = verdict.RangeOperator
	default:
		f.class = verdict.RangeNamed
	}
	if kind == KindAnnotation || kind == KindOperator {
		f.phase, f.opaque = phase(name), opaque(name)
	}
	switch {
	case f.phase == "data" || loader(name):
		f.class = verdict.RangeLoader
	case peer(name):
		f.class = verdict.RangePeer
	}
	return f
}

// callClass sorts calls of the CUDA, HIP and Level Zero runtimes and drivers by what they do to the host.
func callClass(name string) verdict.Range {
	async := strings.Contains(name, "Async")
	switch {
	case waits(name), !async && containsAny(name, []string{"cudaMemcpy", "cuMemcpy", "hipMemcpy"}):
		return verdict.CallWait
	case containsAny(name, []string{"Malloc", "Free", "MemAlloc", "HostAlloc", "HostRegister", "HostUnregister", "MemCreate", "MemMap", "MemUnmap", "MemSetAccess"}):
		return verdict.CallAllocate
	case launches(name):
		return verdict.CallLaunch
	}
	return verdict.CallOther
}

// loader reports whether a range stands for waiting for data, by the names that frameworks and programs give it.
func loader(name string) bool {
	if strings.HasPrefix(name, "enumerate(DataLoader)") {
		return true
	}
	w := strings.NewReplacer("_", "", "-", "", " ", "").Replace(strings.ToLower(name))
	return containsAny(w, []string{
		"dataloader", "loaddata", "dataload", "nextbatch", "getbatch", "fetchbatch", "loadbatch", "datawait", "waitdata", "inputpipeline", "datafetch", "fetchdata",
		"iterdatapipe",
	})
}

// peer reports whether a range stands for waiting for other ranks on the host.
func peer(name string) bool {
	return strings.HasPrefix(name, "gloo:") || strings.HasPrefix(name, "mpi:") || strings.HasPrefix(name, "MPI_") ||
		strings.Contains(name, "barrier") && !strings.Contains(name, "cuda")
}

// name takes the names of the range that the frame is.
func (f *frame) name(r *record) {
	switch r.kind {
	case KindOperator:
		f.op, f.named = r.name, r.name
	case KindAnnotation, KindModule, KindOther:
		f.named = r.name
	}
}

// needs is from when on what the host did may be asked for.
func (s *sweep) needs() int64 {
	if len(s.devices) < s.ordinals {
		return s.p.first
	}
	least := int64(math.MaxInt64)
	for _, d := range s.devices {
		least = min(least, d.verdicts.Needs(s.p.first))
	}
	return least
}

// previous is the end of the launch before, of the thread or of its process's main one.
func (t *thread) previous(s *sweep) int64 {
	last := t.last
	if p := t.process; p.hasMain {
		last = max(last, s.threads[p.main].last)
	}
	return last
}

// launched takes note of a call that put work on a device.
func (t *thread) launched(r *record) {
	t.last = r.key + r.duration
	if p := t.process; !p.hasMain {
		p.main, p.hasMain = r.track, true
	}
}

// around are the logs of the threads that a launch may have waited for: its own, its process's main one, the one that
// launched before, and ranges beside them.
func (s *sweep) around(proc *process, a *activity, before uint32, hasBefore bool) []*verdict.Log {
	s.threadsOf = s.threadsOf[:0]
	put := func(track uint32) {
		t := &s.threads[track]
		for ; t != nil; t = t.beside {
			if slices.Contains(s.threadsOf, &t.log) {
				return
			}
			s.threadsOf = append(s.threadsOf, &t.log)
		}
	}
	if a.hasLaunch {
		put(a.launch.thread)
	}
	if proc.hasMain {
		put(proc.main)
	}
	if hasBefore {
		put(before)
	}
	return s.threadsOf
}
