// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/profiletrace/timeline"
)

// In 100 µs a quarter of the device is empty, except while another kernel runs for 40 µs. A short
// kernel does not count.
func TestOtherKernelsFillLastWaves(t *testing.T) {
	d := NewDevice(&timeline.Splitter{})
	for _, a := range []timeline.Activity{
		{Start: 0, End: 100_000, Tail: 0.25, Operator: 1},
		{Start: 30_000, End: 70_000, Operator: 2, Stream: 1},
		{Start: 200_000, End: 209_000, Tail: 0.5, Operator: 1},
	} {
		d.Add(&a, &timeline.Launch{}, 0)
	}
	r := d.Report(aContext())
	require.Len(t, r.Operators, 2)
	o := r.Operators[0]
	assert.Equal(t, [2]time.Duration{109_000, 60_000}, [2]time.Duration{o.Alone, o.Tailed})
	assert.InDelta(t, 15_000, o.Tail, 1e-6)
	half := o.Less(0.5)
	assert.Equal(t, time.Duration(30_000), half.Tailed)
	assert.InDelta(t, 7500, half.Tail, 1e-6)
}
