// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package stackprofile

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// Ranks whose random generators are seeded alike draw the same IDs: each has the stacks that it has
// alone, with links to its spans.
func TestRanksMayHaveEqualIDs(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 8))
		all := draw(rng, 10)
		ids := map[string]bool{}
		b := New(Options{Window: time.Hour})
		now := int64(epoch) + int64(time.Second)
		for _, i := range rng.Perm(2 * len(all)) {
			d, rank := all[i/2], i%2
			if d.device > 0 {
				d.device += 2 * rank
			}
			td := ptrace.NewTraces()
			rs := td.ResourceSpans().AppendEmpty()
			rs.Resource().Attributes().PutStr("service.name", "s")
			rs.Resource().Attributes().PutInt("gpu.job.rank", int64(rank))
			spans := rs.ScopeSpans().AppendEmpty().Spans()
			d.write(spans)
			ids[spans.At(0).TraceID().String()+spans.At(0).SpanID().String()] = true
			b.Add(td, now)
			if now += int64(10 * time.Millisecond); rng.IntN(20) == 0 {
				b.Resolve(now, false)
			}
		}
		b.Resolve(now, true)
		list := b.Take(math.MaxInt64)
		wantTime, wantEnergy := oracle(all)
		for k := range wantTime {
			wantTime[k] *= 2
			wantEnergy[k] *= 2
		}
		time, energy := byStack(list)
		require.Equal(t, clean(wantTime), time, "seed %d", seed)
		require.InDeltaMapValues(t, clean(wantEnergy), energy, 1e-3, "seed %d", seed)
		for _, p := range list {
			for _, s := range p.Samples() {
				require.True(t, ids[s.Link.Trace.String()+s.Link.Span.String()], "%v", s.Link)
			}
		}
	}
}
