// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package hostclock

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAnInterruptedReadingIsNoStepOfTheWallClock(t *testing.T) {
	c := New(time.Now)
	var readings []int64
	c.ahead = func() (ns int64) {
		ns, readings = readings[0], readings[1:]
		return ns
	}
	for _, tt := range []struct {
		readings []int64
		want     int64
	}{
		{[]int64{3}, 0},
		{[]int64{-27_311, 5}, 0},            // interrupted between the wall clock and the other
		{[]int64{-3_000_000, -40_000}, 0},   // interrupted twice, for different times
		{[]int64{36e11, 36e11 + 7}, 36e11},  // clock set forward by an hour
		{[]int64{36e11 + 19_000}, 36e11},    // time between reading the two clocks
		{[]int64{36e11 - 30_000, 3}, 36e11}, // interrupted, then set back
		{[]int64{3, 4}, 3},
	} {
		readings = tt.readings
		c.Observe()
		require.Equal(t, tt.want, c.Offset.Load())
		require.Empty(t, readings)
	}
}
