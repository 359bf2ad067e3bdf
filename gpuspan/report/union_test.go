// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"
)

// Against a map of every nanosecond.
func TestUnionOfIntervalsInAnyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var u union
		covered := map[int64]bool{}
		for range rapid.IntRange(0, 60).Draw(t, "n") {
			start := rapid.Int64Range(0, 200).Draw(t, "start")
			end := start + rapid.Int64Range(-3, 30).Draw(t, "length")
			u.add(start, end)
			for i := start; i < end; i++ {
				covered[i] = true
			}
			assert.EqualValues(t, len(covered), u.length())
		}
		for i := 1; i < len(u.open); i++ {
			assert.Less(t, u.open[i-1].end, u.open[i].start, "disjoint, and apart")
		}
	})
}

func TestUnionIsBoundedAndNeverTooLong(t *testing.T) {
	var u union
	const n = 10 * maxOpen
	for i := range int64(n) {
		u.add(i*10, i*10+5)
		assert.LessOrEqual(t, len(u.open), maxOpen)
	}
	assert.EqualValues(t, n*5, u.length())
	u.add(0, 7) // before what is closed
	assert.EqualValues(t, n*5, u.length())
	u.add(0, n*20)
	assert.LessOrEqual(t, u.length(), int64(n*20))
}
