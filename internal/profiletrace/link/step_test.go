// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package link

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// Each activity queries nested steps: there are at most openSteps of them, and ended ones are
// removed.
func TestStepsWithinEachOtherAreBounded(t *testing.T) {
	p := &Process{}
	const n = 10_000
	for i := range int64(n) {
		p.track(&Step{Start: i, End: 2*n - i})
	}
	during := 0
	p.during(n, n+1, func(*Step) { during++ })
	assert.Equal(t, openSteps, during)
	assert.EqualValues(t, n-openSteps, p.deep, "the others are counted")
	assert.Equal(t, int64(openSteps-1), p.stepAt(n).Start)
	p.passed(2 * n)
	assert.Empty(t, p.steps)

	p = &Process{} // consecutive, within a long one
	p.track(&Step{Start: 0, End: n})
	for i := range int64(n) {
		p.track(&Step{Start: i, End: i + 1})
		p.passed(i)
	}
	assert.LessOrEqual(t, len(p.steps), 2*openSteps)
	assert.Equal(t, int64(n), p.steps[0].End, "the long one is still open")
}
