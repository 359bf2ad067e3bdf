// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package link

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
)

func TestLaunchTableRemembersTheLatest(t *testing.T) {
	tab := newLaunchTable(0)
	const n = 4 * launchMemory
	for i := int64(1); i <= n; i++ {
		tab.put(i, launch{Start: i})
	}
	assert.LessOrEqual(t, len(tab.buckets)*launchWays, 4*launchMemory)
	for i := int64(n); i > n-launchMemory/launchWays; i-- {
		l, ok := tab.get(i)
		if assert.True(t, ok, i) {
			assert.Equal(t, i, l.Start)
		}
	}
	_, ok := tab.get(1)
	assert.False(t, ok)
	assert.Positive(t, tab.forgotten)
	tab.put(n, launch{Start: 7})
	l, _ := tab.get(n)
	assert.Equal(t, int64(7), l.Start, "the last one of a correlation stands")
	_, ok = tab.get(0)
	assert.False(t, ok)
}

func TestLaunchesThatNothingLooksForAreNoLoss(t *testing.T) {
	tab := newLaunchTable(0)
	for i := int64(1); i <= 2*launchMemory; i++ {
		tab.put(i, launch{Start: i})
		_, ok := tab.get(i)
		assert.True(t, ok, "its work begins at once")
	}
	_, ok := tab.get(3 * launchMemory)
	assert.False(t, ok, "launched before the profile began")
	assert.Zero(t, tab.forgotten)
	for i := int64(1); i <= 10; i++ {
		_, ok := tab.get(i)
		assert.False(t, ok)
	}
	assert.Equal(t, int64(10), tab.forgotten, "of work that began after its launch was forgotten")
}

func TestLaunchesAreMatchedWithinTheirProcess(t *testing.T) {
	tab := newLaunchTable(0)
	for pid := range int64(4) {
		for i := int64(1); i <= 1000; i++ {
			tab.put(pid<<event.CorrelationBits|i, launch{Start: pid*1_000_000 + i})
		}
	}
	for pid := range int64(4) {
		for i := int64(1); i <= 1000; i++ {
			l, ok := tab.get(pid<<event.CorrelationBits | i)
			if assert.True(t, ok) {
				assert.Equal(t, pid*1_000_000+i, l.Start)
			}
		}
	}
}
