// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/profiletrace"
	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/internal/profiletrace/jobs"
	"github.com/otelgpu/otelgpu/internal/profiletrace/link"
)

// TestATimelineKeepsEveryNanosecond adds activities in any order, over periods that make cells
// coarser, and verifies that no time is lost.
func TestATimelineKeepsEveryNanosecond(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, reach := range []int64{1000, 1e6, 1e9, 1e12} {
		tl, sum := newTimeline(), int64(0)
		key := rowKey{device: 1, stream: 7}
		for range 2000 {
			start := int64(1e18) + random.Int64N(reach)
			length := 1 + random.Int64N(reach/100)
			tl.add(key, start, start+length, int(start)%classes, "k")
			sum += length
		}
		r := tl.rows[key]
		got := int64(0)
		for _, c := range r.cells {
			for _, n := range c.time {
				got += n
			}
		}
		assert.Equal(t, sum, got)
		assert.Equal(t, sum, r.busy)
		assert.LessOrEqual(t, len(r.cells), maxCells)
		assert.LessOrEqual(t, tl.used, maxCells)
		shown := tl.shown(shownRows, shownInCells)
		assert.GreaterOrEqual(t, float64(shown.Count)*shown.Length*1e6, 0.97*float64(reach))
		assert.Equal(t, []string{"k"}, shown.Names)
	}
}

func TestATimelineIsWhereItsActivitiesAre(t *testing.T) {
	tl := newTimeline()
	key := rowKey{stream: 3}
	tl.add(key, 10_240_000, 10_240_512, computing, "half of a cell")
	tl.add(key, 10_236_928, 10_237_952, copying, "earlier")
	s := tl.shown(shownRows, shownInCells)
	assert.InDelta(t, 10.240-0.004096, s.Start, 1e-9, "the origin moved to the earlier one, by whole cells")
	assert.InDelta(t, 0.001024, s.Length, 1e-12)
	assert.Equal(t, []int64{1, 1000, copying, 0, 3, 500, computing, 1}, s.Rows[0].Cells)
	assert.Equal(t, []string{"earlier", "half of a cell"}, s.Names)
}

func TestATimelineIsBounded(t *testing.T) {
	tl := newTimeline()
	for i := range int64(maxRows + 10) {
		tl.add(rowKey{stream: i}, 1000*i, 1000*i+500, computing, fmt.Sprint("name ", i))
	}
	tl.add(rowKey{}, 1<<62, 1<<62+1, computing, "a wrong clock")
	tl.add(rowKey{}, -1<<62, -1<<62+1, computing, "another")
	tl.add(rowKey{}, 5, 5, computing, "no time")
	assert.Len(t, tl.rows, maxRows)
	assert.EqualValues(t, 12, tl.more)
	s := tl.shown(shownRows, shownInCells)
	assert.Len(t, s.Rows, shownRows)
	assert.EqualValues(t, 12+maxRows-shownRows, s.More)
	cells := 0
	for _, r := range s.Rows {
		cells += len(r.Cells) / 4
	}
	assert.LessOrEqual(t, cells, shownInCells)
	assert.Nil(t, newTimeline().shown(shownRows, shownInCells))

	tl = newTimeline() // of many rows, each has fewer cells
	for i := range int64(200 * maxRows) {
		tl.add(rowKey{stream: i % maxRows}, 100_000*i, 100_000*i+50_000, computing, "name")
	}
	cells = 0
	for _, r := range tl.rows {
		cells += len(r.cells)
	}
	assert.LessOrEqual(t, cells, allCells+maxCells)
	assert.Greater(t, cells, allCells/4)
}

