// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chromejson

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/bits"
	"strings"
)

// errShort: the value goes on past the end of the window.
var errShort = errors.New("short")

// syntaxError is the problem at b[at:].
type syntaxError struct {
	at   int
	what string
}

func (e *syntaxError) Error() string { return e.what }

// space returns the index of the first byte at or after i that is not white space, or len(b).
func space(b []byte, i int) int {
	for i < len(b) && b[i] <= ' ' && (b[i] == ' ' || b[i] == '\n' || b[i] == '\r' || b[i] == '\t') {
		i++
	}
	return i
}

// key reads a key of an object: the bytes between the quotes.
func key(b []byte, i int) (k []byte, next int, err error) {
	if next, err = skipString(b, i); err != nil {
		return nil, i, err
	}
	return b[i+1 : next-1], next, nil
}

// skipString returns the index after the string at b[i].
func skipString(b []byte, i int) (int, error) {
	j := i + 1
	if j+8 <= len(b) { // most strings are short
		x := binary.LittleEndian.Uint64(b[j:]) ^ (lows * '"')
		if m := (x - lows) &^ x & highs; m != 0 {
			if j += bits.TrailingZeros64(m) >> 3; b[j-1] != '\\' {
				return j + 1, nil
			}
		}
	}
	for {
		n := bytes.IndexByte(b[j:], '"')
		if n < 0 {
			return i, errShort
		}
		j += n
		k := j - 1
		for b[k] == '\\' { // ends at the opening quote
			k--
		}
		if (j-1-k)&1 == 0 {
			return j + 1, nil
		}
		j++
	}
}

const (
	lows  = 0x0101010101010101
	highs = 0x8080808080808080
)

// structural returns the high bit of the bytes set (and perhaps of bytes after one of those) that
// are a quote or a bracket.
func structural(x uint64) uint64 {
	q := x ^ (lows * '"')
	y := x | lows*0x20 // [ and { are alike, so are ] and }
	o := y ^ (lows * '{')
	c := y ^ (lows * '}')
	return ((q-lows)&^q | (o-lows)&^o | (c-lows)&^c) & highs
}

// unlikeNumber returns the high bit of the bytes set (and perhaps of bytes after one of those) that
// are not in -./0123456789.
func unlikeNumber(x uint64) uint64 {
	return (x + lows*(0x7f-'9') | ^((x | highs) - lows*'-') | x) & highs
}

// skip returns the index after the value at b[i]. A value at the very end of b is taken as
// incomplete.
func skip(b []byte, i int) (int, error) {
	if i >= len(b) {
		return i, errShort
	}
	switch b[i] {
	case '"':
		return skipString(b, i)
	case '{':
		if next, ok := skipFlat(b, i); ok {
			return next, nil
		}
		return skipNested(b, i)
	case '[':
		return skipNested(b, i)
	case ',', '}', ']', ':':
		return i, &syntaxError{i, "a value is missing"}
	}
	return skipScalar(b, i)
}

// skipScalar returns the index after a number or literal.
func skipScalar(b []byte, i int) (int, error) {
	j := i
	for ; j+8 <= len(b); j += 8 {
		if m := unlikeNumber(binary.LittleEndian.Uint64(b[j:])); m != 0 {
			j += bits.TrailingZeros64(m) >> 3
			break
		}
	}
	for ; j < len(b); j++ {
		if scalar[b[j]] {
			continue
		}
		switch c := b[j]; {
		case c == ',' || c == '}' || c == ']' || c <= ' ':
			if j == i {
				return i, &syntaxError{i, "a value is missing"}
			}
			return j, nil
		}
		return j, &syntaxError{j, "unexpected character in a number or literal"}
	}
	return i, errShort
}

// scalar is true for the bytes of numbers and literals, and for others that are tolerated in
// skipped values.
var scalar = func() (t [256]bool) {
	for c := '!'; c < 0x7f; c++ {
		t[c] = !strings.ContainsRune(",:{}[]\"", c)
	}
	return t
}()

// skipFlat returns the index after the object at b[i] if it contains no other object and no escape,
// as nearly all arguments do. Then it ends at the first closing brace that follows an even number
// of quotes. Many bytes are tested at a time. Other brackets are only counted.
func skipFlat(b []byte, i int) (next int, ok bool) {
	n := bytes.IndexByte(b[i:], '}')
	if n < 0 {
		return i, false
	}
	inside, next := b[i+1:i+n], i+n+1
	ok = bytes.IndexByte(inside, '{') < 0 && bytes.IndexByte(inside, '\\') < 0 &&
		bytes.Count(inside, quote)%2 == 0 && bytes.Count(inside, opening) == bytes.Count(inside, closing)
	return next, ok
}

var quote, opening, closing = []byte{'"'}, []byte{'['}, []byte{']'}

func skipNested(b []byte, i int) (int, error) {
	const checked = 64
	// A stack of bits: which brackets are open is checked for the first 64 levels, their number
	// beyond. Depth is unlimited, because nothing here is recursive.
	var kinds uint64
	depth := 0
	j := i
	for {
		for j+8 <= len(b) {
			m := structural(binary.LittleEndian.Uint64(b[j:]))
			if m != 0 {
				j += bits.TrailingZeros64(m) >> 3
				break
			}
			j += 8
		}
		if j >= len(b) {
			return i, errShort
		}
		switch c := b[j]; c {
		case '"':
			next, err := skipString(b, j)
			if err != nil {
				return i, err
			}
			j = next
			continue
		case '{', '[':
			if depth++; depth <= checked {
				kinds <<= 1
				if c == '{' {
					kinds |= 1
				}
			}
		case '}', ']':
			if depth <= checked {
				if (kinds&1 == 1) != (c == '}') {
					return j, &syntaxError{j, "brackets do not match"}
				}
				kinds >>= 1
			}
			if depth--; depth == 0 {
				return j + 1, nil
			}
		}
		j++
	}
}
