// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package event

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type row struct {
	key, duration int64
	seq           uint32
	kind          Kind
	detail        string
}

func rows(t testing.TB, s *sorter) (out []row) {
	require.NoError(t, s.each(func(r *Record) error {
		out = append(out, row{r.Key, r.Duration, r.Seq, r.Kind, string(r.Detail)})
		return nil
	}))
	return out
}

func fill(t testing.TB, s *sorter, n int) (want []row) {
	rnd := rand.New(rand.NewPCG(7, 7))
	for i := range n {
		r := row{
			int64(rnd.IntN(100)), int64(rnd.IntN(3)), uint32(i + 1), Kind(1 + rnd.IntN(int(KindCount)-1)),
			string(make([]byte, rnd.IntN(50))),
		}
		want = append(want, r)
		require.NoError(t, s.add(&Record{
			Key: r.key, Duration: r.duration, Seq: r.seq, Kind: r.kind,
			Detail: []byte(r.detail),
		}))
	}
	slices.SortFunc(want, func(a, b row) int {
		device := func(k Kind) int {
			if k.Device() {
				return 1
			}
			return 0
		}
		for _, c := range []int64{
			a.key - b.key, int64(device(a.kind) - device(b.kind)), b.duration - a.duration, int64(a.kind) - int64(b.kind),
			int64(a.seq) - int64(b.seq),
		} {
			if c != 0 {
				return int(c)
			}
		}
		return 0
	})
	return want
}

func TestSorterGivesTheSameOrderFromMemoryAndFromFiles(t *testing.T) {
	for _, limit := range []int{1 << 20, 60_000, 2_000, 1} {
		dir := t.TempDir()
		s := newSorter(dir, limit)
		want := fill(t, s, 3000)
		assert.Equal(t, want, rows(t, s), "limit %d, %d runs", limit, len(s.runs))
		assert.Equal(t, want, rows(t, s), "a second time")
		left, err := filepath.Glob(filepath.Join(dir, "*"))
		require.NoError(t, err)
		assert.Empty(t, left, "the spill file has no name")
		require.NoError(t, s.close())
		require.NoError(t, s.close())
	}
}

func TestSorterNamesItsError(t *testing.T) {
	s := newSorter(filepath.Join(t.TempDir(), "none"), 100)
	var err error
	for i := 0; err == nil && i < 10; i++ {
		err = s.add(&Record{Key: int64(i)})
	}
	require.ErrorIs(t, err, os.ErrNotExist)
	assert.ErrorContains(t, err, "cannot create spill file")

	s = newSorter(t.TempDir(), 1<<20)
	fill(t, s, 10)
	stop := errors.New("stop")
	n := 0
	assert.ErrorIs(t, s.each(func(*Record) error { n++; return stop }), stop)
	assert.Equal(t, 1, n)
}

func BenchmarkSorter(b *testing.B) {
	detail := make([]byte, 40)
	rnd := rand.New(rand.NewPCG(1, 1))
	keys := make([]int64, 100_000)
	for i := range keys {
		keys[i] = int64(i) + int64(rnd.IntN(1000))
	}
	for name, limit := range map[string]int{"memory": 64 << 20, "spilled": 2 << 20} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s := newSorter(b.TempDir(), limit)
				for i, k := range keys {
					if err := s.add(&Record{Key: k, Seq: uint32(i), Kind: KindOperator, Detail: detail}); err != nil {
						b.Fatal(err)
					}
				}
				if err := s.each(func(*Record) error { return nil }); err != nil {
					b.Fatal(err)
				}
				if err := s.close(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)*float64(len(keys))/b.Elapsed().Seconds(), "records/s")
		})
	}
}
