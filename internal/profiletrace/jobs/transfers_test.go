// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/semconv"
)

// withMessages states the messages of all collectives: 300 MB for all ranks, 1 MB for pairs.
func (w *world) withMessages() *world {
	for _, list := range w.spans {
		for _, s := range list.All() {
			m := s.Attributes()
			group, ok := m.Get(string(semconv.GPUCollectiveGroupNameKey))
			if !ok {
				continue
			}
			m.PutStr(string(semconv.GPUCollectiveNameKey), s.Name())
			m.PutStr(string(semconv.GPUCollectiveElementTypeKey), "BFloat16")
			m.PutInt(string(semconv.GPUIOSizeKey), 1_000_000)
			m.PutInt(string(semconv.GPUCollectiveGroupSizeKey), 2)
			if group.Str() == "all" {
				m.PutInt(string(semconv.GPUIOSizeKey), 60_000_000)
				m.PutInt(string(semconv.GPUCollectiveGroupSizeKey), int64(w.ranks))
			}
		}
	}
	return w
}

// Rank 1 is always late by 20 ms, so that the others mostly wait in collectives that move bytes for
// 0.3 and 0.1 ms.
func TestBandwidthLeavesOutTheWaitForLateRanks(t *testing.T) {
	w := newWorld(5, 4, 12)
	w.extra = late(1, 20_000_000)
	w.run().withMessages()
	var p Profiles
	w.into(&p)
	for rank := range 4 {
		p.Judged(p.list[rank].file, []facts.Report{{Model: "NVIDIA H100 80GB HBM3"}})
	}
	jobs := p.Jobs()
	require.Len(t, jobs, 1)
	byGroup := map[string]Transfer{}
	for _, x := range jobs[0].Transfers {
		byGroup[x.Group] = x
	}
	require.Len(t, byGroup, 3)
	all := byGroup["all"]
	assert.EqualValues(t, 12, all.Count)
	assert.Equal(t, 4, all.Recorded)
	assert.Equal(t, "BFloat16", all.ElementType)
	assert.InDelta(t, 300_000, all.Shortest.Nanoseconds(), 2_000)
	assert.InDelta(t, 12*300_000, all.Time.Nanoseconds(), 12*2_000)
	assert.InEpsilon(t, 60e6/300e-6, all.Rate, 0.01)
	assert.InEpsilon(t, 60e6/300e-6*2*3/4, all.BusRate, 0.01)
	assert.Equal(t, "NVLink", all.Link)
	assert.InEpsilon(t, 300e9/450e9, all.LinkShare, 0.01)
	pair := byGroup["pair0"]
	assert.Equal(t, 2, pair.Recorded)
	assert.InDelta(t, 12*100_000, pair.Time.Nanoseconds(), 12*2_000)
	assert.InEpsilon(t, 1e6/100e-6/2, pair.BusRate, 0.03)
}

func TestIncompleteMessagesHaveNoBandwidth(t *testing.T) {
	w := newWorld(5, 4, 12)
	w.run()
	assert.Empty(t, jobsOf(w)[0].Transfers, "no sizes")

	w = newWorld(5, 4, 12)
	var p Profiles
	w.run().withMessages().into(&p, 1)
	groups := map[string]int{}
	for _, x := range p.Jobs()[0].Transfers {
		groups[x.Group] = x.Recorded
		assert.Empty(t, x.Link, "the device is not known")
	}
	assert.Equal(t, map[string]int{"all": 3, "pair1": 2}, groups, "pair0 was recorded on one side")
}

func TestSeveralModelsAreComparedWithNoLink(t *testing.T) {
	w := newWorld(7, 2, 12)
	w.run().withMessages()
	var p Profiles
	w.into(&p)
	for rank, model := range []string{"NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB"} {
		p.Judged(p.list[rank].file, []facts.Report{{Model: model}})
	}
	for _, x := range p.Jobs()[0].Transfers {
		assert.Empty(t, x.Link)
		assert.Positive(t, x.BusRate)
		assert.Less(t, x.Shortest, time.Millisecond)
	}
}

// A job with a size for each collective keeps the messages with most time, and counts the others.
func TestMessagesBeyondTheLimitAreCounted(t *testing.T) {
	w := newWorld(5, 2, 300)
	w.run().withMessages()
	for _, list := range w.spans {
		n := int64(0)
		for _, s := range list.All() {
			if group, ok := s.Attributes().Get(string(semconv.GPUCollectiveGroupNameKey)); ok && group.Str() == "all" {
				n++
				s.Attributes().PutInt(string(semconv.GPUIOSizeKey), 1_000_000*n)
			}
		}
		require.EqualValues(t, 300, n)
	}
	job := jobsOf(w)[0]
	assert.Len(t, job.Transfers, 200)
	assert.Equal(t, 101, job.MoreTransfers, "and one message of the pair")
}
