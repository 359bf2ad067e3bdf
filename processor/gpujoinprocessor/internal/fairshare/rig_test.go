// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package fairshare_test

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/processor/gpujoinprocessor/internal/fairshare"
)

// rate is a counter that grows evenly and is known everywhere.
type rate struct{ perNS float64 }

func (r rate) Knots(from, to int64, dst []fairshare.Knot) []fairshare.Knot {
	return append(dst, fairshare.Knot{Time: from}, fairshare.Knot{
		Time: to, Value: float64(to-from) * r.perNS,
		Covered: to - from,
	})
}

func (rate) Covered(from, to int64) int64 { return to - from }

func key(id int) fairshare.Key {
	k := fairshare.Key{Trace: [16]byte{1}}
	k.Span = spanID(id)
	return k
}

func spanID(id int) (s [8]byte) {
	if id != 0 {
		binary.BigEndian.PutUint64(s[:], uint64(id))
	}
	return s
}

func span(id, parent, process, start, end int) fairshare.Span {
	return fairshare.Span{
		Key: key(id), Parent: spanID(parent), Process: uint64(process),
		Start: int64(start) * cellNS, End: int64(end) * cellNS,
	}
}

func newDevice() *fairshare.Device {
	return fairshare.New(fairshare.Limits{}, &fairshare.Budget{Max: 1 << 20})
}

func take(d *fairshare.Device, s fairshare.Span, m fairshare.Meter) fairshare.Arrival {
	a, _, _ := d.Arrive(s, 0, m)
	return a
}

// share looks a span up by the place that its arrival gave.
func share(d *fairshare.Device, id int) (fairshare.Share, bool) {
	at, known := d.PlaceOf(key(id))
	s, ok := d.Share(key(id), at)
	return s, ok && known
}

func shares(t *testing.T, d *fairshare.Device, ids ...int) []float64 {
	t.Helper()
	out := make([]float64, len(ids))
	for i, id := range ids {
		s, ok := share(d, id)
		require.True(t, ok, "span %d", id)
		out[i] = s.Value
	}
	return out
}

// flat is a device that draws 1 unit in each cell.
func flat() *grid {
	g := &grid{flow: make([]float64, 1000), known: make([]bool, 1000), dealt: make([]bool, 1000)}
	for i := range g.flow {
		g.flow[i], g.known[i] = 1, true
	}
	return g
}
