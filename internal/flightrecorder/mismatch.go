// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package flightrecorder

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// call is what all ranks of a collective must agree on.
type call struct {
	operation, types string
	inputs, outputs  int64 // elements
}

// callOf returns what a rank called. Sizes are compared by their number of elements, which is what
// the libraries transfer, and only if the operation needs equal ones.
func callOf(e *Entry) call {
	c := call{operation: e.Operation, types: strings.Join(distinct(e.InputTypes), ",")}
	if needsEqualSizes(e) {
		c.inputs, c.outputs = elements(e.InputSizes), elements(e.OutputSizes)
	}
	if strings.HasPrefix(e.Operation, "gather") || strings.HasPrefix(e.Operation, "scatter") {
		c.types = "" // only the root has the inputs or the outputs
	}
	return c
}

func distinct(types []string) []string { return slices.Compact(slices.Sorted(slices.Values(types))) }

// needsEqualSizes reports whether all ranks must pass equally many elements. All-to-alls divide
// freely, gathers and scatters differ at the root, and NCCL gathers and scatters lists of unequal
// tensors by broadcasts and reductions.
func needsEqualSizes(e *Entry) bool {
	switch {
	case strings.HasPrefix(e.Operation, "all_to_all"), strings.HasPrefix(e.Operation, "alltoall"),
		strings.HasPrefix(e.Operation, "gather"), strings.HasPrefix(e.Operation, "scatter"),
		strings.Contains(e.Operation, "coalesced"):
		return false
	case e.Operation == "all_gather" || e.Operation == "reduce_scatter":
		return e.Backend == "gloo"
	default:
		return true
	}
}

// differs reports whether the ranks that entered a collective called different things.
func (g *group) differs(sequence int64) bool {
	var first *call
	for _, entries := range g.byRank {
		if e := entries[sequence]; e != nil {
			c := callOf(e)
			if first != nil && *first != c {
				return true
			}
			first = &c
		}
	}
	return false
}

// mismatch returns the first collective until one at which ranks called different things, nil if
// there is none. The ranks that differ from the majority are the cause; of two equally large
// halves, the one whose call the group had not made before at the same distance.
func (g *group) mismatch(j *job, until int64) *wait {
	sequences := map[int64]bool{}
	for _, entries := range g.byRank {
		for sequence := range entries {
			if sequence <= until {
				sequences[sequence] = true
			}
		}
	}
	for _, sequence := range slices.Sorted(maps.Keys(sequences)) {
		if g.differs(sequence) {
			return g.blameMinority(j, sequence)
		}
	}
	return nil
}

func (g *group) blameMinority(j *job, sequence int64) *wait {
	by := map[call][]int{}
	for _, rank := range g.members {
		if e := g.byRank[rank][sequence]; e != nil {
			by[callOf(e)] = append(by[callOf(e)], rank)
		}
	}
	var usual call
	most, tied := 0, false
	for c, ranks := range by {
		switch {
		case len(ranks) > most:
			usual, most, tied = c, len(ranks), false
		case len(ranks) == most:
			tied = true
		}
	}
	w := &wait{group: g.name, sequence: sequence}
	if tied {
		if c, ok := g.habit(sequence, by); ok {
			usual, tied = c, false
		}
	}
	for _, rank := range g.members {
		e := g.byRank[rank][sequence]
		switch {
		case e == nil && j.dumps[rank] == nil:
			w.dead = append(w.dead, rank)
		case e == nil:
		case !tied && callOf(e) == usual:
			w.see(j, rank, e, !e.finished())
			w.operation = e.Operation
		default:
			w.differing = append(w.differing, rank)
			if w.operation == "" {
				w.operation = e.Operation
			}
		}
	}
	w.uncertain = tied
	w.detail = g.difference(sequence, w, tied)
	return w
}

// habit returns the call of a tie that the group made before, if there is exactly one.
func (g *group) habit(sequence int64, by map[call][]int) (call, bool) {
	before := map[call]bool{}
	for _, entries := range g.byRank {
		for at, e := range entries {
			if at < sequence {
				before[callOf(e)] = true
			}
		}
	}
	var known []call
	for c := range by {
		if before[c] {
			known = append(known, c)
		}
	}
	if len(known) != 1 {
		return call{}, false
	}
	return known[0], true
}

// difference describes what the first differing rank called, and what the others did.
func (g *group) difference(sequence int64, w *wait, tied bool) string {
	if len(w.differing) == 0 {
		return ""
	}
	odd := g.byRank[w.differing[0]][sequence]
	var other *Entry
	for _, rank := range g.members {
		if e := g.byRank[rank][sequence]; e != nil && callOf(e) != callOf(odd) {
			other = e
			break
		}
	}
	if other == nil {
		return ""
	}
	a, b := callOf(odd), callOf(other)
	switch {
	case a.operation != b.operation:
		text := fmt.Sprintf("%s instead of %s", a.operation, b.operation)
		if tied {
			text = fmt.Sprintf("%s and %s", a.operation, b.operation)
		}
		if g.exchanged(sequence, w.differing[0], a, b) {
			text += " (two operations are exchanged)"
		}
		return text
	case a.types != b.types:
		return fmt.Sprintf("element type %s instead of %s", orNone(a.types), orNone(b.types))
	default:
		in, out := fmt.Sprint(odd.InputSizes), fmt.Sprint(other.InputSizes)
		if a.inputs == b.inputs {
			in, out = fmt.Sprint(odd.OutputSizes), fmt.Sprint(other.OutputSizes)
		}
		return fmt.Sprintf("size %s instead of %s", in, out)
	}
}

// exchanged reports whether a rank makes the call of the others next to its own one, and the others
// make its call.
func (g *group) exchanged(sequence int64, odd int, own, theirs call) bool {
	for _, next := range []int64{sequence - 1, sequence + 1} {
		if e := g.byRank[odd][next]; e == nil || callOf(e) != theirs {
			continue
		}
		for rank, entries := range g.byRank {
			if e := entries[next]; rank != odd && e != nil && callOf(e) == own {
				return true
			}
		}
	}
	return false
}

func orNone(types string) string {
	if types == "" {
		return "none"
	}
	return types
}