func TestKernelsOfOneTemplateAreOneRow(t *testing.T) {
	b := NewBook()
	kernels := []facts.Kernel{
		{
			Name: "add", Count: 2, Time: 4 * time.Millisecond, Alone: 3 * time.Millisecond,
			Rate:     facts.Rate{Bytes: 4e6, ByteRate: 1e9, PeakShare: 0.5, Bound: "memory"},
			Launched: facts.Launched{Registers: 64, Waves: facts.MeanOf(2, 4*time.Millisecond)},
		},
		{Name: "gemm", Count: 1, Time: 3 * time.Millisecond},
		{
			Name: "add", Count: 1, Time: 2 * time.Millisecond, Alone: time.Millisecond,
			Rate:     facts.Rate{Bytes: 4e6, ByteRate: 2e9, PeakShare: 0.8, Bound: "memory"},
			Launched: facts.Launched{Registers: 32, Waves: facts.MeanOf(0.5, 2*time.Millisecond)},
		},
		{Name: "add", Count: 1, Time: time.Millisecond},
	}
	b.Profile("p", []facts.Report{{ByKernel: kernels}}, nil)
	got := b.State(nil).Profiles[0].Devices[0].ByKernel
	require.Len(t, got, 2)
	assert.Equal(t, "add", got[0].Name)
	assert.EqualValues(t, 4, got[0].Count)
	assert.Equal(t, 7*time.Millisecond, got[0].Time)
	assert.InEpsilon(t, 8e6/6e-3, got[0].ByteRate, 1e-12, "over the time of those whose bytes are known")
	assert.InEpsilon(t, (0.5*4+0.8*2)/6, got[0].PeakShare, 1e-12)
	assert.Equal(t, "memory", got[0].Bound)
	assert.EqualValues(t, 64, got[0].Registers)
	assert.InEpsilon(t, (2*4+0.5*2)/6, got[0].Waves.Value(), 1e-12, "over the time of those whose waves are known")
	assert.Zero(t, got[0].Occupancy.Value())
}

// observe adds a profile with these events to a report; it was read to its end unless the report is
// told.
func observe(t *testing.T, b *Book, name string, fill func(p *profiletrace.Profile, add func(event.Event, string))) {
	t.Helper()
	p := profiletrace.New(profiletrace.Options{
		Observe: func(in *link.Input) link.Observer { return b.Observe(name, in) },
	}, profiletrace.Source{Root: "profile", Service: "service"})
	defer p.Close()
	p.Meta.Base = 1e18
	fill(p, func(e event.Event, name string) {
		e.Name = p.Names.ID(name)
		require.NoError(t, p.Add(&e))
	})
	_, err := p.Emit(t.Context(), func(context.Context, ptrace.Traces) error { return nil })
	require.NoError(t, err)
}

func TestAPartlyReadProfileIsExcluded(t *testing.T) {
	b := NewBook()
	observe(t, b, "broken", func(_ *profiletrace.Profile, add func(event.Event, string)) {
		add(event.Event{Kind: event.KindKernel, Start: 1000, Duration: 10}, "a")
	})
	for i := range MaxProfiles + 3 {
		b.Profile(fmt.Sprint("folder/p", i), nil, nil)
	}
	s := b.State([]jobs.Job{{Says: "rank 3 is late"}})
	assert.Len(t, s.Profiles, MaxProfiles-1)
	assert.Equal(t, "p0", s.Profiles[0].Name)
	assert.Equal(t, 4, s.Health.ProfilesDropped)
	assert.Equal(t, []jobs.Job{{Says: "rank 3 is late"}}, s.Jobs)
}

func TestCallsAreOnRowsOfTheirThreads(t *testing.T) {
	b := NewBook()
	observe(t, b, "p", func(p *profiletrace.Profile, add func(event.Event, string)) {
		p.Meta.Rank, p.Meta.HasRank, p.Meta.WorldSize = 3, true, 8
		call := func(name string, start, thread int64) {
			add(event.Event{Kind: event.KindRuntime, Start: start, Duration: 1e6, Process: 1, Thread: thread}, name)
		}
		call("cudaLaunchKernel", 1e9, 7)
		call("cudaStreamSynchronize", 3e9, 7)
		call("cudaGetDevice", 2e9, 7)
		call("cudaLaunchKernel", 1e9, 9)
		add(event.Event{Kind: event.KindOperator, Start: 1e9, Duration: 1e9, Process: 1, Thread: 7}, "aten::mm")
		add(event.Event{Kind: event.KindKernel, Start: 2e9, Duration: 1e6, Stream: 5}, "gemm")
	})
	b.Profile("p", nil, nil)
	s := b.State(nil)
	assert.Equal(t, [2]int64{3, 8}, [2]int64{s.Profiles[0].Rank, s.Profiles[0].World})
	rows := s.Profiles[0].Timeline.Rows
	require.Len(t, rows, 3)
	assert.Equal(t, [4]int64{7, 9, 5, 2}, [4]int64{rows[0].Stream, rows[1].Stream, rows[2].Stream, rows[0].Count},
		"threads are above")
	assert.Equal(t, [3]bool{true, true, false}, [3]bool{rows[0].Host, rows[1].Host, rows[2].Host})
	assert.EqualValues(t, launching, rows[0].Cells[2])
	assert.EqualValues(t, waiting, rows[0].Cells[len(rows[0].Cells)-2])
	assert.EqualValues(t, computing, rows[2].Cells[2])
}
