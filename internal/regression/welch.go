// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package regression

import "math"

// average returns the mean of the blocks' means.
func average(list []block) (mean float64) {
	for _, b := range list {
		mean += b.sum / float64(b.count) / float64(len(list))
	}
	return mean
}

// moments returns the mean of the blocks' means and the variance of that mean.
func moments(list []block) (mean, variance float64) {
	mean = average(list)
	for _, b := range list {
		d := b.sum/float64(b.count) - mean
		variance += d * d
	}
	n := float64(len(list))
	return mean, variance / (n - 1) / n
}

// welch returns the difference of two means, the later less the earlier, and half the width of its interval (Welch
// 1947, with Satterthwaite's degrees of freedom). It returns false if there is no variance to judge by or if there are
// too few blocks.
func welch(before, now []block) (diff, half float64, ok bool) {
	if len(before) < 2 || len(now) < 2 {
		return 0, 0, false
	}
	meanBefore, vBefore := moments(before)
	meanNow, vNow := moments(now)
	v := vBefore + vNow
	diff = meanNow - meanBefore
	if v == 0 {
		return diff, 0, true // simulated or rounded values: exact
	}
	freedom := v * v / (vBefore*vBefore/float64(len(before)-1) + vNow*vNow/float64(len(now)-1))
	return diff, quantile(1-(1-Confidence)/2, freedom) * math.Sqrt(v), !math.IsNaN(diff)
}

// quantile returns the value below which Student's t is with probability p, above 1/2, by bisection.
func quantile(p, freedom float64) float64 {
	low, high := 0.0, 1.0
	for below(high, freedom) < p && high < 1e6 {
		low, high = high, 2*high
	}
	for range 60 {
		if mid := (low + high) / 2; below(mid, freedom) < p {
			low = mid
		} else {
			high = mid
		}
	}
	return high
}

// below returns the probability that Student's t is below x, at least 0.
func below(x, freedom float64) float64 {
	return 1 - incompleteBeta(freedom/(freedom+x*x), freedom/2, 0.5)/2
}

// incompleteBeta returns the regularized incomplete beta function by its continued fraction (DLMF 8.17.22), which
// converges fast for x below (a+1)/(a+b+2); beyond it the symmetry of the function is used.
func incompleteBeta(x, a, b float64) float64 {
	if x <= 0 || x >= 1 {
		return min(1, max(0, x))
	}
	if x > (a+1)/(a+b+2) {
		return 1 - incompleteBeta(1-x, b, a)
	}
	lnAB, _ := math.Lgamma(a + b)
	lnA, _ := math.Lgamma(a)
	lnB, _ := math.Lgamma(b)
	front := math.Exp(lnAB-lnA-lnB+a*math.Log(x)+b*math.Log1p(-x)) / a
	// from the last of the fraction's terms to the first
	fraction := 1.0
	for m := 100.0; m >= 1; m-- {
		even := m * (b - m) * x / ((a + 2*m - 1) * (a + 2*m))
		odd := -(a + m - 1) * (a + b + m - 1) * x / ((a + 2*m - 2) * (a + 2*m - 1))
		fraction = 1 + odd/(1+even/fraction)
	}
	return front / fraction
}
