// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package flightrecorder

import (
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The job of these tests is simulated without the analysis: every rank runs a list of operations,
// and an operation ends when all its members have entered it.

// step is an operation of a simulated rank.
type step struct {
	group   GroupName
	members []int
	name    string // all_reduce, send, ...
	peer    int    // index in members, -1 for collectives
	size    int64
}

// sim is a simulated job of dp × pp × tp ranks.
type sim struct {
	programs [][]step
	entered  []int // how many steps each rank entered
	finished []int
	blocked  map[int]int // rank that never enters its step of this index
	ahead    int         // how many steps the host records beyond the one in which its device waits
}

// A member that never arrives.
const nobody = -1

func newSim(r *rand.Rand, steps int) *sim {
	tp, pp, dp := 1+r.IntN(4), 1+r.IntN(3), 1+r.IntN(3)
	for tp*pp*dp < 3 {
		dp++
	}
	world := tp * pp * dp
	s := &sim{programs: make([][]step, world), entered: make([]int, world), finished: make([]int, world), blocked: map[int]int{}, ahead: r.IntN(3)}
	rankOf := func(d, p, t int) int { return (d*pp+p)*tp + t }
	all := make([]int, world)
	for i := range all {
		all[i] = i
	}
	for d := range dp {
		for p := range pp {
			for t := range tp {
				rank := rankOf(d, p, t)
				var tpGroup, dpGroup, ppGroup []int
				for i := range tp {
					tpGroup = append(tpGroup, rankOf(d, p, i))
				}
				for i := range dp {
					dpGroup = append(dpGroup, rankOf(i, p, t))
				}
				for i := range pp {
					ppGroup = append(ppGroup, rankOf(d, i, t))
				}
				add := func(kind string, members []int, name string, peer int) {
					if len(members) > 1 {
						g := GroupName{fmt.Sprintf("%s%v", kind, members[0]*100+len(members)), fmt.Sprintf("%s_GROUP_%d", kind, members[0])}
						if kind == "" {
							g = GroupName{"0", "default_pg"}
						}
						s.programs[rank] = append(s.programs[rank], step{g, members, name, peer, 1024})
					}
				}
				for range steps {
					if p > 0 {
						add("PP", ppGroup, "recv", p-1)
					}
					add("TP", tpGroup, "all_reduce", nobody)
					add("TP", tpGroup, "_all_gather_base", nobody)
					if p < pp-1 {
						add("PP", ppGroup, "send", p+1)
					}
					add("DP", dpGroup, "_reduce_scatter_base", nobody)
					add("", all, "all_reduce", nobody)
				}
			}
		}
	}
	return s
}

// occurrence returns the number of a step among the steps of a rank that must match: of the group,
// and of the pair for transfers.
func (s *sim) occurrence(rank, at int) (n int) {
	is := s.programs[rank][at]
	for _, o := range s.programs[rank][:at+1] {
		if o.group == is.group && (o.peer < 0) == (is.peer < 0) && (o.peer < 0 || o.peer == is.peer) {
			n++
		}
	}
	return n
}

// arrived reports whether a rank has entered the n-th step that matches another rank's step.
func (s *sim) arrived(rank, from, at, n int) bool {
	if rank == nobody {
		return false
	}
	is := s.programs[from][at]
	self := slices.Index(is.members, from)
	for i, o := range s.programs[rank][:s.entered[rank]] {
		if o.group == is.group && (is.peer < 0) == (o.peer < 0) && (o.peer < 0 || o.peer == self) && s.occurrence(rank, i) == n &&
			s.finished[rank] >= i { // the device is at it or beyond it
			return true
		}
	}
	return false
}

// run executes the job until nothing moves.
func (s *sim) run() {
	for moved := true; moved; {
		moved = false
		for rank, program := range s.programs {
			for s.entered[rank] < len(program) && s.entered[rank] <= s.finished[rank]+s.ahead {
				if at, ok := s.blocked[rank]; ok && s.entered[rank] >= at {
					break
				}
				s.entered[rank]++
				moved = true
			}
			at := s.finished[rank]
			if at >= s.entered[rank] {
				continue
			}
			is, n := program[at], s.occurrence(rank, at)
			need := is.members
			if is.peer >= 0 {
				need = []int{is.members[is.peer]}
			}
			if !slices.ContainsFunc(need, func(o int) bool { return o != rank && !s.arrived(o, rank, at, n) }) {
				s.finished[rank]++
				moved = true
			}
		}
	}
}

// dump returns what the rank's recorder has.
func (s *sim) dump(rank int, r *rand.Rand) *Dump {
	d := &Dump{Rank: rank, Version: "2.10", Groups: map[GroupName][]int{}}
	sequence := map[string]int64{}
	for i, is := range s.programs[rank] {
		d.Groups[is.group] = is.members
		if i >= s.entered[rank] {
			continue
		}
		kind := is.group.Name
		if is.peer >= 0 {
			kind += " p2p"
		}
		sequence[kind]++
		e := Entry{
			Group: is.group, Sequence: sequence[kind], Backend: "nccl", Operation: is.name, PointToPoint: is.peer >= 0, Peer: is.peer,
			InputSizes: [][]int64{{is.size}}, OutputSizes: [][]int64{{is.size}}, InputTypes: []string{"Float"}, State: Scheduled,
			Created: time.Unix(1_790_000_000, int64(i)*1e7+int64(r.IntN(1e6))).UTC(),
		}
		switch {
		case i < s.finished[rank]:
			e.State, e.Retired = Completed, true
		case i == s.finished[rank]:
			e.State = Started
		}
		d.Entries = append(d.Entries, e)
	}
	return d
}

func (s *sim) dumps(r *rand.Rand, without ...int) (all []*Dump) {
	for rank := range s.programs {
		if !slices.Contains(without, rank) {
			all = append(all, s.dump(rank, r))
		}
	}
	r.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
	return all
}

func TestAnalyzeNamesTheRankThatLeftASimulatedJob(t *testing.T) {
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := newSim(r, 2+r.IntN(4))
		culprit := r.IntN(len(s.programs))
		s.blocked[culprit] = 1 + r.IntN(len(s.programs[culprit])-1)
		s.run()
		got := Analyze(s.dumps(r))
		require.Len(t, got.Hangs, 1, "seed %d, rank %d", seed, culprit)
		require.Equal(t, []int{culprit}, got.Hangs[0].Ranks, "seed %d", seed)
		require.Equal(t, Missing, got.Hangs[0].Cause, "seed %d", seed)
	}
}

