// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func numbered(i uint64) (k Key) {
	binary.BigEndian.PutUint64(k.Span[:], i)
	return k
}

// A map is the reference: few keys, so that they are added and removed in full clusters, with
// growth in between.
func TestIndexEqualsAMap(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 5))
		var s slab
		x, oracle := newIndex(&s), map[Key]*node{}
		keys := 10 + r.Uint64N(2000)
		for range 20_000 {
			k := numbered(r.Uint64N(keys))
			n := oracle[k]
			require.Equal(t, n, x.find(&k, s.hash(&k)), "seed %d", seed)
			if n == nil {
				n = s.take()
				n.key = k
				x.add(n, s.hash(&k))
				oracle[k] = n
			} else if r.IntN(2) == 0 {
				x.remove(n)
				delete(oracle, k)
			}
		}
		require.Equal(t, len(oracle), x.n)
		x.each(func(n *node) {
			require.Equal(t, oracle[n.key], n)
			delete(oracle, n.key)
		})
		require.Empty(t, oracle)
	}
}

func TestNodesAreTwoCacheLines(t *testing.T) {
	assert.EqualValues(t, 128, unsafe.Sizeof(node{}))
	x := slab{}
	for range chunkNodes + 1 {
		n := x.take()
		require.Zero(t, uintptr(unsafe.Pointer(n))%64)
	}
}
