// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package devicesamples

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestValuesOutsideADomainAreInvalid(t *testing.T) {
	for f, limits := range map[Field][4]float64{ // invalid, valid, valid, invalid
		Utilization: {-0.01, 0, 1.05, 1.06},
		Power:       {-1, 0, 100_000, 100_001},
		Temperature: {-101, -100, 300, 301},
		ClockSM:     {-1, 0, 100e9, 101e9},
		MemoryUsed:  {-1, 0, 1 << 50, 1<<50 + 1},
		SMOccupancy: {-0.01, 0, 1.05, 1.06},
		Energy:      {-1, 0, 1e18, math.NaN()},
	} {
		for i, want := range []bool{false, true, true, false} {
			assert.Equal(t, want, f.Valid(limits[i]), "%s %g", f, limits[i])
		}
	}
}
