// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chrometrace

import "math"

// Arg is one entry of an event's args.
type Arg struct {
	Key   string // unique within an event; of equal ones the reader decides
	Value Value  // the zero Value is null
}

// Value is a JSON value, made by String, Int, Float, Bool, Bytes, List and Map; the zero Value is null.
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

// String is a string; bytes that are not UTF-8 become U+FFFD.
func String(s string) Value { return Value{kind: kindString, str: s} }

// Int is a whole number, written with all its digits.
func Int(i int64) Value { return Value{kind: kindInt, num: uint64(i)} }

// Float is a number. What JSON cannot hold becomes "NaN", "Infinity" or "-Infinity".
func Float(f float64) Value { return Value{kind: kindFloat, num: math.Float64bits(f)} }

// Bytes are written as base64.
func Bytes(v []byte) Value { return Value{kind: kindBytes, str: string(v)} }

// Bool is true or false.
func Bool(b bool) Value {
	if b {
		return Value{kind: kindBool, num: 1}
	}
	return Value{kind: kindBool}
}

// List is an array. The slice is kept.
func List(v []Value) Value { return Value{kind: kindList, list: v} }

// Map is an object. The slices are kept and have one length.
func Map(keys []string, v []Value) Value { return Value{kind: kindMap, keys: keys, list: v} }

// AsInt is the value of an Int, or of a Float without fraction; false for anything else.
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

// AsFloat is the value of a Float or Int; false for anything else.
func (v Value) AsFloat() (float64, bool) {
	switch v.kind {
	case kindInt:
		return float64(int64(v.num)), true
	case kindFloat:
		return math.Float64frombits(v.num), true
	}
	return 0, false
}

// AsString is the value of a String; false for anything else.
func (v Value) AsString() (string, bool) { return v.str, v.kind == kindString }
