// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package freshjobs

import (
	"fmt"
	"math"
	"strings"
)

// rankKind is a job of several ranks, whose files are compared.
type rankKind struct {
	name   string
	accept string // kinds of the job's first finding; "-" is none of late_rank, slow_group, expert_imbalance
	world  int
	steps  int
	groups int // ranks of a group; 0: all
	// cause delays a rank before its collective, in microseconds, and stretches transfers of a group.
	cause func(s *sim, rank, late, step int, x float64)
	slow  func(group int) float64
	// absent is a rank without a file, -1 for none, as an offset from the late one.
	absent int
}

var rankKinds = []rankKind{
	{name: "loader of one rank is slow", accept: "late_rank", world: 8, steps: 8, cause: func(s *sim, rank, late, _ int, x float64) {
		if rank == late {
			s.nextBatch("_MultiProcessingDataLoaderIter", x)
		}
	}},
	{name: "one rank writes logs", accept: "late_rank", world: 4, steps: 10, cause: func(s *sim, rank, late, _ int, x float64) {
		if rank == late {
			s.note("log_to_wandb", func() { s.busyHost(x) })
		}
	}},
	{name: "one device is slower", accept: "late_rank throttle", world: 8, steps: 8, cause: func(s *sim, rank, late, _ int, x float64) {
		if s.kernelScale = 1; rank == late {
			s.kernelScale = 1 + x/9000
		}
	}},
	{name: "one rank has longer sequences", accept: "late_rank", world: 4, steps: 10, cause: func(s *sim, rank, late, _ int, x float64) {
		if rank == late {
			for range int(math.Round(x / 350)) {
				s.linear(8192, 2048, 8192)
			}
		}
	}},
	{name: "a late rank while another has no file", accept: "late_rank", world: 8, steps: 8, absent: 2, cause: func(s *sim, rank, late, _ int, x float64) {
		if rank == late {
			s.nextBatch("_SingleProcessDataLoaderIter", x)
		}
	}},
	{name: "ranks that vary alike", accept: "-", world: 8, steps: 8, cause: func(s *sim, _, _, _ int, x float64) { s.busyHost(x * 0.1 * s.ExpFloat64()) }},
	{name: "balanced ranks", accept: "-", world: 4, steps: 6, cause: func(*sim, int, int, int, float64) {}},
	{name: "one slow link", accept: "slow_group", world: 8, steps: 8, groups: 2, cause: func(*sim, int, int, int, float64) {}, slow: func(g int) float64 {
		if g == 1 {
			return 6
		}
		return 1
	}},
	{name: "experts of one rank get more tokens", accept: "expert_imbalance late_rank", world: 8, steps: 8, cause: func(s *sim, rank, late, _ int, x float64) {
		if rank == late {
			for range int(math.Round(x / 350)) {
				s.note("experts", func() { s.linear(8192, 2048, 8192) })
			}
		}
	}},
}

// ranks simulates all ranks in step: a collective ends everywhere when the last rank has arrived
// and the transfer is done.
func (k rankKind) ranks(seed uint64, x float64) ([]*sim, int) {
	all := make([]*sim, k.world)
	members := k.groups
	if members == 0 {
		members = k.world
	}
	for r := range all {
		s := newSim(seed*1000+uint64(r), h100)
		s.rank, s.world, s.secondary, s.firstStep = r, k.world, 0, 10
		s.now = 5_000_000_000 + s.j(300, 0.3)
		s.start = s.now
		all[r] = s
	}
	late := int(seed*5+3) % k.world
	z := size{8, 1024, 2048, 16, 3}
	begins := make([]float64, k.world)
	for step := range k.steps {
		for r, s := range all {
			begins[r] = s.now
			k.cause(s, r, late, step, x)
			s.batch(1 << 16)
			s.forward(z)
			s.backward(z, nil)
		}
		name, kernel := "allreduce", ringReduce
		if k.accept == "expert_imbalance late_rank" {
			name, kernel = "all_to_allv", sendRecv
		}
		k.meet(all, members, name, kernel, 60_000_000, 24)
		if members < k.world {
			k.meet(all, k.world, "allreduce", ringReduce, 1024, 28)
		}
		for r, s := range all {
			s.after(7, 24)
			if members < k.world {
				s.after(7, 28)
			}
			s.adam(z.params())
			s.wait("cudaStreamSynchronize", 7)
			s.ext++
			s.put(record{kind: annotation, name: fmt.Sprintf("ProfilerStep#%d", 10+step), ts: begins[r], dur: s.now - begins[r], ext: s.ext})
		}
	}
	return all, late
}

// meet is a collective of all groups of a size.
func (k rankKind) meet(all []*sim, size int, name, kernel string, elements, stream int) {
	index := make([]int, len(all))
	for r, s := range all {
		group, factor := "", 1.0
		if size < k.world {
			var members []string
			for m := r / size * size; m < (r/size+1)*size; m++ {
				members = append(members, fmt.Sprint(m))
			}
			group, s.groupName = "["+strings.Join(members, ", ")+"]", fmt.Sprint(1+r/size)
			if k.slow != nil {
				factor = k.slow(r / size)
			}
		}
		index[r] = s.collective(name, kernel, elements, 300/factor, 0, stream, group)
		s.groupName = ""
	}
	for g := range k.world / size {
		arrived, transfer := 0.0, 0.0
		for r := g * size; r < (g+1)*size; r++ {
			c := all[r].records[index[r]]
			arrived, transfer = math.Max(arrived, c.ts), c.dur
		}
		for r := g * size; r < (g+1)*size; r++ {
			c := &all[r].records[index[r]]
			c.dur = arrived + transfer - c.ts + all[r].j(1, 0.4)
			all[r].queue[stream] = c.ts + c.dur
		}
	}
}
