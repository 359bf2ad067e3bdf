// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// nest creates nested ranges, sorted by start, longer ones first.
func nest(r *rand.Rand, from, to int64, depth int, add func(start, end int64)) {
	for at := from; at < to; {
		start := at + r.Int64N(20)
		end := min(to, start+1+r.Int64N(max(2, (to-from)/2)))
		if start >= end {
			return
		}
		add(start, end)
		if depth > 0 {
			nest(r, start, end, depth-1, add)
		}
		at = end
	}
}

// TestALogStatesTheInnermostRange compares the log with the innermost of all ranges at every time.
func TestALogStatesTheInnermostRange(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		var log Log
		innermost := make([]uint32, 1000)
		id := uint32(0)
		nest(r, 0, 1000, 3, func(start, end int64) {
			id++
			log.Add(start, end, RangeNamed, id, func() int64 { return 0 })
			for i := start; i < end; i++ {
				innermost[i] = id // ranges come outermost first
			}
		})
		from := r.Int64N(500)
		to := from + 1 + r.Int64N(499)
		at := from
		for _, p := range log.over(nil, from, to) {
			assert.Equal(t, at, p.start, "nothing is omitted")
			for i := p.start; i < p.end; i++ {
				require.Equal(t, innermost[i], p.name, "at %d", i)
			}
			at = p.end
		}
		assert.Equal(t, to, at)
	}
}

// For any amount of host activity during an idle period, the log is bounded and covers all of it.
func TestALogIsBounded(t *testing.T) {
	var log Log
	const n = 50 * logPieces
	for i := range int64(n) {
		log.Add(10*i, 10*i+6, RangeOperator, uint32(1+i%3), func() int64 { return 0 })
	}
	assert.LessOrEqual(t, len(log.done), 3*logPieces)
	var covered int64
	for _, p := range log.over(nil, 0, 10*n) {
		covered += p.end - p.start
	}
	assert.Equal(t, int64(10*n), covered)
}
