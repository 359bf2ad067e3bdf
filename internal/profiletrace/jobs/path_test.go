// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
)

// In each step rank 1 computes 2 ms more before the first collective. The path is on rank 1 for
// 3 ms, on any rank for 0.5 ms, and 0.4 ms are transfers, by the simulation.
func TestThePathOfAJobFollowsTheLateRank(t *testing.T) {
	w := newWorld(5, 4, 12)
	w.clock = []int64{0, 40_000_000, -7_000_000, 3_000_000_000}
	w.extra = func(_, rank int) int64 {
		if rank == 1 {
			return 2_000_000
		}
		return 0
	}
	var all Profiles
	w.run().into(&all)
	p := all.Jobs()[0].Path
	require.NotNil(t, p)
	sum := p.Transfers
	for _, r := range p.Ranks {
		sum += r.Time
		assert.InDelta(t, r.Time, r.Computing+r.Copying+r.Idle, float64(r.Time)/50)
	}
	assert.Equal(t, p.Length, sum)
	assert.InDelta(t, 12*3.93e6, float64(p.Length), 12*0.05e6)
	assert.InDelta(t, 12*0.4e6, float64(p.Transfers), 12*0.03e6)
	assert.EqualValues(t, 1, p.Ranks[0].Rank)
	assert.GreaterOrEqual(t, p.Ranks[0].Time, 12*2990*time.Microsecond)
	assert.Contains(t, p.says(), "Critical path across the ranks: rank 1 ")
}

// A rank that lost records of kernels seems to do less, or more: it is not judged.
func TestRanksWithoutRecordsAreNotJudged(t *testing.T) {
	late := func(lost float64) Job {
		w := newWorld(6, 4, 12)
		w.extra = func(_, rank int) int64 { return int64(rank/3) * 2_000_000 }
		var all Profiles
		w.run().into(&all)
		for rank := range 4 {
			d := facts.Report{Window: time.Second}
			if rank == 3 {
				d.Parts.NotRecorded = time.Duration(lost * float64(time.Second))
			}
			all.Judged(fmt.Sprintf("folder%p/%d.json", w, rank), []facts.Report{d})
		}
		return all.Jobs()[0]
	}
	j := late(0.049)
	require.Len(t, j.Late, 1)
	assert.EqualValues(t, 3, j.Late[0].Rank)
	j = late(0.051)
	assert.Empty(t, j.Late)
	assert.Contains(t, j.Says, "Not judged: rank 3, whose work is not recorded in full.")
}
