// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package stackprofile

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// Spans that wait, what is found on the way up from them, and idle time are in memory that is
// reused.
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
