// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/internal/profiletrace/timeline"
	"github.com/otelgpu/otelgpu/semconv"
)

// ofKind returns the findings of a kind.
func ofKind(kind string, list []finding.Finding) (of []finding.Finding) {
	for _, f := range list {
		if f.Kind == kind {
			of = append(of, f)
		}
	}
	return of
}

// A PCIe bus of the fifth generation moves 64 GB/s, so that 6.4 GB/s is the limit.
func TestCollectivesSelectTheirRemedyAtTheLimits(t *testing.T) {
	const link, small = "look at the link", "fewer and larger messages"
	for _, c := range []struct {
		bytes  int64
		best   float64
		remedy string
	}{
		{1 << 20, 0.099, link},
		{1 << 20, 0.101, ""},
		{1<<20 - 1, 0.099, ""},
		{1 << 18, 0.5, ""},
		{1<<18 - 1, 0.5, small},
	} {
		f := aContext()
		f.Peak = facts.PeakOf("NVIDIA H100 80GB HBM3")
		j := &judge{f: f, length: 100}
		j.collectives(&facts.Report{Collectives: []facts.Collective{{
			Name: "all_reduce", Moving: 50, Bytes: c.bytes, Best: c.best * f.Peak.Host.Rate(),
		}}})
		require.Len(t, j.list, 1)
		for _, remedy := range []string{link, small} {
			assert.Equal(t, remedy == c.remedy, strings.HasPrefix(j.list[0].Remedy, remedy), "%+v: %s", c, j.list[0].Remedy)
		}
	}
}

func TestAKindOfMoveIsACauseFromAQuarterOn(t *testing.T) {
	for want, parts := range map[string][5]time.Duration{ // layout, type, join, copy, fill
		"tensors are cast to another type, brought into another layout": {250, 750},
		"tensors are cast to another type":                              {249, 751},
		"tensors are brought into another layout":                       {200, 200, 200, 200, 200}, // none has a quarter
	} {
		list := findingsOf(func(s situation) {
			s.Moved = map[facts.MoveKey]*facts.Moved{}
			for i, n := range parts {
				s.Moved[facts.MoveKey{Move: timeline.MovesLayout + timeline.Move(i)}] = &facts.Moved{Alone: n * 1e6}
			}
		})
		list = ofKind(semconv.GPUFindingKindDataMovement, list)
		require.Len(t, list, 1)
		assert.Equal(t, want, list[0].Chain[0])
	}
}

func TestAnAllocatorThatRetriesThreeTimesIsAtTheLimit(t *testing.T) {
	for retries, atLimit := range map[int]bool{2: false, 3: true} {
		list := findingsOf(func(s situation) {
			names := []string{"", "cudaFree", "cudaMalloc", "aten::empty"}
			s.context.Name = func(id uint32) string { return names[id] }
			for range retries {
				for call := range uint32(2) {
					s.Idle(timeline.Share{Claim: timeline.Claim{
						To: 1e8, Class: timeline.Idle, Cause: timeline.CauseAllocation, Name: 1 + call, In: 3,
					}})
				}
			}
		})
		list = ofKind(semconv.GPUFindingKindAllocation, list)
		require.Len(t, list, 1)
		assert.Equal(t, atLimit, strings.Contains(list[0].Remedy, "activation checkpointing"), retries)
	}
}

func TestAtMostThreeOperatorsAreSlow(t *testing.T) {
	list := findingsOf(func(s situation) {
		s.report.Operators = nil
		for _, name := range []string{"a", "b", "c", "d"} {
			s.report.Operators = append(s.report.Operators, facts.Operator{
				Name: name, Time: windowLength / 4, Alone: windowLength / 4, Rate: facts.Rate{PeakShare: 0.1, Bound: "memory"},
			})
		}
	})
	assert.Len(t, ofKind(semconv.GPUFindingKindLowEfficiency, list), 3)
}

// The fourth one is in the finding on further ranges.
func TestAtMostThreeRangesHaveTheirOwnFinding(t *testing.T) {
	list := findingsOf(func(s situation) {
		for name := range uint32(5) {
			s.Idle(timeline.Share{Claim: timeline.Claim{
				To: 1e8, Class: timeline.Idle, Cause: timeline.CauseHost, Name: 1 + name, In: 1 + name,
			}})
		}
	})
	list = ofKind(semconv.GPUFindingKindHostWork, list)
	require.Len(t, list, 4)
	var further int
	for _, f := range list {
		if f.Chain[0] == "the host worked in further ranges" {
			assert.Equal(t, 200*time.Millisecond, f.Gain)
			further++
		}
	}
	assert.Equal(t, 1, further)
}

func TestAReasonIsNamedFromAQuarterOn(t *testing.T) {
	for part, named := range map[int64]bool{249: false, 250: true} {
		list := findingsOf(func(s situation) {
			s.report.Operators = nil
			s.Opaque = time.Duration(part) * 1e6
		})
		list = ofKind(semconv.GPUFindingKindNotJudged, list)
		require.Len(t, list, 1)
		assert.Equal(t, named, strings.Contains(list[0].Remedy, "--captures"), part)
	}
}
