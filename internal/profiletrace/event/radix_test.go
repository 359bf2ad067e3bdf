// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package event

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestSortByKeyIsStableOverAllTimes(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 3))
	for name, key := range map[string]func(i int) int64{
		"none differs":    func(int) int64 { return 7 },
		"in order":        func(i int) int64 { return int64(i / 2) },
		"backwards":       func(i int) int64 { return int64(-i / 2) },
		"one digit":       func(int) int64 { return rnd.Int64N(100) },
		"hours":           func(int) int64 { return 1_700_000_000_000_000_000 + rnd.Int64N(1<<42) },
		"low digit alike": func(int) int64 { return rnd.Int64N(8) << 22 },
		"all there are":   func(int) int64 { return rnd.Int64N(MaxTime) - rnd.Int64N(MaxTime) },
		"ends":            func(i int) int64 { return []int64{MaxTime + Skew, -MaxTime, 0}[i%3] },
	} {
		for _, n := range []int{0, 1, 2, 1001} {
			list := make([]entry, n)
			for i := range list {
				list[i] = entry{key(i), uint32(i)}
			}
			want := slices.Clone(list)
			slices.SortStableFunc(want, func(a, b entry) int { return cmp.Compare(a.key, b.key) })
			have, rest := sortByKey(list, make([]entry, n))
			assert.Equal(t, want, have, name)
			assert.Len(t, rest, n)
		}
	}
}
