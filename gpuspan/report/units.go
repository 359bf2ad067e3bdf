// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"math"
	"slices"
	"strconv"
	"time"
)

// absent stands for what is not known in tables.
const absent = "-"

// unit is what a number below a limit is written in.
type unit struct {
	below, of float64
	name      string
}

// in writes a number in the first of units that its size is below, or else in the last.
func in(v float64, units ...unit) string {
	i := slices.IndexFunc(units, func(u unit) bool { return math.Abs(v) < u.below })
	if i < 0 {
		i = len(units) - 1
	}
	if u := units[i]; u.of != 1 {
		return digits(v/u.of) + u.name
	}
	return strconv.FormatFloat(v, 'f', 0, 64) + units[i].name
}

// duration writes four significant digits in at most seven columns.
func duration(d time.Duration) string {
	return in(float64(d), unit{999.5, 1, "ns"}, unit{999.95e3, 1e3, "µs"}, unit{999.95e6, 1e6, "ms"},
		unit{9999.5e9, 1e9, "s"}, unit{0, 3600e9, "h"})
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
	if v < 999999.5 {
		return scaled(v, 1)
	}
	return in(v, unit{999.95e6, 1e6, "M"}, unit{0, 1e9, "G"})
}

// plain writes a count in at most five columns: all digits below ten thousand.
func plain(n int64) string {
	name := ""
	for _, next := range []string{"k", "M", "G"} {
		if n < 10_000 {
			break
		}
		n, name = n/1000, next
	}
	return strconv.FormatInt(n, 10) + name
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
	return in(float64(b), unit{1e3, 1, " B"}, unit{1e6, 1e3, " kB"}, unit{1e9, 1e6, " MB"}, unit{1e12, 1e9, " GB"},
		unit{0, 1e12, " TB"})
}
