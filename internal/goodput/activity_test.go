// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package goodput

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
)

// Merged points keep the sums: of the whole, to a nanosecond for each interval, and of the newer
// half.
func TestAnActivityKeepsItsSums(t *testing.T) {
	const n, second = 3 * maxPoints, int64(1e9)
	rng := rand.New(rand.NewPCG(3, 4))
	var a Activity
	start := int64(1_790_000_000) * second
	shares := make([]float64, n) // negative: not known
	for i := range shares {
		shares[i] = float64(rng.IntN(6)-1) / 4
		if from := start + int64(i)*second; shares[i] >= 0 {
			a.Add(from, from+second, shares[i])
			a.Add(from, from+second, 1-shares[i]) // again
		}
	}
	assert.LessOrEqual(t, len(a.points), maxPoints)
	for _, from := range []int{0, n - maxPoints/8} {
		var sums [Buckets]int64
		a.fill(&sums, start+int64(from)*second, start+int64(n+10)*second)
		var want [Buckets]float64
		for _, s := range shares[from:] {
			if s < 0 {
				want[Unknown]++
			} else {
				want[Busy] += s
				want[Idle] += 1 - s
			}
		}
		want[Unknown] += 10
		for b := range want {
			assert.InDelta(t, want[b], float64(sums[b])/1e9, 1e-5, Names[b])
		}
		assert.Equal(t, int64(n+10-from)*second, sums[Busy]+sums[Idle]+sums[Unknown])
	}
}
