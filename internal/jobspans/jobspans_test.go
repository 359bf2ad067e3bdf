// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package jobspans

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A span is found only if there is no doubt which job is meant.
func TestTheJobMustBeKnown(t *testing.T) {
	now := time.Unix(1_790_000_000, 0)
	before := func(d time.Duration) int64 { return now.Add(-d).UnixNano() }
	var n Newest
	find := func(path string, world int64, ranks ...int) int64 {
		s, _ := n.Find(path, world, ranks, now)
		return s.End
	}
	assert.Zero(t, find("", 4, 0))
	n.Add("a", 0, 4, Span{End: before(2 * time.Second)})
	n.Add("a", 0, 4, Span{End: before(3 * time.Second)}) // arrives late
	n.Add("a", 1, 4, Span{End: before(time.Minute)})
	assert.Equal(t, before(2*time.Second), find("", 4, 0))
	assert.Equal(t, before(time.Minute), find("", 0, 3, 1), "the first rank that has spans")
	assert.Zero(t, find("", 8, 0), "another job by its size")
	assert.Zero(t, find("", 4, 3))
	n.Add("old", 0, 4, Span{End: before(2 * time.Hour)})
	assert.NotZero(t, find("", 4, 0))
	n.Add("b", 0, -1, Span{End: before(time.Second)})
	assert.Zero(t, find("", 4, 0), "one of two jobs")
	assert.Equal(t, before(2*time.Second), find("/dumps/a/x", 4, 0))
	assert.Equal(t, before(time.Second), find("/dumps/b", 4, 0))
	assert.Zero(t, find("/dumps/b", 4, 1))

	for i := range 2 * maxJobs {
		n.Add(fmt.Sprint("job", i), 0, 4, Span{End: before(0) + int64(i)})
	}
	assert.Len(t, n.jobs, maxJobs)
	assert.Equal(t, maxJobs, n.ranks)
	for i := range maxRanks + 10 {
		n.Add("job199", int64(i), 4, Span{End: before(0)})
	}
	assert.Equal(t, maxRanks, n.ranks)
}
