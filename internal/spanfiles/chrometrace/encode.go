// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chrometrace

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"
)

func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if !plain[s[i]] {
			to := bytes.NewBuffer(b)
			e := json.NewEncoder(to)
			e.SetEscapeHTML(false) // names of kernels are full of < and >
			_ = e.Encode(s)        // a string always can be
			return to.Bytes()[:to.Len()-1]
		}
	}
	return append(append(append(b, '"'), s...), '"')
}

// plain is true for the bytes that need no escape in a JSON string.
var plain = func() (t [256]bool) {
	for c := ' '; c < utf8.RuneSelf; c++ {
		t[c] = c != '"' && c != '\\'
	}
	return t
}()

// appendMicros appends nanoseconds as microseconds with three decimals.
func appendMicros(b []byte, ns int64) []byte {
	if ns < 0 {
		b = append(b, '-')
		ns = -ns
	}
	b = strconv.AppendInt(b, ns/1000, 10)
	f := ns % 1000
	return append(b, '.', byte('0'+f/100), byte('0'+f/10%10), byte('0'+f%10))
}

func appendValue(b []byte, v Value) []byte {
	switch v.kind {
	case kindString:
		return appendString(b, v.str)
	case kindInt:
		return strconv.AppendInt(b, int64(v.num), 10)
	case kindFloat:
		f := math.Float64frombits(v.num)
		if b = appendFloat(b, f); f == math.Trunc(f) && math.Abs(f) < 1e21 { // to distinguish it from a whole number
			b = append(b, ".0"...)
		}
		return b
	case kindBytes:
		return append(base64.StdEncoding.AppendEncode(append(b, '"'), []byte(v.str)), '"')
	case kindBool:
		return strconv.AppendBool(b, v.num == 1)
	case kindList, kindMap:
		return appendElements(b, &v, appendValue)
	}
	return append(b, "null"...)
}

func appendElements(b []byte, v *Value, element func([]byte, Value) []byte) []byte {
	brackets := "[]"
	if v.kind == kindMap {
		brackets = "{}"
	}
	b = append(b, brackets[0])
	for i, e := range v.list {
		if i > 0 {
			b = append(b, ',')
		}
		if v.kind == kindMap {
			b = append(appendString(b, v.keys[i]), ':')
		}
		b = element(b, e)
	}
	return append(b, brackets[1])
}

func appendFloat(b []byte, f float64) []byte {
	switch {
	case math.IsNaN(f):
		return append(b, `"NaN"`...)
	case math.IsInf(f, 1):
		return append(b, `"Infinity"`...)
	case math.IsInf(f, -1):
		return append(b, `"-Infinity"`...)
	}
	if a := math.Abs(f); a != 0 && (a < 1e-6 || a >= 1e21) {
		return strconv.AppendFloat(b, f, 'e', -1, 64)
	}
	return strconv.AppendFloat(b, f, 'f', -1, 64)
}

// appendKey appends ,"key": (or "key": after an opening brace).
func appendKey(b []byte, key string) []byte {
	if b[len(b)-1] != '{' {
		b = append(b, ',')
	}
	return append(appendString(b, key), ':')
}

func appendArgs(b []byte, args []Arg) []byte {
	for i := range args {
		if args[i].Key == "" {
			continue // taken out by the caller that classified the event
		}
		b = appendValue(appendKey(b, args[i].Key), args[i].Value)
	}
	return b
}

// Arg is one argument of an event, such as an attribute.
type Arg struct {
	Key   string // unique within an event; readers use any one of equal keys
	Value Value  // the zero Value is null
}

// valueOf returns the value of an argument, null if there is none.
func valueOf[K ~string](args []Arg, key K) Value {
	for i := range slices.Backward(args) {
		if args[i].Key == string(key) {
			return args[i].Value
		}
	}
	return Value{}
}

// Value is a JSON value, created by String, Int, Float, Bool, Bytes, List and Map; the zero Value
// is null.
type Value struct {
	kind valueKind
	num  uint64
	str  string
	list []Value
	keys []string // of a map, parallel to list
}

type valueKind uint8

const (
	kindNull valueKind = iota
	kindString
	kindInt
	kindFloat
	kindBool
	kindList
	kindMap
	kindBytes
)

// String returns a string; bytes that are not UTF-8 become U+FFFD.
func String(s string) Value { return Value{kind: kindString, str: s} }

// Int returns an integer, written with all its digits.
func Int(i int64) Value { return Value{kind: kindInt, num: uint64(i)} }

// Float returns a number. Values that JSON cannot represent become "NaN", "Infinity" or
// "-Infinity".
func Float(f float64) Value { return Value{kind: kindFloat, num: math.Float64bits(f)} }

// Bytes returns a value that is written as base64.
func Bytes(v []byte) Value { return Value{kind: kindBytes, str: string(v)} }

// Bool returns a Boolean value.
func Bool(b bool) Value {
	if b {
		return Value{kind: kindBool, num: 1}
	}
	return Value{kind: kindBool}
}

// List returns an array. The slice is kept.
func List(v []Value) Value { return Value{kind: kindList, list: v} }

// Map returns an object. The slices are kept and have one length.
func Map(keys []string, v []Value) Value { return Value{kind: kindMap, keys: keys, list: v} }

// AsInt returns the value of an Int, or of a Float without fraction; false for anything else.
func (v Value) AsInt() (int64, bool) {
	switch v.kind {
	case kindInt:
		return int64(v.num), true
	case kindFloat:
		if f := math.Float64frombits(v.num); f == math.Trunc(f) && math.Abs(f) < 1<<53 {
			return int64(f), true
		}
	}
	return 0, false
}

// AsFloat returns the value of a Float or Int; false for anything else.
func (v Value) AsFloat() (float64, bool) {
	switch v.kind {
	case kindInt:
		return float64(int64(v.num)), true
	case kindFloat:
		return math.Float64frombits(v.num), true
	}
	return 0, false
}

// AsString returns the value of a String; false for anything else.
func (v Value) AsString() (string, bool) { return v.str, v.kind == kindString }
