// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package plausibility

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// A clock that is wrong is so in each window. Samples that wait in a queue are as old, but their
// age changes.
func TestADelayThatChangesIsNoOffsetOfTheClock(t *testing.T) {
	const second = int64(time.Second)
	for name, tt := range map[string]struct {
		age  func(s int64) int64 // of the newest sample, at second s
		want time.Duration
	}{
		"right":           {func(int64) int64 { return second / 10 }, 0},
		"behind":          {func(int64) int64 { return 5 * second }, -5 * time.Second},
		"ahead":           {func(int64) int64 { return -3 * second }, 3 * time.Second},
		"a queue drains":  {func(s int64) int64 { return max(30*second-s*second/2, 0) }, 0},
		"a queue grows":   {func(s int64) int64 { return s * second / 2 }, 0},
		"one long outage": {func(s int64) int64 { return max(0, 12-s) * second }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var c Clock
			found := time.Duration(0)
			for s := int64(1); s < 60; s++ {
				if offset, judged := c.Add(1000*second+s*second, 1000*second+s*second-tt.age(s), 100*time.Millisecond); judged &&
					offset != 0 {
					found = offset
				}
			}
			assert.Equal(t, tt.want, found)
		})
	}
}