func TestAnalyzeNamesTheRankThatDied(t *testing.T) {
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 2))
		s := newSim(r, 2+r.IntN(4))
		culprit := r.IntN(len(s.programs))
		s.blocked[culprit] = 1 + r.IntN(len(s.programs[culprit])-1)
		s.run()
		got := Analyze(s.dumps(r, culprit))
		require.Len(t, got.Hangs, 1, "seed %d, rank %d", seed, culprit)
		require.Equal(t, []int{culprit}, got.Hangs[0].Ranks, "seed %d", seed)
		require.Equal(t, Dead, got.Hangs[0].Cause, "seed %d", seed)
		require.Equal(t, []int{culprit}, got.Without, "seed %d", seed)
	}
}

// A rank that waits like the others, but whose dump is truncated, is not blamed for the one that is
// missing. If it left no dump at all, it may have died as well, which is said with low certainty.
func TestARankWithoutAReadableDumpIsNotBlamedForAnotherOne(t *testing.T) {
	for seed := range uint64(120) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := newSim(r, 2+r.IntN(4))
		culprit := r.IntN(len(s.programs))
		s.blocked[culprit] = 1 + r.IntN(len(s.programs[culprit])-1)
		s.run()
		lost := (culprit + 1 + r.IntN(len(s.programs)-1)) % len(s.programs)
		dumps := s.dumps(r, lost)
		got := Analyze(dumps, &UnreadableError{Path: fmt.Sprintf("/dumps/rank_%d", lost), Err: io.ErrUnexpectedEOF})
		require.Len(t, got.Hangs, 1, "seed %d, ranks %d and %d", seed, culprit, lost)
		require.Equal(t, []int{culprit}, got.Hangs[0].Ranks, "seed %d", seed)
		for _, h := range Analyze(dumps).Hangs {
			if h.Cause == Dead {
				require.Equal(t, []int{lost}, h.Ranks, "seed %d", seed)
				require.False(t, h.Certain, "seed %d", seed)
			}
		}
	}
	// If nobody else is missing, the rank with the unreadable dump is the one that the others wait
	// for.
	s := newSim(rand.New(rand.NewPCG(1, 2)), 3)
	s.blocked[0] = 1
	s.run()
	got := Analyze(s.dumps(rand.New(rand.NewPCG(1, 2)), 0), &UnreadableError{Path: "/dumps/rank_0", Err: io.ErrUnexpectedEOF})
	require.Len(t, got.Hangs, 1)
	require.Contains(t, got.Hangs[0].Finding().Chain[0], "rank 0 left no readable dump and did not finish ")
}

func TestAnalyzeFindsNoHangInAJobThatEnds(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 3))
		s := newSim(r, 2+r.IntN(4))
		s.run()
		got := Analyze(s.dumps(r))
		require.Empty(t, got.Hangs, "seed %d", seed)
		require.Empty(t, got.NotJudged)
	}
}

func TestAnalyzeNamesTheRankThatCallsSomethingElse(t *testing.T) {
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 4))
		s := newSim(r, 2+r.IntN(4))
		culprit := r.IntN(len(s.programs))
		var at int
		for at = 1 + r.IntN(len(s.programs[culprit])-1); ; at = (at + 1) % len(s.programs[culprit]) {
			if is := s.programs[culprit][at]; is.peer < 0 && len(is.members) > 2 {
				break // in a pair there is no majority
			}
		}
		is, n := &s.programs[culprit][at], s.occurrence(culprit, at)
		group, members := is.group, is.members
		if r.IntN(2) == 0 {
			is.name = "broadcast"
		} else {
			is.size = 999
		}
		for _, rank := range members { // nobody finishes the operation
			for i, o := range s.programs[rank] {
				if o.group == group && o.peer < 0 && s.occurrence(rank, i) == n {
					s.programs[rank][i].members = append(slices.Clone(members), nobody)
				}
			}
		}
		s.run()
		for _, rank := range members {
			for i := range s.programs[rank] {
				if s.programs[rank][i].group == group {
					s.programs[rank][i].members = members
				}
			}
		}
		got := Analyze(s.dumps(r))
		require.Len(t, got.Hangs, 1, "seed %d, rank %d", seed, culprit)
		require.Equal(t, []int{culprit}, got.Hangs[0].Ranks, "seed %d", seed)
		require.Equal(t, Mismatched, got.Hangs[0].Cause, "seed %d", seed)
		require.Equal(t, group, got.Hangs[0].Group, "seed %d", seed)
	}
}
