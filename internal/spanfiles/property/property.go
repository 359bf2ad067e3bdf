// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package property checks properties of any input with a hundred generated ones, in this module's
// tests. A failure prints the generated values and the seed; -property.seed repeats the run,
// -property.checks generates more.
package property

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

var (
	seed   = flag.Uint64("property.seed", 0, "the seed of drawn values (0: of the clock)")
	checks = flag.Int("property.checks", 100, "how many inputs each property is checked with")
)

// T is the test of one generated input.
type T struct {
	testing.TB
	Rand  *rand.Rand // for generators of the test's own
	drawn []string
}

// Check calls the property with inputs until one fails.
func Check(t *testing.T, property func(*T)) {
	t.Helper()
	from := cmp.Or(*seed, uint64(time.Now().UnixNano()))
	for i := range *checks {
		c := &T{TB: t, Rand: rand.New(rand.NewPCG(from, uint64(i)))}
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

// Draw generates a value, and keeps it under a name for a failure's message.
func (g Gen[V]) Draw(t *T, name string) V {
	v := g(t)
	t.drawn = append(t.drawn, fmt.Sprintf("%s=%v", name, v))
	return v
}

// Bool draws true or false.
func Bool() Gen[bool] { return func(t *T) bool { return t.Rand.Uint64()&1 == 1 } }

// IntRange draws from low to high, both included.
func IntRange(low, high int) Gen[int] {
	return func(t *T) int { return int(between(t.Rand, int64(low), int64(high))) }
}

// Int64Range draws from low to high, both included.
func Int64Range(low, high int64) Gen[int64] {
	return func(t *T) int64 { return between(t.Rand, low, high) }
}

// The bounds and the values next to them are drawn one time in four, small numbers as often as
// large ones.
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

// Float64Range draws from low to high, and the bounds one time in eight.
func Float64Range(low, high float64) Gen[float64] {
	return func(t *T) float64 {
		switch t.Rand.IntN(16) {
		case 0:
			return low
		case 1:
			return high
		}
		return low + (high-low)*t.Rand.Float64()
	}
}

// SampledFrom returns one of the values.
func SampledFrom[V any](values []V) Gen[V] {
	return func(t *T) V { return values[t.Rand.IntN(len(values))] }
}

// SliceOfN draws from low to high elements, both included.
func SliceOfN[V any](g Gen[V], low, high int) Gen[[]V] {
	return func(t *T) []V {
		s := make([]V, between(t.Rand, int64(low), int64(high)))
		for i := range s {
			s[i] = g(t)
		}
		return s
	}
}
