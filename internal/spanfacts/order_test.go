// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package spanfacts

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestChildrenFirstPutsChildrenBeforeParents(t *testing.T) {
	var o Order
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 3))
		n := 1 + r.IntN(40)
		order, parent := r.Perm(n), make([]int, n)
		for _, at := range order {
			parent[at] = -1
		}
		for i := 1; i < n; i++ {
			if r.IntN(4) > 0 {
				parent[order[i]] = order[r.IntN(i)]
			}
		}
		o.Reset()
		for i, p := range parent {
			o.Add(Key{Span: [8]byte{byte(i + 1)}}, Key{Span: [8]byte{byte(p + 1)}})
		}
		got := o.ChildrenFirst()
		require.ElementsMatch(t, slices.Sorted(slices.Values(order)), got)
		for i, p := range parent {
			if p >= 0 {
				require.Less(t, slices.Index(got, i), slices.Index(got, p), "seed %d", seed)
			}
		}
	}
}

func TestChildrenFirstEndsACycleOfParents(t *testing.T) {
	var o Order
	o.Add(Key{Span: [8]byte{1}}, Key{Span: [8]byte{2}})
	o.Add(Key{Span: [8]byte{2}}, Key{Span: [8]byte{1}})
	o.Add(Key{Span: [8]byte{3}}, Key{Span: [8]byte{1}})
	o.Add(Key{}, Key{})
	o.Add(Key{Span: [8]byte{4}}, Key{})
	assert.Equal(t, []int{2, 0, 1, 3, 4}, o.ChildrenFirst(), "it ends where it began")
}
