// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package require has the assertions of this module's tests. Each fails its test at once, and says what it wanted and
// what it got; words after the values name the case, the first of them a format of fmt.
//
// It is a package of the module so that no library of assertions is in the module graph of the users of gpuspan.
package require

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"
)

// TestingT is what an assertion needs of *testing.T.
type TestingT interface {
	Helper()
	Errorf(format string, args ...any)
	FailNow()
}

func that(t TestingT, ok bool, words []any, format string, args ...any) {
	t.Helper()
	if ok {
		return
	}
	text := fmt.Sprintf(format, args...)
	if len(words) > 0 {
		if f, ok := words[0].(string); ok {
			text += "\n" + fmt.Sprintf(f, words[1:]...)
		} else {
			text += "\n" + fmt.Sprint(words...)
		}
	}
	t.Errorf("%s", text)
	t.FailNow()
}

// Fail fails the test.
func Fail(t TestingT, words ...any) { t.Helper(); that(t, false, words, "failed") }

// True holds a condition.
func True(t TestingT, got bool, words ...any) { t.Helper(); that(t, got, words, "want true") }

// False holds that a condition does not hold.
func False(t TestingT, got bool, words ...any) { t.Helper(); that(t, !got, words, "want false") }

// Equal compares by reflect.DeepEqual, bytes by their content.
func Equal(t TestingT, want, got any, words ...any) {
	t.Helper()
	that(t, equal(want, got), words, "want %s\ngot  %s", show(want), show(got))
}

// NotEqual is the opposite of Equal.
func NotEqual(t TestingT, other, got any, words ...any) {
	t.Helper()
	that(t, !equal(other, got), words, "want something else than %s", show(got))
}

// EqualValues compares what remains equal when it is converted to the other's type and back: numbers of any types, and
// values of named types. No number equals a string.
func EqualValues(t TestingT, want, got any, words ...any) {
	t.Helper()
	that(t, equal(want, got) || converted(want, got) && converted(got, want), words, "want %s\ngot  %s", show(want),
		show(got))
}

// Zero holds that a value is the zero value of its type.
func Zero(t TestingT, got any, words ...any) {
	t.Helper()
	that(t, zero(got), words, "want the zero value, got %s", show(got))
}

// NotZero is the opposite of Zero.
func NotZero(t TestingT, got any, words ...any) {
	t.Helper()
	that(t, !zero(got), words, "got the zero value of %T", got)
}

// Nil holds that a value is nil, or a nil pointer, slice, map, channel or function in an interface.
func Nil(t TestingT, got any, words ...any) {
	t.Helper()
	that(t, null(got), words, "want nil, got %s", show(got))
}

// NotNil is the opposite of Nil.
func NotNil(t TestingT, got any, words ...any) { t.Helper(); that(t, !null(got), words, "got nil") }

// Empty holds that a string, slice, map or channel has the length 0, or that a value is nil or zero.
func Empty(t TestingT, got any, words ...any) {
	t.Helper()
	that(t, empty(got), words, "want it empty, got %s", show(got))
}

// NotEmpty is the opposite of Empty.
func NotEmpty(t TestingT, got any, words ...any) {
	t.Helper()
	that(t, !empty(got), words, "got an empty %T", got)
}

// Len compares the length of a string, slice, map or channel.
func Len(t TestingT, got any, want int, words ...any) {
	t.Helper()
	n, ok := length(got)
	that(t, ok && n == want, words, "want the length %d, got %d of %s", want, n, show(got))
}

// Less holds a < b.
func Less[T cmp.Ordered](t TestingT, a, b T, words ...any) {
	t.Helper()
	that(t, a < b, words, "want %v < %v", a, b)
}

// LessOrEqual holds a <= b.
func LessOrEqual[T cmp.Ordered](t TestingT, a, b T, words ...any) {
	t.Helper()
	that(t, a <= b, words, "want %v <= %v", a, b)
}

// Greater holds a > b.
func Greater[T cmp.Ordered](t TestingT, a, b T, words ...any) {
	t.Helper()
	that(t, a > b, words, "want %v > %v", a, b)
}

// GreaterOrEqual holds a >= b.
func GreaterOrEqual[T cmp.Ordered](t TestingT, a, b T, words ...any) {
	t.Helper()
	that(t, a >= b, words, "want %v >= %v", a, b)
}

// Positive holds a > 0.
func Positive[T cmp.Ordered](t TestingT, a T, words ...any) {
	t.Helper()
	var zero T
	that(t, a > zero, words, "want %v > 0", a)
}

// InDelta holds that two numbers are at most delta apart. NaN is near to nothing.
func InDelta(t TestingT, want, got any, delta float64, words ...any) {
	t.Helper()
	d := math.Abs(number(want) - number(got))
	that(t, d <= delta, words, "want %v, got %v: %v apart, which is more than %v", want, got, d, delta)
}

// InEpsilon holds that a number differs from the one wanted by at most that share of it.
func InEpsilon(t TestingT, want, got any, epsilon float64, words ...any) {
	t.Helper()
	d := math.Abs(number(want)-number(got)) / math.Abs(number(want))
	that(t, d <= epsilon, words, "want %v, got %v: off by %v, which is more than %v", want, got, d, epsilon)
}

