// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package sinktest

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Repeats checks that requests count once in a component that receives some of them repeatedly, as
// behind a fan-out whose other consumer rejects them, or from a sender that misses a response.
// start returns the consumer of a new component, and a function that stops it and returns its
// result. All requests are shared with others.
func Repeats[T interface{ MarkReadOnly() }](
	t *testing.T, feed []T, start func(t *testing.T) (consume func(T) error, result func() any),
) {
	run := func(t *testing.T, times func(i int) []int) any {
		consume, result := start(t)
		for i := range feed {
			for _, again := range times(i) {
				require.NoError(t, consume(feed[again]))
			}
		}
		return result()
	}
	for _, data := range feed {
		data.MarkReadOnly()
	}
	want := run(t, func(i int) []int { return []int{i} })
	require.NotEmpty(t, want)
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 2))
			assert.Equal(t, want, run(t, func(i int) []int {
				list := []int{i}
				for range r.IntN(3) {
					list = append(list, i)
				}
				for range r.IntN(3) {
					list = append(list, max(0, i-r.IntN(5)))
				}
				return list
			}))
		})
	}
}
