// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chromejson

import (
	"math"
	"math/big"
)

// Micros reads a decimal number of microseconds, without or with quotes, as integer nanoseconds: exactly, ties of
// further digits to even. It is not ok when it is no number or beyond int64.
func Micros(b []byte) (ns int64, ok bool) {
	if len(b) >= 2 && b[0] == '"' && b[len(b)-1] == '"' {
		b = b[1 : len(b)-1]
	}
	i, negative := 0, false
	if len(b) > 0 && b[0] == '-' {
		i, negative = 1, true
	}
	first := i
	var v uint64
	for ; i < len(b) && b[i]-'0' <= 9; i++ {
		v = v*10 + uint64(b[i]-'0')
	}
	const most = math.MaxInt64/1000 - 1
	if i == first || i-first > 16 || v > most {
		return microsSlow(b)
	}
	v *= 1000
	if i < len(b) {
		if b[i] != '.' {
			return microsSlow(b)
		}
		frac := b[i+1:]
		if len(frac) == 0 || len(frac) > 3 {
			return microsSlow(b)
		}
		scale := uint64(100)
		for _, c := range frac {
			if c-'0' > 9 {
				return microsSlow(b)
			}
			v += uint64(c-'0') * scale
			scale /= 10
		}
	}
	if negative {
		return -int64(v), true
	}
	return int64(v), true
}

// microsSlow takes everything that JSON allows: exponents, many digits.
func microsSlow(b []byte) (int64, bool) {
	if len(b) > 400 || !number(b) {
		return 0, false
	}
	if e := exponent(b); e > 40 || e < -400 {
		return 0, e < -400
	}
	r, ok := new(big.Rat).SetString(string(b))
	if !ok {
		return 0, false
	}
	r.Mul(r, big.NewRat(1000, 1))
	// floor(2r+1)/2 with ties to even
	q, m := new(big.Int).DivMod(r.Num(), r.Denom(), new(big.Int))
	switch twice := m.Lsh(m, 1).Cmp(r.Denom()); {
	case twice > 0, twice == 0 && q.Bit(0) == 1:
		q.Add(q, big.NewInt(1))
	}
	if !q.IsInt64() || q.Int64() == math.MinInt64 {
		return 0, false
	}
	return q.Int64(), true
}

// number reports whether b is a number by JSON's grammar.
func number(b []byte) bool {
	i := 0
	digits := func() bool {
		n := i
		for i < len(b) && b[i]-'0' <= 9 {
			i++
		}
		return i > n
	}
	if i < len(b) && b[i] == '-' {
		i++
	}
	if !digits() {
		return false
	}
	if i < len(b) && b[i] == '.' {
		if i++; !digits() {
			return false
		}
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		if !digits() {
			return false
		}
	}
	return i == len(b)
}

// exponent is the number after e, bounded to ±9999.
func exponent(b []byte) int {
	for i, c := range b {
		if c|0x20 != 'e' {
			continue
		}
		sign, e := 1, 0
		for _, c := range b[i+1:] {
			switch {
			case c == '-':
				sign = -1
			case c != '+':
				e = min(e*10+int(c-'0'), 9999)
			}
		}
		return sign * e
	}
	return 0
}

// Int reads a whole number, without or with quotes; numbers beyond int64 and fractions are not ok.
func Int(b []byte) (v int64, ok bool) {
	if len(b) >= 2 && b[0] == '"' && b[len(b)-1] == '"' {
		b = b[1 : len(b)-1]
	}
	i, negative := 0, false
	if len(b) > 0 && b[0] == '-' {
		i, negative = 1, true
	}
	if i == len(b) || len(b)-i > 18 {
		return intSlow(b)
	}
	for ; i < len(b); i++ {
		c := b[i] - '0'
		if c > 9 {
			return intSlow(b)
		}
		v = v*10 + int64(c)
	}
	if negative {
		v = -v
	}
	return v, true
}

func intSlow(b []byte) (int64, bool) {
	if len(b) > 40 || !number(b) || exponent(b) > 40 || exponent(b) < -40 {
		return 0, false
	}
	r, ok := new(big.Rat).SetString(string(b))
	if !ok || !r.IsInt() || !r.Num().IsInt64() {
		return 0, false
	}
	return r.Num().Int64(), true
}
