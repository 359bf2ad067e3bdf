// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package property holds what should be true of any input against a hundred drawn ones, in this module's tests. A
// failure prints the drawn values and the seed; -property.seed repeats the run, -property.checks draws more.
package property

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

var (
	seed   = flag.Uint64("property.seed", 0, "the seed of drawn values (0: of the clock)")
	checks = flag.Int("property.checks", 100, "how many inputs each property is held against")
)

// T is the test of one drawn input.
type T struct {
	testing.TB
	rand  *rand.Rand
	drawn []string
}

// Check calls the property with inputs until one fails.
func Check(t *testing.T, property func(*T)) {
	t.Helper()
	from := *seed
	if from == 0 {
		from = uint64(time.Now().UnixNano())
	}
	for i := range *checks {
		c := &T{TB: t, rand: rand.New(rand.NewPCG(from, uint64(i)))}
		func() {
			defer func() {
				if t.Failed() {
					t.Logf("input %d of -property.seed=%d: %s", i, from, c.drawn)
				}
			}()
			property(c)
		}()
		if t.Failed() {
			return
		}
	}
}

// Gen makes values.
type Gen[V any] func(*T) V

// Draw makes one value, and keeps it under a name for a failure's message.
func (g Gen[V]) Draw(t *T, name string) V {
	v := g(t)
	t.drawn = append(t.drawn, fmt.Sprintf("%s=%v", name, v))
	return v
}

// Custom makes values from those of other generators.
func Custom[V any](f func(*T) V) Gen[V] { return f }

// Bool is either.
func Bool() Gen[bool] { return func(t *T) bool { return t.rand.Uint64()&1 == 1 } }

// Byte is any byte, often one that means something to JSON or UTF-8.
func Byte() Gen[byte] {
	return func(t *T) byte {
		if n := t.rand.IntN(4); n == 0 {
			const special = "\x00\n\"\\/<\x7f\x80\xbf\xc0\xe2\xf0\xff"
			return special[t.rand.IntN(len(special))]
		}
		return byte(t.rand.Uint64())
	}
}

// IntRange is from low to high, both included.
func IntRange(low, high int) Gen[int] {
	return func(t *T) int { return int(between(t.rand, int64(low), int64(high))) }
}

// Int64Range is from low to high, both included.
func Int64Range(low, high int64) Gen[int64] {
	return func(t *T) int64 { return between(t.rand, low, high) }
}

// Int64 is any.
func Int64() Gen[int64] { return Int64Range(math.MinInt64, math.MaxInt64) }

// The bounds and what lies next to them are drawn one time in four, small numbers as often as large ones.
func between(r *rand.Rand, low, high int64) int64 {
	if low > high {
		panic(fmt.Sprintf("property: no number from %d to %d", low, high))
	}
	span := uint64(high) - uint64(low)
	var n uint64
	switch r.IntN(8) {
	case 0:
		n = min(span, r.Uint64N(3))
	case 1:
		n = span - min(span, r.Uint64N(3))
	case 2, 3:
		n = r.Uint64() >> r.IntN(64)
	default:
		n = r.Uint64()
	}
	if n > span {
		n %= span + 1
	}
	return int64(uint64(low) + n)
}

// Float64Range is from low to high, the bounds one time in eight.
func Float64Range(low, high float64) Gen[float64] {
	return func(t *T) float64 {
		switch t.rand.IntN(16) {
		case 0:
			return low
		case 1:
			return high
		}
		return low + (high-low)*t.rand.Float64()
	}
}

// Float64 is any number that is finite.
func Float64() Gen[float64] {
	return func(t *T) float64 {
		for {
			v := math.Float64frombits(t.rand.Uint64())
			switch t.rand.IntN(4) {
			case 0:
				v = float64(between(t.rand, -10, 10))
			case 1:
				v = t.rand.NormFloat64()
			}
			if !math.IsNaN(v) && !math.IsInf(v, 0) {
				return v
			}
		}
	}
}

// SampledFrom is one of the values.
func SampledFrom[V any](values []V) Gen[V] {
	return func(t *T) V { return values[t.rand.IntN(len(values))] }
}

// SliceOf has up to 60 elements.
func SliceOf[V any](g Gen[V]) Gen[[]V] { return SliceOfN(g, 0, 60) }

// SliceOfN has from low to high elements, both included.
func SliceOfN[V any](g Gen[V], low, high int) Gen[[]V] {
	return func(t *T) []V {
		s := make([]V, between(t.rand, int64(low), int64(high)))
		for i := range s {
			s[i] = g(t)
		}
		return s
	}
}

// Distinct is some of the values, from low to high of them, each once.
func Distinct[V any](values []V, low, high int) Gen[[]V] {
	return func(t *T) []V {
		some := make([]V, 0, high)
		for _, i := range t.rand.Perm(len(values))[:between(t.rand, int64(low), int64(high))] {
			some = append(some, values[i])
		}
		return some
	}
}
