// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package boundedmap_test

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/boundedmap"
)

func TestOfReturnsTheValueThatItAdded(t *testing.T) {
	m := map[string]*int{}
	*boundedmap.Of(m, "a") += 2
	*boundedmap.Of(m, "a") += 3
	*boundedmap.Of(m, "b")++
	assert.Equal(t, 5, *m["a"])
	assert.Equal(t, 1, *m["b"])
}

func TestBoundedReturnsTheRestForNewKeysOfAFullMap(t *testing.T) {
	m := map[string]*int{}
	for _, key := range []string{"a", "b", "c", "d", "a"} {
		*boundedmap.Bounded(m, key, "", 2)++
	}
	assert.Len(t, m, 3)
	assert.Equal(t, 2, *m["a"], "known keys keep their values")
	assert.Equal(t, 1, *m["b"])
	assert.Equal(t, 2, *m[""])
}

func TestRecentKeepsTheNewestKeys(t *testing.T) {
	const most = 1000
	r := boundedmap.NewRecent[int, string](most)
	for i := range 4 * most {
		gone, full := r.Put(i, strconv.Itoa(i))
		require.Equal(t, i >= most, full)
		if full {
			require.Equal(t, strconv.Itoa(i-most), gone, "the oldest is evicted")
		}
	}
	require.Equal(t, most, r.Len())
	require.Equal(t, most, r.Indexed(), "evicted keys take no room")
	for i := 3 * most; i < 4*most; i++ {
		require.Equal(t, strconv.Itoa(i), *r.Find(i))
		require.Equal(t, strconv.Itoa(i), r.Get(i))
	}
	require.Empty(t, r.Get(-1))
	require.Nil(t, r.Find(3*most-1))
	_, full := r.Put(3*most, "again")
	require.False(t, full)
	require.Equal(t, "again", *r.Find(3 * most))
	gone, _ := r.Put(-1, "new")
	require.Equal(t, "again", gone, "its age has not changed")
	sum := 0
	for k, v := range r.All() {
		require.Equal(t, v, *r.Find(k))
		sum++
	}
	require.Equal(t, most, sum)
}

func TestLargestReturnsTheLeastKeyOfEqualValues(t *testing.T) {
	for range 100 { // the order of maps is random
		require.Equal(t, "b", boundedmap.Largest(map[string]int{"a": 1, "b": 3, "c": 3, "d": 2}))
	}
	assert.Equal(t, 4, boundedmap.Largest(map[int]float64{7: -2, 4: -1, 9: -1}))
	assert.Zero(t, boundedmap.Largest(map[string]int{}))
}

func TestZeroRecentKeepsNothing(t *testing.T) {
	var r boundedmap.Recent[int, string]
	_, full := r.Put(1, "a")
	assert.False(t, full)
	assert.Nil(t, r.Find(1))
	assert.Zero(t, r.Len())
}
