// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/otelgpu/otelgpu/processor/gpujoinprocessor/internal/attribution"
)

// Recent host spans are found whether a parent is searched after each request or after many, and
// old ones are forgotten.
func TestRecentHostSpansAreFound(t *testing.T) {
	for _, every := range []uint64{1, 1000, 3 * maxHosts} {
		var h hosts
		at := func(i uint64) attribution.Key { return attribution.Key{Trace: [16]byte{1}, Span: spanID(i)} }
		const last = 3 * maxHosts
		for i := uint64(1); i <= last; i++ {
			h.add(hostSpan{key: at(i), parent: spanID(i + last)})
			if i%every == 0 {
				assert.Equal(t, [8]byte(spanID(i+last)), h.above(at(i)))
			}
		}
		found := 0
		for i := uint64(last - maxHosts/8); i <= last; i++ {
			switch up := h.above(at(i)); up {
			case [8]byte(spanID(i + last)):
				found++
			default:
				assert.Equal(t, [8]byte(spanID(i)), up)
			}
		}
		assert.GreaterOrEqual(t, found, maxHosts/8*99/100, "of the newest eighth")
		assert.Equal(t, [8]byte(spanID(1)), h.above(at(1)), "the oldest one")
		assert.Len(t, h.ring, maxHosts)
	}
}
