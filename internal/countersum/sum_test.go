// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package countersum

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

const second = int64(time.Second)

func TestRatesAreIntegratedOverTheTimeBeforeThem(t *testing.T) {
	var s Sum
	assert.Zero(t, s.AddRate(10*second, 100, time.Second), "of the time before the first value nothing is known")
	assert.Equal(t, 50.0, s.AddRate(11*second, 50, time.Second))
	assert.Equal(t, 250.0, s.AddRate(13*second, 100, time.Second))
	assert.Equal(t, 250.0, s.AddRate(13*second, 100, time.Second), "twice the same")
	assert.Equal(t, 250.0, s.AddRate(12*second, 100, time.Second), "an older one")
	assert.Equal(t, 250.0, s.AddRate(20*second, 100, time.Second), "7 s after a gap of 2 s")
	assert.Equal(t, 260.0, s.AddRate(21*second, 10, time.Second))
}

func TestACounterCanTakeOverFromARate(t *testing.T) {
	var s Sum
	s.AddRate(second, 100, time.Second)
	s.AddRate(2*second, 100, time.Second)
	assert.Equal(t, 100.0, s.AddCounter(3*second, 1e12), "its origin is not ours")
	assert.Equal(t, 105.0, s.AddCounter(4*second, 1e12+5))
	assert.Equal(t, 105.0, s.AddCounter(5*second, 7), "a reset")
	assert.Equal(t, 106.0, s.AddCounter(6*second, 8))
}

func TestDeltasAreAddedOnce(t *testing.T) {
	var s Sum
	assert.Equal(t, 3.0, s.AddDelta(second, 3))
	assert.Equal(t, 3.0, s.AddDelta(second, 3))
	assert.Equal(t, 8.0, s.AddDelta(2*second, 5))
}
