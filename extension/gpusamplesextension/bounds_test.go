// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpusamplesextension

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// A broken exporter's values must not stay in the running integrals, where they would spoil all that comes later.
func TestAbsurdValuesLeaveNoTrace(t *testing.T) {
	for f := range Field(NumFields) {
		for _, absurd := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat64, 1.7e308, 1e18, -1e18, -300} {
			r := newRig(t, NewDefaultConfig(), Device{ID: "GPU-a"})
			for i := range 20 {
				v := 0.25 * float64(i)
				if f.Kind() == KindMask {
					v = 4
				}
				if i == 0 || i == 7 || i == 8 {
					v = absurd
				}
				r.put(f, time.Duration(i)*time.Second/10, v)
			}
			r.view(func(d DeviceView) {
				oldest, _ := d.Range(f)
				mean, coverage := d.Mean(f, t0+second, t0+19*second/10)
				want := map[Kind]float64{KindInstant: 0.25 * 14.5, KindInterval: 0.25 * 15, KindCounter: 2.5, KindMask: 1}[f.Kind()]
				assert.InDelta(t, want, mean, 1e-9, "%s after %g", f, absurd)
				assert.Equal(t, 1., coverage)
				mean, _ = d.Mean(f, oldest, t0+19*second/10)
				assert.True(t, mean >= 0 && mean < 5, "%s over %g is %g", f, absurd, mean)
				most, _ := d.Max(f, t0, t0+19*second/10)
				assert.LessOrEqual(t, most, 5., "%s over %g", f, absurd)
			})
		}
	}
}
