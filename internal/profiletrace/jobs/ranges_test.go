// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/otelgpu/otelgpu/internal/intervals"
)

// However many short ranges a host has, what it did in a long gap is known.
func TestLongRangesAreKeptAmongManyShortOnes(t *testing.T) {
	x := &profile{}
	at := int64(0)
	var gaps intervals.Set
	for i := range 5 * maxRanges {
		length, name := int64(10+i%90), "short"
		if i%(maxRanges/4) == maxRanges/8 {
			length, name = 5000, "load"
			gaps.Add(intervals.Interval{Start: at, End: at + length}, 0)
		}
		x.hostRange(hostRange{intervals.Interval{Start: at, End: at + length}, 7, name})
		at += length
		if i%1000 == 0 { // longer ones, on a thread with fewer
			x.hostRange(hostRange{intervals.Interval{Start: 0, End: at}, 8, "idle thread"})
		}
	}
	assert.Less(t, len(x.ranges), maxRanges)
	times := x.during(gaps)
	assert.Equal(t, int64(20*5000), times["load"])
	assert.Zero(t, times["short"])
}
