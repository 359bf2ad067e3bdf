// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package attribution_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/processor/gpujoinprocessor/internal/attribution"
)

func TestBudgetBoundsMemory(t *testing.T) {
	b := &attribution.Budget{Max: 100}
	d, g := attribution.New(attribution.Limits{}, b), flat()
	refused := 0
	for i := 1; i <= 1000; i++ {
		if take(d, span(i, 5000+i, 1, 0, 900), g) == attribution.Refused {
			refused++
		}
		require.LessOrEqual(t, b.Used(), 100)
	}
	assert.Positive(t, refused, "pending spans are not dropped for new ones")
	d.Settle(900*cellNS, g)
	for i := 2001; i <= 3000; i++ {
		require.Equal(t, attribution.Taken, take(d, span(i, 7000+i, 1, 950, 960), g), "ended spans make room")
		d.Settle(961*cellNS, g)
		require.LessOrEqual(t, b.Used(), 100)
	}
	assert.Positive(t, d.Totals().Orphans)
}

func TestDevicesOfOneBudgetReuseSlots(t *testing.T) {
	b, g := &attribution.Budget{Max: 3000}, flat()
	held := attribution.New(attribution.Limits{}, b)
	_, kept, _ := held.Add(span(1, 0, 1, 0, 900), 0, g)
	for round := range 5 {
		d := attribution.New(attribution.Limits{}, b)
		handles := make([]attribution.Handle, 2999)
		for i := range handles {
			a, at, _ := d.Add(span(i+2, 0, 1, 10, 20), 0, g)
			require.Equal(t, attribution.Taken, a, "span %d of round %d", i, round)
			handles[i] = at
		}
		require.Equal(t, attribution.Refused, take(d, span(9000, 0, 1, 10, 20), g))
		d.Settle(30*cellNS, g)
		first, ok := d.Share(span(2, 0, 1, 10, 20).Key, handles[0])
		require.True(t, ok)
		require.Positive(t, first.Value)
		for i, at := range handles {
			s, ok := d.Share(span(i+2, 0, 1, 10, 20).Key, at)
			require.True(t, ok)
			require.InDelta(t, first.Value, s.Value, 1e-9*first.Value, "equal spans, equal shares")
		}
		require.InEpsilon(t, d.Totals().Attributed, 2999*first.Value, 1e-9)
		d.Close()
		_, ok = d.Share(span(2, 0, 1, 10, 20).Key, handles[0])
		require.False(t, ok, "of a closed device")
		require.Equal(t, 1, b.Used())
	}
	held.Settle(1000*cellNS, g)
	s, ok := held.Share(span(1, 0, 1, 0, 900).Key, kept)
	require.True(t, ok)
	assert.True(t, s.Ended)
	assert.InEpsilon(t, held.Totals().Attributed, s.Value, 1e-9)
}

func TestRememberedSpansExpire(t *testing.T) {
	b := &attribution.Budget{Max: 1 << 20}
	d, g := attribution.New(attribution.Limits{Remember: 10 * cellNS}, b), flat()
	d.Add(span(2, 1, 1, 0, 4), 0, g)
	d.Add(span(3, 2, 1, 1, 2), 0, g)
	d.Add(span(5, 4, 1, 3, 4), 0, g) // a third of a unit
	d.Add(span(7, 6, 2, 3, 4), 0, g)
	d.Add(span(9, 8, 2, 4, 5), 0, g) // nothing
	g.flow[4] = 0
	d.Settle(5*cellNS, g)
	assert.Equal(t, 9, b.Used())
	d.Settle(30*cellNS, g)
	d.Settle(60*cellNS, g)
	assert.Zero(t, b.Used())
	assert.EqualValues(t, 3, d.Totals().Orphans, "the parents of spans with energy never came")
	d.Close()
}
