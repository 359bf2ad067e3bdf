// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package spanfacts

import (
	"fmt"
	"math"
)

// Level is how much detail a processor writes on a span.
type Level int

const (
	// Lean writes what a reader needs to know about a span: its rate, its share of the peak, what
	// limited it, the state of the device, and its joules. Quality is stated only if it is unusual,
	// values that all spans of a scope share are on the scope, and means have five significant
	// digits.
	Lean Level = iota
	// Full writes all known values on every span.
	Full
)

// UnmarshalText reads `lean` or `full`.
func (l *Level) UnmarshalText(text []byte) error {
	switch string(text) {
	case "lean":
		*l = Lean
	case "full":
		*l = Full
	default:
		return fmt.Errorf("must be lean or full, found %q", text)
	}
	return nil
}

// MarshalText returns the text that UnmarshalText reads.
func (l Level) MarshalText() ([]byte, error) {
	if l == Full {
		return []byte("full"), nil
	}
	return []byte("lean"), nil
}

// Round5 rounds to five significant digits, which is enough for a mean over samples: no meter is
// more exact. Values that are summed over spans are not rounded, nor are values below 1e-16 or
// above 1e26.
func Round5(x float64) float64 { return round(x, 5) }

// Round12 rounds to 12 significant digits. Differences of long sums end in noise
// (1980000000.0000017 Hz), which viewers print and JSON transports; no meter is that exact, and
// sums over spans still agree to 1e-11.
func Round12(x float64) float64 { return round(x, 12) }

func round(x float64, digits int) float64 {
	// The binary exponent times log10(2) is the decimal one, or one less.
	exp := int(math.Float64bits(x)>>52&0x7ff) - 1022
	n := digits - exp*1233>>12
	if exp == -1022 || exp == 1025 || n >= len(pow10) || -n >= len(pow10) { // zero, NaN, infinite; out of range
		return x
	}
	if n >= 0 {
		if math.Abs(x)*pow10[n] >= pow10[digits] {
			n--
		}
	} else if math.Abs(x)/pow10[-n] >= pow10[digits] {
		n--
	}
	if n < 0 {
		return math.Round(x/pow10[-n]) * pow10[-n]
	}
	return math.Round(x*pow10[n]) / pow10[n]
}

// pow10 has the powers of ten that a float64 represents exactly.
var pow10 = [...]float64{
	1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20,
	1e21, 1e22,
}
