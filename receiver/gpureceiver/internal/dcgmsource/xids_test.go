// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package dcgmsource

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestAFullListForgetsItsOldestXIDs(t *testing.T) {
	var s seenXIDs
	s.begin(1)
	for i := range int64(4097) {
		assert.True(t, s.add("GPU-1", 10+i, 79))
	}
	assert.False(t, s.add("GPU-1", 10+2048, 79), "known")
	assert.True(t, s.add("GPU-1", 10+2047, 79), "forgotten")
}
