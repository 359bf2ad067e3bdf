// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import "math"

// tidy rounds to 12 or 13 significant digits. Differences of long sums end in noise (1980000000.0000017 Hz), which
// viewers print and JSON carries; no meter is that exact, and sums over spans still agree to 1e-11.
func tidy(x float64) float64 {
	// The binary exponent times log10(2) is the decimal one, or one less.
	exp := int(math.Float64bits(x)>>52&0x7ff) - 1022
	digits := 11 - exp*1233>>12
	if digits <= 0 || digits >= len(pow10) { // zero, NaN and infinities are here too
		return x
	}
	return math.Round(x*pow10[digits]) / pow10[digits]
}

// pow10 are the powers of ten that a float64 holds exactly.
var pow10 = [...]float64{
	1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
}
