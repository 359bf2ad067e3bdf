// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package straggler

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestRecordsAreNumberedAsTheOthers(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	regular := func(k int64) int64 { return k * 1_000_000 }
	var uneven []int64
	for at := int64(0); len(uneven) < 3000; at += 800_000 + r.Int64N(400_000) {
		uneven = append(uneven, at)
	}
	irregular := func(k int64) int64 { return uneven[k] }
	record := func(at func(int64) int64, from, to, clock int64, groups ...string) (all []Collective) {
		for k := from; k < to; k++ {
			for i, g := range groups {
				end := at(k) + int64(i)*300_000 + clock + r.Int64N(500)
				all = append(all, Collective{Group: g, Name: "all_reduce", Start: end - 100_000, End: end})
			}
		}
		Number(all)
		return all
	}
	const day = 86_400_000_000_000
	for name, c := range map[string]struct {
		mine, theirs []Collective
		want         map[string]int64 // first number of each group
	}{
		"the same": {record(irregular, 0, 20, 0, "a"), record(irregular, 0, 20, 0, "a"), map[string]int64{"a": 0}},
		"the same, regular, clocks apart": {
			record(regular, 0, 20, day, "a"), record(regular, 0, 20, 0, "a"), map[string]int64{"a": 0},
		},
		"later, regular": {record(regular, 5, 20, 0, "a"), record(regular, 0, 20, 0, "a"), map[string]int64{"a": 5}},
		"later, clocks apart": {
			record(irregular, 5, 20, -day, "a"), record(irregular, 0, 20, 0, "a"), map[string]int64{"a": 5},
		},
		"earlier": {record(irregular, 0, 20, day, "a"), record(irregular, 7, 20, 0, "a"), map[string]int64{"a": -7}},
		"long": {
			record(irregular, 900, 3000, day, "a"), record(irregular, 0, 2500, 0, "a"), map[string]int64{"a": 900},
		},
		"between two groups": {
			record(irregular, 3, 20, day, "a", "b")[1:], record(irregular, 0, 20, 0, "a", "b"),
			map[string]int64{"a": 4, "b": 3},
		},
		"between two groups, half of them together": {
			record(irregular, 10, 30, day, "a", "b")[1:], record(irregular, 0, 20, 0, "a", "b"),
			map[string]int64{"a": 11, "b": 10},
		},
		"too few":          {record(irregular, 2, 5, 0, "a"), record(irregular, 0, 20, 0, "a"), map[string]int64{"a": 0}},
		"a separate group": {record(irregular, 2, 20, 0, "x"), record(irregular, 0, 20, 0, "a"), map[string]int64{"x": 0}},
	} {
		Number(c.mine)
		Renumber(c.mine, c.theirs)
		got := map[string]int64{}
		for _, x := range slices.Backward(c.mine) {
			got[x.Group] = x.Sequence
		}
		assert.Equal(t, c.want, got, name)
	}
}

func TestRecordsOfOneJobEndTogether(t *testing.T) {
	const day, length = 86_400_000_000_000, 100_000 // ns
	record := func(late ...int64) (all []Collective) {
		for k, by := range late {
			end := int64(k)*1_000_000 + by
			all = append(all, Collective{Name: "all_reduce", Sequence: int64(k), Start: end - length, End: end})
		}
		return all
	}
	for name, c := range map[string]struct {
		others        []Collective
		clock, spread int64
		ok            bool
	}{
		"to the nanosecond":           {record(day, day, day), day, 0, true},
		"too few":                     {record(day, day), 0, 0, false},
		"within a quarter of a run":   {record(-25_000, -25_000, 0, 25_000, 25_000), 0, 25_000, true},
		"not within a quarter of one": {record(-25_000, -25_001, 0, 25_001, 25_001), 0, 25_001, false},
		"others of the same numbers":  {record(0, 400_000, -300_000, 200_000, -700_000), 0, 300_000, false},
	} {
		for i := range c.others {
			c.others[i].Start -= 900_000 // a collective lasts longer on a rank that waits
		}
		clock, spread, ok := Met(append(record(0, 0, 0, 0, 0), Collective{Name: "of these only"}), c.others)
		assert.Equal(t, c.clock, clock, name)
		assert.Equal(t, c.spread, spread, name)
		assert.Equal(t, c.ok, ok, name)
	}
}