// WithinDuration holds that two times are at most d apart.
func WithinDuration(t TestingT, want, got time.Time, d time.Duration, words ...any) {
	t.Helper()
	that(t, want.Sub(got).Abs() <= d, words, "want %v within %v, got %v", want, d, got)
}

// Contains holds that a string has a substring, a slice an element, or a map a key.
func Contains(t TestingT, in, want any, words ...any) {
	t.Helper()
	found, ok := contains(in, want)
	that(t, ok && found, words, "want %s in %s", show(want), show(in))
}

// NotContains is the opposite of Contains.
func NotContains(t TestingT, in, other any, words ...any) {
	t.Helper()
	found, ok := contains(in, other)
	that(t, ok && !found, words, "want no %s in %s", show(other), show(in))
}

// ElementsMatch holds that two slices have the same elements, in any order.
func ElementsMatch[E any](t TestingT, want, got []E, words ...any) {
	t.Helper()
	rest := slices.Clone(got)
	for _, w := range want {
		if i := slices.IndexFunc(rest, func(g E) bool { return equal(w, g) }); i >= 0 {
			rest = slices.Delete(rest, i, i+1)
		}
	}
	that(t, len(want) == len(got) && len(rest) == 0, words, "want the elements of %s\ngot              %s", show(want),
		show(got))
}

// Regexp holds that a regular expression matches somewhere in a text.
func Regexp(t TestingT, pattern, text string, words ...any) {
	t.Helper()
	that(t, regexp.MustCompile(pattern).MatchString(text), words, "want a match of %q in\n%s", pattern, text)
}

// NotRegexp is the opposite of Regexp.
func NotRegexp(t TestingT, pattern, text string, words ...any) {
	t.Helper()
	that(t, !regexp.MustCompile(pattern).MatchString(text), words, "want no match of %q in\n%s", pattern, text)
}

// JSONEq compares what two JSON texts say.
func JSONEq(t TestingT, want, got string, words ...any) {
	t.Helper()
	var w, g any
	NoError(t, json.Unmarshal([]byte(want), &w), words...)
	NoError(t, json.Unmarshal([]byte(got), &g), words...)
	Equal(t, w, g, words...)
}

// Same holds that two pointers are one.
func Same[T any](t TestingT, want, got *T, words ...any) {
	t.Helper()
	that(t, want == got, words, "want the same pointer, got %p and %p", want, got)
}

// NotSame is the opposite of Same.
func NotSame[T any](t TestingT, other, got *T, words ...any) {
	t.Helper()
	that(t, other != got, words, "got the same pointer %p", got)
}

// Error holds that there is an error.
func Error(t TestingT, err error, words ...any) {
	t.Helper()
	that(t, err != nil, words, "want an error")
}

// NoError holds that there is none.
func NoError(t TestingT, err error, words ...any) {
	t.Helper()
	that(t, err == nil, words, "unexpected error: %v", err)
}

// ErrorIs is errors.Is.
func ErrorIs(t TestingT, err, want error, words ...any) {
	t.Helper()
	that(t, errors.Is(err, want), words, "want an error that is %q, got %v", want, err)
}

// ErrorAs is errors.As.
func ErrorAs(t TestingT, err error, target any, words ...any) {
	t.Helper()
	that(t, errors.As(err, target), words, "want an error of type %T, got %v", target, err)
}

// ErrorContains holds that there is an error, and that its text has a substring.
func ErrorContains(t TestingT, err error, part string, words ...any) {
	t.Helper()
	that(t, err != nil && strings.Contains(err.Error(), part), words, "want an error with %q, got %v", part, err)
}

// EqualError compares the text of an error.
func EqualError(t TestingT, err error, want string, words ...any) {
	t.Helper()
	that(t, err != nil && err.Error() == want, words, "want the error %q\ngot            %v", want, err)
}

// Panics holds that f panics with a value.
func Panics(t TestingT, want any, f func(), words ...any) {
	t.Helper()
	got, panicked := caught(f)
	that(t, panicked && equal(want, got), words, "want a panic with %s, got %s", show(want), show(got))
}

// NotPanics holds that f returns.
func NotPanics(t TestingT, f func(), words ...any) {
	t.Helper()
	got, panicked := caught(f)
	that(t, !panicked, words, "unexpected panic: %v", got)
}

// Eventually waits until a condition holds, and fails when it does not in time. The condition runs on the test's own
// goroutine, so it may make assertions.
func Eventually(t TestingT, condition func() bool, atMost, every time.Duration, words ...any) {
	t.Helper()
	for end := time.Now().Add(atMost); !condition(); time.Sleep(every) {
		that(t, time.Now().Before(end), words, "the condition did not hold within %v", atMost)
	}
}

func caught(f func()) (value any, panicked bool) {
	panicked = true
	defer func() {
		if panicked {
			value = recover()
		}
	}()
	f()
	return nil, false
}
