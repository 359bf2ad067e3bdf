// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package hashindex

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A map is the oracle. Some keys have equal hashes, as by chance, and searches wrap around the end
// of the table.
func TestIndexEqualsAMap(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 3))
	var x Index
	var list []uint64
	oracle := map[uint64]int32{}
	is := func(key uint64) func(int32) bool { return func(at int32) bool { return list[at] == key } }
	hash := func(key uint64) uint64 { return key / 3 * 0x9e3779b97f4a7c15 >> 20 }
	compare := func(key uint64) {
		at, ok := x.Get(hash(key), is(key))
		want, known := oracle[key]
		require.Equal(t, known, ok)
		if known {
			require.Equal(t, want, at)
		}
	}
	for round := range 5 {
		for range 2000 << round {
			key := rng.Uint64N(1500 << round)
			compare(key)
			if at, known := oracle[key]; known && rng.IntN(3) > 0 {
				x.Delete(hash(key), at)
				delete(oracle, key)
			} else {
				list = append(list, key)
				oracle[key] = int32(len(list) - 1)
				x.Put(hash(key), int32(len(list)-1), is(key))
			}
			require.Equal(t, len(oracle), x.Len())
			require.LessOrEqual(t, 4*x.Len(), 3*len(x.slots)+3, "there is a free slot")
		}
		for key := range uint64(1500 << round) {
			compare(key)
		}
		for at := range x.All() {
			require.Equal(t, at, oracle[list[at]])
			delete(oracle, list[at])
		}
		require.Empty(t, oracle, "All returns each")
		x.Clear()
		list = list[:0]
	}
}

// Deletions leave no trace: a table whose size stays within bounds does not grow.
func TestDeletedKeysTakeNoRoom(t *testing.T) {
	var x Index
	hash := func(at int32) uint64 { return uint64(at) * 0x9e3779b97f4a7c15 >> 32 }
	none := func(int32) bool { return false }
	for at := range int32(100_000) {
		x.Put(hash(at), at, none)
		if old := at - 40; old >= 0 {
			x.Delete(hash(old), old)
		}
	}
	require.Equal(t, 40, x.Len())
	require.Len(t, x.slots, minSlots)
}
