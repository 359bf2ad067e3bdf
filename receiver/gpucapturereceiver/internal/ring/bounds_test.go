// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package ring

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// forged returns a ring from a foreign file: a page of counters, and a body that the layout
// describes.
func forged(t *testing.T, l layout, size int64, body []byte) *Ring {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "x.ring"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = f.Close() })
	_, err = f.Write(body)
	require.NoError(t, err)
	require.NoError(t, f.Truncate(size))
	l.recordSize = RecordSize
	return &Ring{
		file: f, layout: l, page: make([]byte, headerSize), names: map[uint32]string{}, buf: make([]byte, 4*RecordSize),
	}
}

// A sparse file that claims millions of names takes no memory for them.
func TestNamesOfASparseFileTakeNoMemory(t *testing.T) {
	const size = 64 << 20
	r := forged(t, layout{namesCap: size}, size, nil)
	r.word64(offNamesUsed).Store(size)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, ok := r.Name(size/8 - 1)
	runtime.ReadMemStats(&after)
	require.False(t, ok)
	require.Empty(t, r.names)
	require.EqualValues(t, size, r.seen, "nothing is read twice")
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20))
}

// Many names of one letter are bounded by the memory of the map.
func TestShortNamesAreBounded(t *testing.T) {
	const names = 200_000
	body := make([]byte, 8*names)
	for i := range names {
		binary.LittleEndian.PutUint32(body[8*i:], 1)
		body[8*i+4] = 'k'
	}
	r := forged(t, layout{namesCap: uint64(len(body))}, int64(len(body)), body)
	r.word64(offNamesUsed).Store(uint64(len(body)))
	first, ok := r.Name(0)
	require.True(t, ok)
	require.Equal(t, "k", first)
	_, ok = r.Name(names - 1)
	require.False(t, ok)
	require.Len(t, r.names, maxNames/(nameOverhead+1))
}

// Names are found across boundaries of the pieces of the file.
func TestNamesAcrossPieces(t *testing.T) {
	var body []byte
	at := map[uint32]string{}
	for i := 0; len(body) < 3*namesPiece; i++ {
		name := strings.Repeat(string(rune('a'+i%26)), 1+i*997%maxName)
		at[uint32(len(body)/8)] = name
		body = binary.LittleEndian.AppendUint32(body, uint32(len(name)))
		body = append(body, name...)
		for len(body)%8 != 0 {
			body = append(body, 0)
		}
	}
	r := forged(t, layout{namesCap: uint64(len(body))}, int64(len(body)), body)
	r.word64(offNamesUsed).Store(uint64(len(body)))
	for number, want := range at {
		got, ok := r.Name(number)
		require.True(t, ok)
		require.Equal(t, want, got)
	}
}

// One call passes on a limited number of records and leaves the others.
func TestReadReturnsALimitedNumberOfRecords(t *testing.T) {
	r := forged(t, layout{recordsCap: 64}, 64*RecordSize, nil)
	read := func(most int) int {
		n, err := r.Read(most, func(Record) {})
		require.NoError(t, err)
		require.Equal(t, r.tail, r.word64(offTail).Load())
		return n
	}
	r.word64(offHead).Store(10)
	require.Equal(t, 7, read(7))
	require.Equal(t, 3, read(math.MaxInt))
	r.word64(offHead).Store(60)
	require.NoError(t, r.Discard())
	require.Zero(t, read(math.MaxInt))
}
