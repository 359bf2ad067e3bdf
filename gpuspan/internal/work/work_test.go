// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan/internal/statistics"
)

func TestImpossibleWorkIsRemoved(t *testing.T) {
	right := Work{
		Read: mostStated - 1, Written: 2, Bytes: 3, Items: 4, FLOPs: mostFLOPs, Precision: INT8,
	}
	require.False(t, right.Wrong())
	for name, c := range map[string]struct{ wrong, want Work }{
		"negative":   {Work{Read: -1, Items: 4}, Work{Items: 4}},
		"too many":   {Work{Written: mostStated, Bytes: 3}, Work{Bytes: 3}},
		"bytes":      {Work{Bytes: math.MinInt64}, Work{}},
		"items":      {Work{Items: -4, Read: 1}, Work{Read: 1}},
		"FLOPs":      {Work{FLOPs: -1, Items: 1}, Work{Items: 1}},
		"no number":  {Work{FLOPs: math.NaN()}, Work{}},
		"infinite":   {Work{FLOPs: math.Inf(1)}, Work{}},
		"one beyond": {Work{FLOPs: math.Nextafter(mostFLOPs, math.Inf(1))}, Work{}},
		"precision":  {Work{FLOPs: 1, Precision: INT8 + 1}, Work{FLOPs: 1}},
	} {
		require.True(t, c.wrong.Wrong(), name)
		c.wrong.Sanitize()
		require.Equal(t, c.want, c.wrong, name)
	}
	before := right
	right.Sanitize()
	require.Equal(t, before, right)
}

func TestSumsOfWorkKeepAStatedPrecision(t *testing.T) {
	w := Work{Read: 1, Written: 2, Bytes: 3, Items: 4, FLOPs: 5, Precision: BF16}
	w.Add(&Work{Read: 10, Written: 20, Bytes: 30, Items: 40, FLOPs: 50})
	require.Equal(t, Work{Read: 11, Written: 22, Bytes: 33, Items: 44, FLOPs: 55, Precision: BF16}, w)
	w.Add(&Work{Precision: FP8})
	require.Equal(t, FP8, w.Precision)
	require.True(t, w.Stated())
	require.False(t, (&Work{Precision: FP8}).Stated())
}

// A copy within device memory counts as read and write; one over the bus counts as PCIe traffic in
// its direction.
func TestWhereBytesMoved(t *testing.T) {
	w := Work{Read: 1, Written: 2, Bytes: 4}
	type io struct {
		memory statistics.IO
		pcie   statistics.Transfer
	}
	for d, want := range map[Direction]io{
		DirectionUnset: {memory: statistics.IO{Read: 1, Written: 2, Unsplit: 4}},
		HostToDevice:   {pcie: statistics.Transfer{ToDevice: 6}},
		DeviceToHost:   {pcie: statistics.Transfer{FromDevice: 6}},
		DeviceToDevice: {memory: statistics.IO{Read: 6, Written: 6}},
		PeerToPeer:     {},
	} {
		w := w
		w.Once(d) // read and written bytes of a copy are the same bytes
		memory, pcie := w.Io(d, nil)
		require.Equal(t, want, io{memory, pcie}, d.String())
	}
	copied := [Directions]int64{DirectionUnset: 100, HostToDevice: 1000, DeviceToHost: 0}
	memory, pcie := w.Io(DirectionUnset, &copied)
	require.Equal(t, statistics.IO{Read: 1, Written: 2, Unsplit: 104}, memory)
	require.Equal(t, statistics.Transfer{ToDevice: 1000}, pcie)
}

func TestTalliesSumByDirectionAndPrecision(t *testing.T) {
	var tally Tally
	require.False(t, tally.Stated())
	tally.Count.Add(9)
	require.False(t, tally.Stated(), "runs alone state no work")
	tally.Add(&Work{Read: 1, Written: 2, Bytes: 4, Items: 8, FLOPs: 0.5, Precision: BF16}, DirectionUnset)
	tally.Add(&Work{Read: 1, Written: 2, Bytes: 4, FLOPs: 1.5, Precision: BF16}, DeviceToHost)
	tally.Add(&Work{FLOPs: 3, Precision: Precision(Precisions)}, Directions)
	s := tally.Load()
	require.True(t, tally.Stated())
	want := TallySnapshot{Count: 9, Items: 8, Read: 1, Written: 2}
	want.Copied[DirectionUnset], want.Copied[DeviceToHost] = 4, 7
	want.FLOPs[BF16], want.FLOPs[PrecisionUnset] = 2, 3
	require.Equal(t, want, s)
	s.Add(s)
	require.EqualValues(t, []int64{18, 16, 2, 4, 14},
		[]int64{s.Count, s.Items, s.Read, s.Written, s.Copied[DeviceToHost]})
}

func TestNamesAreEmptyBeyondTheirTables(t *testing.T) {
	require.Equal(t, []string{"", "bf16", "int8", ""},
		[]string{PrecisionUnset.String(), BF16.String(), INT8.String(), Precision(200).String()})
	require.Equal(t, []string{"", "host_to_host", ""},
		[]string{DirectionUnset.String(), HostToHost.String(), Directions.String()})
	require.Equal(t, []string{"", "pinned", "pageable", ""},
		[]string{MemoryUnset.String(), Pinned.String(), Pageable.String(), HostMemory(9).String()})
}
