// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package attribution_test

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/processor/gpujoinprocessor/internal/attribution"
)

// rate is a counter that increases linearly and is known everywhere.
type rate struct{ perNS float64 }

func (r rate) Knots(from, to int64, dst []attribution.Knot) []attribution.Knot {
	return append(dst, attribution.Knot{Time: from}, attribution.Knot{
		Time: to, Value: float64(to-from) * r.perNS,
		Covered: to - from,
	})
}

func (rate) Levels(_ uint64, _, _ int64, dst []attribution.Level) []attribution.Level { return dst }

func (rate) Windows(_, _ int64, dst []attribution.Window) []attribution.Window { return dst }

func key(id int) attribution.Key {
	k := attribution.Key{Trace: [16]byte{1}}
	k.Span = spanID(id)
	return k
}

func spanID(id int) (s [8]byte) {
	if id != 0 {
		binary.BigEndian.PutUint64(s[:], uint64(id))
	}
	return s
}

func span(id, parent, process, start, end int) attribution.Span {
	return attribution.Span{
		Key: key(id), Parent: spanID(parent), Process: uint64(process),
		Start: int64(start) * cellNS, End: int64(end) * cellNS,
	}
}

func newDevice() *attribution.Device {
	return attribution.New(attribution.Limits{}, &attribution.Budget{Max: 1 << 20})
}

func take(d *attribution.Device, s attribution.Span, m attribution.Meter) attribution.Arrival {
	a, _, _ := d.Add(s, 0, m)
	return a
}

// share looks a span up by the handle from its arrival.
func share(d *attribution.Device, id int) (attribution.Share, bool) {
	at, known := d.HandleOf(key(id))
	s, ok := d.Share(key(id), at)
	return s, ok && known
}

func shares(t *testing.T, d *attribution.Device, ids ...int) []float64 {
	t.Helper()
	out := make([]float64, len(ids))
	for i, id := range ids {
		s, ok := share(d, id)
		require.True(t, ok, "span %d", id)
		out[i] = s.Value
	}
	return out
}

// flat returns a device that consumes 1 unit per cell.
func flat() *grid {
	g := &grid{flow: make([]float64, 1000), known: make([]bool, 1000), dealt: make([]bool, 1000)}
	for i := range g.flow {
		g.flow[i], g.known[i] = 1, true
	}
	return g
}
