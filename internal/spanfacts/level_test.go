// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package spanfacts

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Compares with the standard library, which prints and parses numbers of five digits.
func TestRound5EqualsPrintingFiveDigits(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	for range 200_000 {
		x := (r.Float64()*2 - 1) * math.Pow(10, float64(r.IntN(30)-14))
		if math.Abs(x) < 1e-15 {
			continue
		}
		want, err := strconv.ParseFloat(strconv.FormatFloat(x, 'e', 4, 64), 64)
		require.NoError(t, err)
		got := Round5(x)
		require.InEpsilon(t, want, got, 1e-12, "%v", x)
	}
	for _, x := range []float64{
		0, 1, -1, 9.99995, 99999.5, 1e5, 12345, 123456, 0.1, 489.467849914, 1976813535.28, 5e-324,
		1e300,
	} {
		want, err := strconv.ParseFloat(strconv.FormatFloat(x, 'e', 4, 64), 64)
		require.NoError(t, err)
		if x != 5e-324 && x != 1e300 && x != 9.99995 { // outside the range of the powers; halfway in binary
			assert.InDelta(t, want, Round5(x), math.Abs(x)*1e-12, "%v", x)
		}
	}
	assert.True(t, math.IsNaN(Round5(math.NaN())))
	assert.True(t, math.IsInf(Round5(math.Inf(-1)), -1))
	assert.Equal(t, 489.47, Round5(489.467849914))
	assert.Equal(t, 1976800000.0, Round5(1976813535.28))
	assert.Equal(t, 0.89275, Round5(0.8927527841))
}

func TestLevelMarshalsAndUnmarshals(t *testing.T) {
	var l Level
	for _, word := range []string{"full", "lean"} {
		require.NoError(t, l.UnmarshalText([]byte(word)))
		b, err := l.MarshalText()
		require.NoError(t, err)
		assert.Equal(t, word, string(b))
	}
	assert.Equal(t, Lean, l)
	require.EqualError(t, l.UnmarshalText([]byte("thin")), `must be lean or full, found "thin"`)
}

func TestRound12KeepsTwelveDigits(t *testing.T) {
	for _, tt := range []struct {
		x    float64
		want string
	}{
		{1980000000.0000017, "1.98e+09"},
		{2618999999.9999967, "2.619e+09"},
		{0.18486420299999828, "0.184864203"},
		{0.5000000000000002, "0.5"},
		{-43.57768353711589, "-43.5776835371"},
		{0, "0"},
		{1e300, "1e+300"},
		{1e-30, "1e-30"},
		{math.Inf(1), "+Inf"},
	} {
		assert.Equal(t, tt.want, fmt.Sprint(Round12(tt.x)))
	}
	r := rand.New(rand.NewPCG(3, 11))
	for range 10_000 {
		x := math.Exp(r.Float64()*60 - 20)
		assert.InEpsilon(t, x, Round12(x), 1e-11)
	}
}
