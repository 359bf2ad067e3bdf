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

// spread returns the sum of squared distances from the mean, and of the products of neighbors' distances.
func spread(list []block) (mean, squares, products float64) {
	mean = average(list)
	last := 0.0
	for _, b := range list {
		d := b.sum/float64(b.count) - mean
		squares, products, last = squares+d*d, products+last*d, d
	}
	return mean, squares, products
}

// unsettled is the correlation of neighboring blocks above which the two sides cannot be compared: the load changes
// more slowly than the window is long.
const unsettled = 0.8

// rounding is a deviation of blocks of equal runs: their sums are rounded, by errors that are correlated.
const rounding = 1e-9

// inflation returns the factor by which correlated blocks increase the variance of their mean, (1+r)/(1-r) for the
// correlation r of neighbors (a process of first order). It returns false above unsettled. For r it takes the estimate
// of both sides together, without its bias of -(1+4r)/n (Kendall 1954), plus its standard error: an estimate that is
// too low would be a false alarm.
func inflation(squares, products float64, before, now int) (factor float64, ok bool) {
	r := products / squares
	n := float64(before+now) / 2
	r += (1+4*r)/n + 1/math.Sqrt(2*n)
	return (1 + max(0, r)) / (1 - r), r < unsettled
}

// interval returns the difference of two means, the later less the earlier, and half the width of its interval: Welch's
// (1947, with Satterthwaite's degrees of freedom) for as many independent blocks as the correlated ones are worth. It
// returns false if there are too few blocks or if the load has not settled.
func interval(before, now []block) (diff, half float64, ok bool) {
	if len(before) < 2 || len(now) < 2 {
		return 0, 0, false
	}
	meanBefore, squaresBefore, productsBefore := spread(before)
	meanNow, squaresNow, productsNow := spread(now)
	diff = meanNow - meanBefore
	if squaresBefore+squaresNow <= rounding*rounding*float64(len(before)+len(now)) {
		return diff, 0, true // simulated or rounded values: exact
	}
	factor, ok := inflation(squaresBefore+squaresNow, productsBefore+productsNow, len(before), len(now))
	if !ok {
		return 0, 0, false
	}
	freedomBefore, freedomNow := float64(len(before)-1), float64(len(now)-1)
	vBefore := squaresBefore / freedomBefore / float64(len(before))
	vNow := squaresNow / freedomNow / float64(len(now))
	v := vBefore + vNow
	freedom := v * v / (vBefore*vBefore/freedomBefore + vNow*vNow/freedomNow) / factor
	return diff, quantile(1-(1-Confidence)/2, max(1, freedom)) * math.Sqrt(v*factor), !math.IsNaN(diff)
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
