// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package stackprofile

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/spanfacts"
)

func numberedKey(n uint64) (k spanfacts.Key) {
	binary.BigEndian.PutUint64(k.Trace[:], 1)
	binary.BigEndian.PutUint64(k.Span[:], n)
	return k
}

func TestCountedSpansKeepThoseInUse(t *testing.T) {
	c := countedSpans{max: 100}
	put := func(n uint64) {
		k := numberedKey(n)
		c.put(k, k.Hash(), counted{start: n})
	}
	put(0)
	for n := uint64(1); n < 10_000; n++ {
		put(n)
		got, ok := c.get(numberedKey(0))
		require.True(t, ok, "in use")
		require.Zero(t, got.start)
		got, ok = c.get(numberedKey(max(1, n-min(n, 30))))
		require.True(t, ok, "recent")
		require.Equal(t, max(1, n-min(n, 30)), got.start)
		require.LessOrEqual(t, len(c.newer.list)+len(c.older.list), 200)
	}
	_, ok := c.get(numberedKey(1))
	require.False(t, ok, "dropped")
	k := numberedKey(9999)
	c.put(k, k.Hash(), counted{end: 7})
	got, _ := c.get(k)
	require.Equal(t, counted{end: 7}, got)
}

// Spans that wait, what is found on the way up from them, and idle time are in memory that is reused.
func TestSpansOfKnownStacksAllocateNothing(t *testing.T) {
	td := ptrace.NewTraces()
	ss := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans()
	for _, d := range draw(rand.New(rand.NewPCG(1, 4)), 100) {
		d.write(ss)
	}
	x := New(Options{Repeats: -1, Window: time.Minute})
	now := int64(epoch) + int64(time.Second)
	run := func() {
		x.Add(td, now)
		x.Resolve(now, true)
	}
	for range 200 { // maps of bounded size have grown
		run()
	}
	require.Less(t, testing.AllocsPerRun(20, run), 8.0, "%d spans", ss.Len())
}
