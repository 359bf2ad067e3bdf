// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLevelsKeepEveryPeakInBoundedMemory(t *testing.T) {
	var l Levels
	l.Add(5, 100)
	l.Add(5, 50)
	l.Add(9, 20)
	require.Equal(t, []Level{{1005, 100}, {1009, 20}}, l.From(1000), "at one time the largest")

	l = Levels{}
	rng := rand.New(rand.NewPCG(1, 2))
	most, peak := int64(0), int64(0)
	for at := range int64(100_000) {
		v := rng.Int64N(1 << 40)
		if at == 77_777 {
			v = 1 << 41
			most, peak = v, at
		}
		l.Add(at*1000, v)
		require.Less(t, len(l.list), maxLevels)
	}
	list := l.From(0)
	require.Greater(t, len(list), maxLevels/4)
	found := false
	for i, x := range list {
		if i > 0 {
			require.Greater(t, x.At, list[i-1].At)
		}
		if x.Bytes == most {
			found = x.At <= peak*1000 && (i+1 == len(list) || list[i+1].At > peak*1000)
		}
	}
	require.True(t, found, "the peak is where it was")
}
