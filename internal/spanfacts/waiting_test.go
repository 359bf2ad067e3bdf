// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package spanfacts

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func key(n int) Key { return Key{Span: [8]byte{byte(n), byte(n >> 8), 1}} }

func TestASumWaitsUntilItIsTaken(t *testing.T) {
	var w Waiting[int]
	sum, _ := w.At(key(1), 10)
	*sum = 5
	sum, _ = w.At(key(1), 20)
	*sum += 2
	require.Equal(t, 7, *w.Get(key(1)))
	got, ok := w.Take(key(1))
	require.True(t, ok)
	require.Equal(t, 7, got)
	_, ok = w.Take(key(1))
	require.False(t, ok)
	require.Nil(t, w.Get(key(1)))
}

func TestAtEvictsTheOldestSum(t *testing.T) {
	var gone []int
	w := Waiting[int]{Max: 2, Dropped: func(n int) { gone = append(gone, n) }}
	for i := range 4 {
		sum, dropped := w.At(key(i), int64(i))
		*sum = i
		require.Equal(t, max(0, min(1, i-1)), dropped)
	}
	require.Equal(t, []int{0, 1}, gone)
	require.Equal(t, 1, w.Expire(2))
	require.Equal(t, []int{0, 1, 2}, gone)
	require.Equal(t, 1, w.Len())
}

// A sum that restarts after it was taken has the age of its restart.
func TestTheAgeOfASumRestartsAfterTake(t *testing.T) {
	var w Waiting[int]
	w.At(key(1), 1)
	w.Take(key(1))
	w.At(key(1), 5)
	require.Zero(t, w.Expire(4))
	require.Equal(t, 1, w.Expire(5))
}

// Compares with a plain map with times.
func TestWaitingEqualsAMapWithAges(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	w := Waiting[int]{Max: 50}
	type entry struct{ sum, born int }
	want := map[Key]entry{}
	for now := range 20_000 {
		k := key(r.IntN(200))
		switch r.IntN(5) {
		case 0:
			sum, ok := w.Take(k)
			e, there := want[k]
			require.Equal(t, there, ok)
			require.Equal(t, e.sum, sum)
			delete(want, k)
		case 1:
			if now%50 == 0 {
				w.Expire(int64(now - 60))
				for k, e := range want {
					if e.born <= now-60 {
						delete(want, k)
					}
				}
			}
		default:
			sum, _ := w.At(k, int64(now))
			*sum += now
			e, there := want[k]
			if !there {
				e.born = now
				if len(want) == 50 {
					oldest := k
					for o, x := range want {
						if y, ok := want[oldest]; !ok || x.born < y.born {
							oldest = o
						}
					}
					delete(want, oldest)
				}
			}
			e.sum += now
			want[k] = e
		}
		require.Equal(t, len(want), w.Len())
		require.LessOrEqual(t, len(w.order), 2*50+65)
	}
	for k, e := range want {
		require.Equal(t, e.sum, *w.Get(k))
	}
}

// Sums that start and are taken at the same time leave no entry.
func TestTakenSumsLeaveNoEntries(t *testing.T) {
	var w Waiting[int]
	for range 1000 {
		w.At(key(1), 7)
		w.Take(key(1))
	}
	require.LessOrEqual(t, len(w.order), 66)
	w.At(key(1), 7)
	w.Max = 1
	_, dropped := w.At(key(2), 7)
	require.Equal(t, 1, dropped)
	require.Nil(t, w.Get(key(1)))
}
