// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import "math"

// tidy rounds to 11 or 12 significant digits. Differences of long sums end in noise (1980000000.0000017 Hz), which viewers
// print and JSON carries; no meter is that exact, and sums over spans still agree to 1e-11.
func tidy(x float64) float64 {
	if x == 0 || math.IsNaN(x) || math.IsInf(x, 0) {
		return x
	}
	_, exp := math.Frexp(x)
	digits := 12 - int(math.Ceil(float64(exp)*math.Log10(2)))
	if digits <= 0 || digits > 22 { // powers of ten beyond are not exact
		return x
	}
	scale := math.Pow10(digits)
	return math.Round(x*scale) / scale
}
