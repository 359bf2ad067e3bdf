// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package spanfacts

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestAdjustedCount(t *testing.T) {
	for state, want := range map[string]float64{
		"ot=th:0": 1, "ot=th:8": 2, "ot=th:c": 4, "ot=rv:00000000000001;th:fd70a3d70a3d71": 100, "a=b, ot=th:8": 2,
		"ot=th:ffffffffffffff": 1 << 56, "x=y , ot=th:e": 8,
	} {
		n, ok := AdjustedCount(state)
		assert.True(t, ok, state)
		assert.InEpsilon(t, want, n, 1e-12, state)
	}
	for _, state := range []string{
		"", "x=y", "ot=", "ot=rv:1", "th:8", "ot=th:", "ot=th:xyz", "ot=th:111111111111111", "ot=th:-1", "ot=th:+1",
	} {
		n, ok := AdjustedCount(state)
		assert.False(t, ok, state)
		assert.InEpsilon(t, 1, n, 0, state)
	}
}
