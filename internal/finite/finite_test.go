// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package finite

import (
	"math"
	"testing"

	"go.opentelemetry.io/collector/pdata/pcommon"
)

func TestOnlyFiniteNumbersCount(t *testing.T) {
	for _, tt := range []struct {
		v        pcommon.Value
		number   float64
		ok       bool
		positive float64
	}{
		{pcommon.NewValueDouble(2.5), 2.5, true, 2.5},
		{pcommon.NewValueInt(3), 3, true, 3},
		{pcommon.NewValueDouble(-2.5), -2.5, true, 0},
		{pcommon.NewValueInt(0), 0, true, 0},
		{pcommon.NewValueDouble(math.NaN()), 0, false, 0},
		{pcommon.NewValueDouble(math.Inf(1)), 0, false, 0},
		{pcommon.NewValueStr("3"), 0, false, 0},
		{pcommon.NewValueBool(true), 0, false, 0},
		{pcommon.NewValueEmpty(), 0, false, 0},
	} {
		if x, ok := Number(tt.v); ok != tt.ok || ok && x != tt.number {
			t.Errorf("Number(%s %s) = %v, %v", tt.v.Type(), tt.v.AsString(), x, ok)
		}
		if x := Positive(tt.v); x != tt.positive {
			t.Errorf("Positive(%s %s) = %v, want %v", tt.v.Type(), tt.v.AsString(), x, tt.positive)
		}
	}
}
