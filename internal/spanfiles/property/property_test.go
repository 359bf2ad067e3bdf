// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package property

import (
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func drawer(t *testing.T, input uint64) *T { return &T{TB: t, Rand: rand.New(rand.NewPCG(7, input))} }

// failing enables the test that another process runs: its property holds only for numbers below 50.
const failing = "OTELGPU_TEST_FAILING_PROPERTY"

func TestAFailureNamesItsInputAndSeed(t *testing.T) {
	if os.Getenv(failing) != "" {
		Check(t, func(p *T) {
			n := IntRange(0, 1000).Draw(p, "n")
			if n >= 50 {
				p.Errorf("%d is too large", n)
			}
		})
		return
	}
	run := func() string {
		c := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-property.seed=7")
		c.Env = append(os.Environ(), failing+"=1")
		out, err := c.CombinedOutput()
		require.Error(t, err, "the test passes")
		return string(out)
	}
	first := run()
	require.Regexp(t, `(\d+) is too large\n(?s:.*)input \d+ of -property.seed=7: \[n=\d+\]`, first)
	require.Equal(t, 1, strings.Count(first, "too large"), "it ends with the first failure")
	line, _, _ := strings.Cut(first, "(") // without its duration
	require.True(t, strings.HasPrefix(run(), line), "a seed repeats the run")
}

func TestEachPropertyIsComparedWithAHundredInputs(t *testing.T) {
	seen := map[int64]bool{}
	Check(t, func(p *T) { seen[Int64Range(math.MinInt64, math.MaxInt64).Draw(p, "n")] = true })
	require.Greater(t, len(seen), *checks/2, "and they differ")
}

// Draws include both ends of a range and their neighbors, and never exceed it.
func TestDrawnNumbersAreInTheirRange(t *testing.T) {
	for _, c := range []struct{ low, high int64 }{
		{0, 0}, {-3, 4}, {math.MinInt64, math.MaxInt64}, {math.MaxInt64 - 1, math.MaxInt64}, {math.MinInt64, math.MinInt64},
	} {
		seen := map[int64]bool{}
		for i := range uint64(2000) {
			n := Int64Range(c.low, c.high).Draw(drawer(t, i), "n")
			require.True(t, n >= c.low && n <= c.high, n)
			seen[n] = true
		}
		require.True(t, seen[c.low] && seen[c.high], "the ends of %d to %d", c.low, c.high)
		if span := uint64(c.high) - uint64(c.low); span < 10 {
			require.Len(t, seen, int(span)+1, "each of few")
		}
	}
	require.PanicsWithValue(t, "property: no number from 2 to 1", func() { Int64Range(2, 1).Draw(drawer(t, 0), "n") })
	whole, normal := false, false
	for i := range uint64(2000) {
		f := Float64Range(-1, 1).Draw(drawer(t, i), "f")
		require.True(t, f >= -1 && f <= 1, f)
		whole, normal = whole || f == 1, normal || f > 0 && f < 1
	}
	require.True(t, whole && normal)
}

func TestDrawnSlicesHaveTheirLengthAndValues(t *testing.T) {
	lengths := map[int]bool{}
	for i := range uint64(500) {
		p := drawer(t, i)
		s := SliceOfN(SampledFrom([]string{"a", "b"}), 1, 3).Draw(p, "s")
		lengths[len(s)] = true
		for _, v := range s {
			require.True(t, v == "a" || v == "b", v)
		}
	}
	require.Equal(t, map[int]bool{1: true, 2: true, 3: true}, lengths)
}
