// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package straggler

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestOwnTimeIsTheStepWithoutExposedCommunication(t *testing.T) {
	assert.Equal(t, 0.75, Own(1, 0.25))
	assert.Equal(t, 1.0, Own(1, -0.5), "nothing negative is exposed")
	assert.Zero(t, Own(1, 2))
}

func TestMedianAndDeviation(t *testing.T) {
	for _, tt := range []struct {
		in            []float64
		median, sigma float64
	}{
		{nil, 0, 0},
		{[]float64{3}, 3, 0},
		{[]float64{4, 2}, 3, 1.4826022185056018},
		{[]float64{1, 1, 2, 2, 4, 6, 9}, 2, 1.4826022185056018}, // deviations 1 1 0 0 2 4 7
	} {
		m := median(tt.in)
		assert.Equal(t, tt.median, m)
		assert.InDelta(t, tt.sigma, deviation(tt.in, m), 1e-15)
	}
}

// Both conditions apply: 3.5 robust standard deviations, and 5 % of the median.
func TestARankIsNamedByDeviationsAndByShare(t *testing.T) {
	ranks := func(own ...float64) (out []Rank) {
		for i, v := range own {
			out = append(out, Rank{Rank: int64(i), Own: v})
		}
		return out
	}
	// Deviations 2 1 0 1 x: their median is 1, so the limit is 3.5 × 1.4826 = 5.19 above 100; 5 %
	// of the median is 5.
	for own, slow := range map[float64]bool{105.1: false, 105.3: true} {
		got, typical := Compare(ranks(98, 99, 100, 101, own))
		assert.Equal(t, slow, got[4].Slow, own)
		assert.Equal(t, own/100, got[4].Score)
		assert.Equal(t, 100.0, got[4].Median)
		assert.Equal(t, 2, typical)
		if slow {
			assert.InDelta(t, own-100, got[4].Delay, 1e-9)
		}
	}
	// Equal ranks: below 5 %, although it is many deviations.
	for own, slow := range map[float64]bool{104.9: false, 105.1: true} {
		got, _ := Compare(ranks(100, 100, 100, 100, own))
		assert.Equal(t, slow, got[4].Slow, own)
	}
	none, _ := Compare(ranks(0, 0, 1))
	assert.Empty(t, none, "nothing can be said by a median of 0")
}

func TestThePathLeadsToTheDeepestSectionThatExplainsHalf(t *testing.T) {
	rank := func(own, attention, mlp float64) Rank {
		layer := &Sections{}
		layer.Add("attention", "", attention, Extent{100, 200}, nil)
		layer.Add("mlp", "", mlp, Extent{200, 300}, nil)
		phases := &Sections{}
		phases.Add("forward", "", attention+mlp, Extent{100, 300}, layer)
		phases.Add(Other, "", 1, Extent{}, nil)
		return Rank{Own: own, Phases: phases}
	}
	for _, tt := range []struct {
		attention, mlp float64
		section        string
		delay          float64
	}{
		{14, 2, "forward/attention", 12}, // 12 of 12
		{9, 8, "forward/attention", 7},   // 7 of 13 is more than half
		{2, 14, "forward/mlp", 12},
	} {
		got, _ := Compare([]Rank{rank(10, 2, 2), rank(10, 2, 2), rank(10, 2, 2), rank(22, tt.attention, tt.mlp)})
		assert.Equal(t, tt.section, got[3].Section)
		assert.InDelta(t, tt.delay, got[3].Delay, 1e-12)
		assert.Equal(t, "forward", got[3].Phase)
	}
	// Two equal halves and a small rest: no single section explains half.
	third := func(own, a float64) Rank {
		layer := &Sections{}
		for _, name := range []string{"a", "b", "c"} {
			layer.Add(name, "", a, Extent{}, nil)
		}
		phases := &Sections{}
		phases.Add("forward", "", 3*a, Extent{100, 300}, layer)
		return Rank{Own: own, Phases: phases}
	}
	got, _ := Compare([]Rank{third(10, 1), third(10, 1), third(10, 1), third(19, 4)})
	assert.Equal(t, "forward", got[3].Section)
	assert.Equal(t, 9.0, got[3].Delay)
	assert.Equal(t, Extent{100, 300}, got[3].At)
}

func TestSectionsAreBounded(t *testing.T) {
	p, grown := &Sections{}, 0
	for i := range 100 {
		grown += p.Add(string(rune('A'+i)), "", 1, Extent{}, nil)
	}
	assert.Equal(t, maxNames, p.Size())
	assert.Equal(t, maxNames, grown)
	deep := &Sections{}
	deep.Add("leaf", "", 1, Extent{}, nil)
	for range 40 {
		up := &Sections{}
		up.Add("level", "", 1, Extent{}, deep)
		deep = up
		require.LessOrEqual(t, deep.Size(), maxDepth)
	}
	assert.Equal(t, maxDepth, deep.Size())
}

func TestSectionsBelowAStepAreDividedAmongItsPhases(t *testing.T) {
	below := func(name string) *Sections {
		s := &Sections{}
		s.Add(name, "", 1, Extent{12, 14}, nil)
		return s
	}
	var phases, sections Sections
	phases.Add("forward", "", 5, Extent{}, nil)
	sections.Add("forward", "forward", 4, Extent{10, 20}, below("layer"))
	sections.Add("loss", "forward", 1, Extent{20, 30}, below("softmax"))
	sections.Add("log", "", 2, Extent{40, 50}, below("write"))
	loose := phases.Divide(&sections)
	forward := phases.Find("forward")
	assert.Equal(t, 5.0, forward.Duration, "as the step states it")
	assert.Equal(t, Extent{10, 30}, forward.At)
	assert.Equal(t, 4, phases.Size())
	assert.NotNil(t, forward.Below.Find("layer"))
	assert.Equal(t, below("softmax"), forward.Below.Find("loss").Below)
	assert.Equal(t, 2, loose.Size())
	assert.Equal(t, below("write"), loose.Find("log").Below)
	assert.Nil(t, phases.Divide(nil))
}

func TestAddStatesHowMuchTheSectionsGrew(t *testing.T) {
	p, below := &Sections{}, &Sections{}
	below.Add("x", "", 1, Extent{10, 20}, nil)
	more := &Sections{}
	more.Add("x", "", 2, Extent{5, 15}, nil)
	more.Add("y", "", 2, Extent{}, nil)
	grown := p.Add("a", "", 1, Extent{10, 20}, below)
	grown += p.Add("a", "", 1, Extent{1, 12}, more)
	assert.Equal(t, p.Size(), grown)
	require.Equal(t, 3, grown)
	a := p.Find("a")
	assert.Equal(t, 2.0, a.Duration)
	assert.Equal(t, Extent{1, 20}, a.At)
	assert.Equal(t, 3.0, a.Below.Find("x").Duration)
	assert.Equal(t, Extent{5, 20}, a.Below.Find("x").At)
}
