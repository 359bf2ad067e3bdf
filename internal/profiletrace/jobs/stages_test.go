// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/straggler"
	"github.com/otelgpu/otelgpu/semconv"
)

// inThreeDimensions simulates a job of 2 x 2 x 2 ranks: rank = 4 data + 2 pipeline + tensor. It
// returns the world, and how long it took.
func inThreeDimensions(extra int64) (*world, time.Duration) {
	const steps, batches = 6, 4
	w := newWorld(77, 8, 0).run()
	for i := range w.clock {
		w.clock[i] = w.r.Int64N(50_000_000)
	}
	now := make([]int64, 8)
	for i := range now {
		now[i] = w.start
	}
	meet := func(members []int, kind, name string, moving int64) {
		w.meet(now, members, kind, name, moving)
		for _, rank := range members {
			m := w.spans[rank].At(w.spans[rank].Len() - 1).Attributes()
			m.PutStr(string(semconv.GPUCollectiveGroupIDKey), fmt.Sprintf("%s [%d, %d]", kind, members[0], members[1]))
			m.PutInt(string(semconv.GPUIOSizeKey), moving)
			if kind == "pp" {
				m.PutInt(string(semconv.GPUCollectivePeerRankKey), int64(members[0]+members[1]-rank))
			}
		}
	}
	stage := func(data, pipeline int, length int64) {
		ranks := []int{4*data + 2*pipeline, 4*data + 2*pipeline + 1}
		for _, rank := range ranks {
			n := length + w.r.Int64N(5_000)
			if rank == 5 {
				n += extra
			}
			w.kernel(rank, &now[rank], n)
		}
		meet(ranks, "tp", "ncclDevKernel_AllReduce", 50_000)
	}
	for range steps {
		for data := range 2 {
			for _, pass := range []struct {
				first  int // stage
				length int64
			}{{0, 800_000}, {1, 1_600_000}} {
				for range batches {
					stage(data, pass.first, pass.length)
					for tensor := range 2 {
						meet([]int{4*data + tensor, 4*data + 2 + tensor}, "pp", "ncclDevKernel_SendRecv", 60_000)
					}
					stage(data, 1-pass.first, pass.length)
				}
			}
		}
		for rank := range 4 {
			meet([]int{rank, rank + 4}, "dp", "ncclDevKernel_AllReduce", 400_000)
		}
	}
	return w, time.Duration(slices.Max(now) - w.start)
}

func TestStagesAreBalancedWithinATenth(t *testing.T) {
	for longest, balanced := range map[time.Duration]bool{110: true, 111: false} {
		a := &analysis{job: make([]*profile, 3), out: Job{Ranks: []Rank{
			{Computing: 100}, {Computing: longest}, {Computing: 105},
		}}}
		var all []straggler.Collective
		for rank := range int64(2) {
			for _, at := range []int64{rank, rank + 1} {
				c := straggler.Collective{Rank: at, Name: "ncclDevKernel_SendRecv"}
				c.Group = fmt.Sprint("pp", rank)
				all = append(all, c)
			}
		}
		assert.Equal(t, balanced, a.stages(all), longest)
	}
}

func TestALateRankInThreeDimensions(t *testing.T) {
	w, healthy := inThreeDimensions(0)
	jobs := jobsOf(w)
	require.Len(t, jobs, 1)
	assert.Empty(t, jobs[0].Late, jobs[0].Says)
	for _, missing := range []int{0, 3, 5} {
		var p Profiles
		w.into(&p, missing)
		jobs = p.Jobs()
		require.Len(t, jobs, 1)
		assert.Empty(t, jobs[0].Late, jobs[0].Says)
		assert.Zero(t, jobs[0].Absent, jobs[0].Says)
	}

	w, late := inThreeDimensions(300_000)
	jobs = jobsOf(w)
	require.Len(t, jobs, 1)
	require.Len(t, jobs[0].Late, 1, jobs[0].Says)
	assert.Equal(t, int64(5), jobs[0].Late[0].Rank)
	assert.InEpsilon(t, (late - healthy).Seconds(), jobs[0].Late[0].Each.Seconds(), 0.15)

	var p Profiles
	w.into(&p, 5)
	jobs = p.Jobs()
	require.Len(t, jobs, 1)
	assert.Empty(t, jobs[0].Late, jobs[0].Says)
	assert.Equal(t, []int64{5}, jobs[0].Missing)
	assert.InEpsilon(t, (late - healthy).Seconds(), jobs[0].Absent.Seconds(), 0.15)
}
