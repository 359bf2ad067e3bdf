// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"time"
)

// Layout is a job of several ranks in process groups, with one late rank.
type Layout struct {
	Name  string
	Ranks int
	Late  int
	// Offset and Drift change the clocks of hosts: by up to an hour, and by up to 40 ppm.
	Offset, Drift bool
	groups        func(n int) []stage
}

// stage is what ranks do together in a step: they compute and then run a collective in each group.
type stage struct {
	groups    []group
	operation string
	stream    int
}

// Waits is the true waiting time in a layout, by rank.
type Waits struct {
	Files  []string
	Waited []time.Duration // for the last rank of each collective
	Held   []time.Duration // that others together waited for it
}

// Layouts returns jobs of 2 to 64 ranks.
func Layouts() (list []Layout) {
	for _, kind := range []struct {
		name   string
		least  int
		groups func(n int) []stage
	}{
		{"data parallel", 2, func(n int) []stage {
			return []stage{{mesh(n, "default_pg", "0", n, 1), "allreduce", talking}}
		}},
		{"tensor and fully sharded data parallel", 4, func(n int) []stage {
			tp := min(4, n/2)
			return []stage{
				{mesh(n, "mesh_tp", "", tp, 1), "allreduce", talking},
				{mesh(n, "mesh_fsdp", "", n/tp, tp), "_allgather_base", talking + 1},
			}
		}},
		{"tensor, pipeline and data parallel", 8, func(n int) []stage {
			return []stage{
				{mesh(n, "undefined", "", 2, 1), "allreduce", talking},
				{mesh(n, "undefined", "", 2, n/2), "send", talking + 1},
				{mesh(n, "undefined", "", n/4, 2), "_reduce_scatter_base", talking + 2},
			}
		}},
		{"expert parallel", 4, func(n int) []stage {
			return []stage{
				{mesh(n, "mesh_ep", "", n/2, 1), "all_to_allv", talking},
				{mesh(n, "default_pg", "0", n, 1), "allreduce", talking + 1},
			}
		}},
		// As split_group names them: each rank counts only the groups that it created.
		{"groups of one name", 4, func(n int) []stage {
			return []stage{
				{mesh(n, "undefined", "1", n/2, 1), "_allgather_base", talking},
				{mesh(n, "undefined", "2", 2, n/2), "_reduce_scatter_base", talking + 1},
			}
		}},
	} {
		for n := kind.least; n <= 64; n *= 2 {
			for _, clocks := range []string{"", ", clocks apart", ", clocks drift"} {
				list = append(list, Layout{
					Name: fmt.Sprintf("%s, %d ranks%s", kind.name, n, clocks), Ranks: n, Late: (3*n/4 + 1) % n,
					Offset: clocks != "", Drift: clocks == ", clocks drift", groups: kind.groups,
				})
			}
		}
	}
	return list
}

// mesh returns the groups of one dimension of a mesh: size ranks each, a stride apart. Without a
// name each has a unique one, as new_group gives it.
func mesh(n int, description, name string, size, stride int) (list []group) {
	for first := range n {
		if first/stride%size != 0 {
			continue
		}
		g := group{name: name, description: description}
		for i := range size {
			g.members = append(g.members, first+i*stride)
		}
		if name == "" {
			g.name = fmt.Sprint(100*stride + len(list) + 1)
		}
		list = append(list, g)
	}
	return list
}

// Run simulates the job.
func (l *Layout) Run() Waits {
	const steps = 12
	s := newSim(Compiled, l.Ranks, 11)
	for i, r := range s.ranks {
		if host := int64(i / 8); l.Offset && l.Ranks > 8 {
			r.offset = host * 3_600_000 * ms / 8
			if l.Drift {
				r.drift = float64(host%5-2) * 20e-6
			}
		} else if l.Offset {
			r.offset = int64(i) * 5 * ms
			if l.Drift {
				r.drift = float64(i%3-1) * 40e-6
			}
		}
	}
	stages := l.groups(l.Ranks)
	s.steps(steps, func(step int) {
		for i, st := range stages {
			s.each(func(r *rank) {
				r.layers(2)
				if i == 0 && r.number == l.Late && step%4 != 3 {
					r.matmul(2048, 12288, 0.4) // a rank with more of work
					r.layers(1)
				}
			})
			for _, g := range st.groups {
				s.collective(g, st.operation, 4_000_000, 150*us, st.stream)
				s.join(g.members, st.stream)
			}
		}
	})
	var w Waits
	for _, r := range s.ranks {
		w.Files = append(w.Files, r.file(l.Ranks))
		w.Waited, w.Held = append(w.Waited, time.Duration(r.waited)), append(w.Held, time.Duration(r.held))
	}
	return w
}
