// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package spanfacts

import (
	"math"

	"go.opentelemetry.io/collector/pdata/pcommon"
)

// Number is an int or a finite double. ok is false for anything else: NaN and infinite values count as absent.
func Number(v pcommon.Value) (x float64, ok bool) {
	switch v.Type() {
	case pcommon.ValueTypeDouble:
		x = v.Double()
		return x, !math.IsNaN(x) && !math.IsInf(x, 0)
	case pcommon.ValueTypeInt:
		return float64(v.Int()), true
	}
	return 0, false
}

// Positive is a Number above 0, else 0.
func Positive(v pcommon.Value) float64 {
	if x, ok := Number(v); ok && x > 0 {
		return x
	}
	return 0
}

// index is an int of 0 and more, else -1.
func index(v pcommon.Value) int64 {
	if v.Type() != pcommon.ValueTypeInt {
		return -1
	}
	return max(v.Int(), -1)
}
