// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package require

import (
	"bytes"
	"fmt"
	"math"
	"reflect"
	"strings"
)

func equal(a, b any) bool {
	if x, ok := a.([]byte); ok {
		y, ok := b.([]byte)
		return ok && (x == nil) == (y == nil) && bytes.Equal(x, y)
	}
	return reflect.DeepEqual(a, b)
}

// Whether a, in b's type and back, is what it was, and then equals b.
func converted(a, b any) bool {
	x, y := reflect.ValueOf(a), reflect.ValueOf(b)
	if !x.IsValid() || !y.IsValid() || !x.CanConvert(y.Type()) ||
		(x.Kind() == reflect.String) != (y.Kind() == reflect.String) {
		return false
	}
	c := x.Convert(y.Type())
	return equal(c.Interface(), b) && c.CanConvert(x.Type()) && equal(c.Convert(x.Type()).Interface(), a)
}

func zero(v any) bool {
	return v == nil || reflect.DeepEqual(v, reflect.Zero(reflect.TypeOf(v)).Interface())
}

func null(v any) bool {
	x := reflect.ValueOf(v)
	switch x.Kind() {
	case reflect.Invalid:
		return true
	case reflect.Pointer, reflect.Slice, reflect.Map, reflect.Chan, reflect.Func, reflect.UnsafePointer:
		return x.IsNil()
	}
	return false
}

func empty(v any) bool {
	n, ok := length(v)
	return ok && n == 0 || !ok && zero(v)
}

func length(v any) (n int, ok bool) {
	x := reflect.ValueOf(v)
	switch x.Kind() {
	case reflect.String, reflect.Slice, reflect.Array, reflect.Map, reflect.Chan:
		return x.Len(), true
	}
	return 0, false
}

func contains(in, want any) (found, ok bool) {
	x := reflect.ValueOf(in)
	switch x.Kind() {
	case reflect.String:
		w := reflect.ValueOf(want)
		return w.Kind() == reflect.String && strings.Contains(x.String(), w.String()), w.Kind() == reflect.String
	case reflect.Slice, reflect.Array:
		if !fits(want, x.Type().Elem()) {
			return false, false
		}
		for i := range x.Len() {
			if equal(x.Index(i).Interface(), want) {
				return true, true
			}
		}
		return false, true
	case reflect.Map:
		if !fits(want, x.Type().Key()) {
			return false, false
		}
		for _, k := range x.MapKeys() {
			if equal(k.Interface(), want) {
				return true, true
			}
		}
		return false, true
	}
	return false, false
}

// A value of another type is in no slice or map, so asking for one is a mistake of the test.
func fits(v any, t reflect.Type) bool { return v == nil || reflect.TypeOf(v).AssignableTo(t) }

// NaN of what is no number.
func number(v any) float64 {
	x := reflect.ValueOf(v)
	switch {
	case !x.IsValid():
		return math.NaN()
	case x.CanInt():
		return float64(x.Int())
	case x.CanUint():
		return float64(x.Uint())
	case x.CanFloat():
		return x.Float()
	}
	return math.NaN()
}

// A value as a failure prints it: made only then, because a test may make millions of assertions.
type shown struct{ v any }

func show(v any) shown { return shown{v} }

func (s shown) String() string {
	if text, ok := s.v.(string); ok && strings.Contains(text, "\n") {
		return "\n" + text
	}
	return fmt.Sprintf("%#v", s.v)
}
