// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package finite reads numbers out of attributes that anybody may have written: what is no number, NaN or infinite is not
// stated, so nothing that is computed from it is either.
package finite

import (
	"math"

	"go.opentelemetry.io/collector/pdata/pcommon"
)

// Number is an int or a finite double; false for anything else.
func Number(v pcommon.Value) (float64, bool) {
	switch v.Type() {
	case pcommon.ValueTypeDouble:
		x := v.Double()
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
