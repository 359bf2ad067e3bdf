// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpusamplesexporter

import "math"

// unit is the unit of DCGM_FI_DEV_GPU_UTIL_RATIO at one device. The headers of DCGM 4.6 give this
// name to field 203, an integer percentage; since DCGM 4.7 it is field 1613, a ratio. The name
// alone does not decide.
type unit uint8

const (
	unitUnknown unit = iota
	unitRatio
	unitPercent
)

// mostRatio is above every ratio: the two clocks of a ratio differ a little.
const mostRatio = 1.05

// scale returns the factor of a value, or false if its unit is unknown: 1 is all of the time or a
// hundredth of it. newUnits states that the exporter has other names that exist since DCGM 4.7
// only.
func (u *unit) scale(v float64, newUnits bool) (float64, bool) {
	fraction := v != math.Trunc(v) && v < mostRatio
	switch {
	case v > mostRatio:
		*u = unitPercent
	case newUnits, fraction && *u != unitPercent:
		*u = unitRatio
	case v == 0:
		return 1, true
	case fraction:
		return 0, false // the exporter was updated, or the percentages are means
	}
	return [...]float64{unitRatio: 1, unitPercent: 0.01}[*u], *u != unitUnknown
}
