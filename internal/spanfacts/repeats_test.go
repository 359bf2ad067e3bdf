// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package spanfacts

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
)

func TestAgainDetectsRepeatedSpansWithinBounds(t *testing.T) {
	const most = 1000
	r := Repeats{Max: most}
	span := func(n int) *Facts {
		f := &Facts{Start: 1, End: 2}
		f.Key.Trace = pcommon.TraceID{1}
		binary.BigEndian.PutUint64(f.Key.Span[:], uint64(n)+1)
		return f
	}
	const all = 100 * most
	known := 0
	for n := range all {
		require.False(t, r.Again(span(n)))
		require.True(t, r.Again(span(n)))
		if r.Again(span(max(0, n-most/2))) {
			known++
		}
	}
	require.Greater(t, known, all*99/100, "after half as many others")
	require.Len(t, r.lines, 256)
	require.False(t, r.Again(span(0)), "forgotten")
	other := span(all - 1)
	other.End++
	require.False(t, r.Again(other), "another span with the same IDs")
	last := span(all - 1)
	r.Forget(last.Key, last.Start, last.End)
	r.Forget(last.Key, last.Start, last.End)
	require.True(t, r.Again(span(all-2)), "the others of its line stay")
	require.False(t, r.AgainKey(last.Key, last.Start, last.End), "forgotten on request")
	require.True(t, r.Again(last))
	(&Repeats{Max: most}).Forget(last.Key, last.Start, last.End)
	for range 2 {
		require.False(t, r.Again(&Facts{}), "without IDs")
		require.False(t, (&Repeats{}).Again(span(1)))
	}
}

func BenchmarkAgain(b *testing.B) {
	r, f := Repeats{Max: 200_000}, &Facts{}
	f.Key.Trace = pcommon.TraceID{1}
	b.ReportAllocs()
	for n := uint64(1); b.Loop(); n++ {
		binary.BigEndian.PutUint64(f.Key.Span[:], n)
		r.Again(f)
	}
}
