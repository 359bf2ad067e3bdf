// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetricsconnector

import "slices"

// median of values, which it sorts. 0 of none.
func median(values []float64) float64 {
	n := len(values)
	if n == 0 {
		return 0
	}
	slices.Sort(values)
	if n%2 == 1 {
		return values[n/2]
	}
	return values[n/2-1]/2 + values[n/2]/2
}

// madToSigma makes the median absolute deviation an estimate of the standard deviation of a normal distribution:
// 1 / Φ⁻¹(3/4) (Rousseeuw and Croux, JASA 88, 1993).
const madToSigma = 1.4826022185056018

// deviation is the scaled median absolute deviation from m; it overwrites and sorts values.
func deviation(values []float64, m float64) float64 {
	for i, v := range values {
		values[i] = max(v-m, m-v)
	}
	return madToSigma * median(values)
}
