// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chromejson

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math"
	"math/big"
	"strconv"
)

// Micros reads a decimal number of microseconds, without or with quotes, as integer nanoseconds:
// exactly, ties of further digits to even. ok is false if it is not a number or beyond int64.
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
	for ; i+8 <= len(b); i += 8 {
		n, ok := eightDigits(binary.LittleEndian.Uint64(b[i:]))
		if !ok {
			break
		}
		v = v*100_000_000 + n
	}
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
		ns := uint64(0)
		for _, c := range frac {
			if c-'0' > 9 {
				return microsSlow(b)
			}
			ns = ns*10 + uint64(c-'0')
		}
		v += ns * [...]uint64{100, 10, 1}[len(frac)-1]
	}
	if negative {
		return -int64(v), true
	}
	return int64(v), true
}

// eightDigits returns the value of eight digits, the first of which is the lowest byte: the digits
// of pairs are added, then the sums of pairs of pairs.
func eightDigits(x uint64) (n uint64, ok bool) {
	x -= lows * '0'
	if (x|(x+lows*(0x7f-9)))&highs != 0 {
		return 0, false
	}
	x = x*10 + x>>8
	const pairs = 0x000000ff000000ff
	return (x&pairs*(100+1_000_000<<32) + x>>16&pairs*(1+10_000<<32)) >> 32, true
}

// microsSlow accepts everything that JSON allows: exponents, many digits.
func microsSlow(b []byte) (int64, bool) {
	r, ok := rational(b)
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

// rational returns a JSON number, of at most 400 digits and less than 2^63. A nonzero number that a
// double rounds to zero is tiny, and not an integer.
func rational(b []byte) (*big.Rat, bool) {
	digits := bytes.TrimPrefix(b, []byte("-"))
	if len(b) > 400 || len(digits) == 0 || digits[0]-'0' > 9 || !json.Valid(append([]byte{'1'}, digits...)) {
		return nil, false // leading zeros are accepted, although JSON has none
	}
	f, err := strconv.ParseFloat(string(b), 64)
	switch {
	case err != nil || math.Abs(f) > 1<<63:
		return nil, false
	case f == 0: // whatever the exponent
		mantissa, _, _ := bytes.Cut(bytes.ToLower(b), []byte("e"))
		if !bytes.ContainsAny(mantissa, "123456789") {
			return new(big.Rat), true
		}
		return big.NewRat(1, math.MaxInt64), true
	}
	return new(big.Rat).SetString(string(b))
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
	r, ok := rational(b)
	if !ok || !r.IsInt() || !r.Num().IsInt64() {
		return 0, false
	}
	return r.Num().Int64(), true
}
