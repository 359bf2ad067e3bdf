// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestTidyKeepsTwelveDigits(t *testing.T) {
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
		assert.Equal(t, tt.want, fmt.Sprint(tidy(tt.x)))
	}
	r := rand.New(rand.NewPCG(3, 11))
	for range 10_000 {
		x := math.Exp(r.Float64()*60 - 20)
		assert.InEpsilon(t, x, tidy(x), 1e-11)
	}
}
