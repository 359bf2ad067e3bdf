// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"math"
	"strconv"
	"time"
)

// absent stands for what is not known in tables.
const absent = "-"

// duration writes four significant digits in at most seven columns.
func duration(d time.Duration) string {
	v := float64(d)
	switch a := math.Abs(v); {
	case a < 999.5:
		return strconv.Itoa(int(d)) + "ns"
	case a < 999.95e3:
		return digits(v/1e3) + "µs"
	case a < 999.95e6:
		return digits(v/1e6) + "ms"
	case a < 9999.5e9:
		return digits(v/1e9) + "s"
	default:
		return digits(v/3600e9) + "h"
	}
}

// digits writes about four significant digits and never an exponent below a million.
func digits(v float64) string {
	switch a := math.Abs(v); {
	case a < 9.9995:
		return strconv.FormatFloat(v, 'f', 3, 64)
	case a < 99.995:
		return strconv.FormatFloat(v, 'f', 2, 64)
	case a < 999.95:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case a < 999999.5:
		return strconv.FormatFloat(v, 'f', 0, 64)
	default:
		return strconv.FormatFloat(v, 'e', 1, 64)
	}
}

// scaled writes a figure that is absent when 0, divided by unit.
func scaled(v, unit float64) string {
	if v == 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return absent
	}
	return digits(v / unit)
}

// quantity writes a number of things, absent when 0, with M for a million and G for a thousand of these.
func quantity(v float64) string {
	switch {
	case v < 999999.5:
		return scaled(v, 1)
	case v < 999.95e6:
		return digits(v/1e6) + "M"
	default:
		return digits(v/1e9) + "G"
	}
}

// plain writes a count in at most five columns: all digits below ten thousand.
func plain(n int64) string {
	switch {
	case n < 10_000:
		return strconv.FormatInt(n, 10)
	case n < 10_000_000:
		return strconv.FormatInt(n/1000, 10) + "k"
	case n < 10_000_000_000:
		return strconv.FormatInt(n/1_000_000, 10) + "M"
	default:
		return strconv.FormatInt(n/1_000_000_000, 10) + "G"
	}
}

func knownDuration(d time.Duration) string {
	if d == 0 {
		return absent
	}
	return duration(d)
}

// percent writes a share of 0 to 1 as a number of percent.
func percent(share float64) string {
	if share == 0 || math.IsNaN(share) {
		return absent
	}
	return strconv.FormatFloat(share*100, 'f', 1, 64)
}

// size writes bytes with a decimal prefix, as rates have.
func size(b int64) string {
	v, a := float64(b), math.Abs(float64(b))
	switch {
	case a < 1e3:
		return strconv.FormatInt(b, 10) + " B"
	case a < 1e6:
		return digits(v/1e3) + " kB"
	case a < 1e9:
		return digits(v/1e6) + " MB"
	case a < 1e12:
		return digits(v/1e9) + " GB"
	default:
		return digits(v/1e12) + " TB"
	}
}
