// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package require_test

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/otelgpu/otelgpu/gpuspan/internal/require"
)

type recorder struct{ text string }

func (*recorder) Helper()                     {}
func (r *recorder) Errorf(f string, a ...any) { r.text = fmt.Sprintf(f, a...) }
func (r *recorder) FailNow()                  { panic(r) }
func (r *recorder) of(f func(require.TestingT)) (failed bool) {
	defer func() { failed = recover() != nil }()
	f(r)
	return false
}

type (
	named    string
	document struct{ n int }
	problem  struct{ error }
)

func TestAssertionsHoldAndFail(t *testing.T) {
	type T = require.TestingT
	type pair struct{ holds, fails func(T) }
	one, other := new(int), new(int)
	var nothing []int
	now := time.Now()
	for name, c := range map[string]pair{
		"True":  {func(t T) { require.True(t, true) }, func(t T) { require.True(t, false) }},
		"False": {func(t T) { require.False(t, false) }, func(t T) { require.False(t, true) }},
		"Equal": {func(t T) { require.Equal(t, []int{1}, []int{1}) }, func(t T) { require.Equal(t, 1, int64(1)) }},
		"Equal bytes": {
			func(t T) { require.Equal(t, []byte("a"), []byte("a")) },
			func(t T) { require.Equal(t, []byte("a"), []byte("b")) },
		},
		"Equal nil": {func(t T) { require.Equal(t, nil, nil) }, func(t T) { require.Equal(t, []byte(nil), []byte{}) }},
		"NotEqual": {
			func(t T) { require.NotEqual(t, 1, int64(1)) },
			func(t T) { require.NotEqual(t, document{1}, document{1}) },
		},
		"EqualValues": {func(t T) { require.EqualValues(t, 65, 65.0) }, func(t T) { require.EqualValues(t, 65, "A") }},
		"EqualValues of": {
			func(t T) { require.EqualValues(t, "a", named("a")) },
			func(t T) { require.EqualValues(t, 1, 1.5) },
		},
		"EqualValues 64": {
			func(t T) { require.EqualValues(t, 1, uint8(1)) },
			func(t T) { require.EqualValues(t, 257, uint8(1)) },
		},
		"EqualValues no": {func(t T) { require.EqualValues(t, nil, nil) }, func(t T) { require.EqualValues(t, 0, nil) }},
		"Zero":           {func(t T) { require.Zero(t, document{}) }, func(t T) { require.Zero(t, document{1}) }},
		"Zero slice":     {func(t T) { require.Zero(t, nothing) }, func(t T) { require.Zero(t, []int{}) }},
		"NotZero":        {func(t T) { require.NotZero(t, 1) }, func(t T) { require.NotZero(t, nil) }},
		"Nil":            {func(t T) { require.Nil(t, nothing) }, func(t T) { require.Nil(t, 0) }},
		"NotNil":         {func(t T) { require.NotNil(t, one) }, func(t T) { require.NotNil(t, (*int)(nil)) }},
		"Empty":          {func(t T) { require.Empty(t, []int{}) }, func(t T) { require.Empty(t, "a") }},
		"Empty value":    {func(t T) { require.Empty(t, document{}) }, func(t T) { require.Empty(t, 1) }},
		"NotEmpty":       {func(t T) { require.NotEmpty(t, "a") }, func(t T) { require.NotEmpty(t, map[int]int{}) }},
		"Len":            {func(t T) { require.Len(t, "ab", 2) }, func(t T) { require.Len(t, []int{1}, 2) }},
		"Len of none":    {func(t T) { require.Len(t, nothing, 0) }, func(t T) { require.Len(t, 0, 0) }},
		"Less":           {func(t T) { require.Less(t, 1, 2) }, func(t T) { require.Less(t, 2, 2) }},
		"LessOrEqual":    {func(t T) { require.LessOrEqual(t, 2, 2) }, func(t T) { require.LessOrEqual(t, math.NaN(), 2) }},
		"Greater":        {func(t T) { require.Greater(t, 2, 1) }, func(t T) { require.Greater(t, 2, 2) }},
		"GreaterOrEqual": {func(t T) { require.GreaterOrEqual(t, 2, 2) }, func(t T) { require.GreaterOrEqual(t, "a", "b") }},
		"Positive":       {func(t T) { require.Positive(t, .1) }, func(t T) { require.Positive(t, 0) }},
		"InDelta":        {func(t T) { require.InDelta(t, 1, 1.5, .5) }, func(t T) { require.InDelta(t, 1, math.NaN(), .5) }},
		"InDelta of": {
			func(t T) { require.InDelta(t, time.Second, uint64(1e9), 0) },
			func(t T) { require.InDelta(t, 1, "1", 9) },
		},
		"InEpsilon": {
			func(t T) { require.InEpsilon(t, 100, 99, .01) },
			func(t T) { require.InEpsilon(t, 100, 98.9, .01) },
		},
		"InEpsilon of 0": {func(t T) { require.InEpsilon(t, -1, -1, 0) }, func(t T) { require.InEpsilon(t, 0, 0, .1) }},
		"WithinDuration": {
			func(t T) { require.WithinDuration(t, now, now.Add(9), 9) },
			func(t T) { require.WithinDuration(t, now, now.Add(10), 9) },
		},
		"Contains": {func(t T) { require.Contains(t, "abc", "b") }, func(t T) { require.Contains(t, 1, 1) }},
		"Contains of": {
			func(t T) { require.Contains(t, []int{1}, 1) },
			func(t T) { require.Contains(t, []int{1}, int64(1)) },
		},
		"Contains key": {
			func(t T) { require.Contains(t, map[string]int{"a": 1}, "a") },
			func(t T) { require.Contains(t, map[string]int{}, "a") },
		},
		"NotContains": {
			func(t T) { require.NotContains(t, "abc", "d") },
			func(t T) { require.NotContains(t, []int{1}, 1) },
		},
		"NotContains of": {
			func(t T) { require.NotContains(t, []int{1}, 2) },
			func(t T) { require.NotContains(t, map[string]int{}, named("a")) },
		},
		"ElementsMatch": {
			func(t T) { require.ElementsMatch(t, []int{1, 2, 2}, []int{2, 1, 2}) },
			func(t T) { require.ElementsMatch(t, []int{1, 2, 2}, []int{1, 1, 2}) },
		},
		"Regexp":    {func(t T) { require.Regexp(t, `a\d`, "xa1") }, func(t T) { require.Regexp(t, `^a`, "xa1") }},
		"NotRegexp": {func(t T) { require.NotRegexp(t, `^a`, "xa1") }, func(t T) { require.NotRegexp(t, `a`, "xa1") }},
		"JSONEq": {
			func(t T) { require.JSONEq(t, `{"a":1,"b":2}`, `{"b":2, "a":1}`) },
			func(t T) { require.JSONEq(t, `[1]`, `[1`) },
		},
		"Same":    {func(t T) { require.Same(t, one, one) }, func(t T) { require.Same(t, one, other) }},
		"NotSame": {func(t T) { require.NotSame(t, one, other) }, func(t T) { require.NotSame(t, one, one) }},
		"Error":   {func(t T) { require.Error(t, io.EOF) }, func(t T) { require.Error(t, nil) }},
		"NoError": {func(t T) { require.NoError(t, nil) }, func(t T) { require.NoError(t, io.EOF) }},
		"ErrorIs": {
			func(t T) { require.ErrorIs(t, problem{io.EOF}, problem{io.EOF}) },
			func(t T) { require.ErrorIs(t, nil, io.EOF) },
		},
		"ErrorAs": {
			func(t T) { require.ErrorAs(t, problem{}, new(problem)) },
			func(t T) { require.ErrorAs(t, io.EOF, new(problem)) },
		},
		"ErrorContains": {
			func(t T) { require.ErrorContains(t, errors.New("abc"), "b") },
			func(t T) { require.ErrorContains(t, nil, "") },
		},
		"EqualError": {func(t T) { require.EqualError(t, io.EOF, "EOF") }, func(t T) { require.EqualError(t, nil, "EOF") }},
		"Panics": {
			func(t T) { require.Panics(t, 1, func() { panic(1) }) },
			func(t T) { require.Panics(t, nil, func() {}) },
		},
		"NotPanics": {
			func(t T) { require.NotPanics(t, func() {}) },
			func(t T) { require.NotPanics(t, func() { panic(1) }) },
		},
		"Eventually": {
			func(t T) { require.Eventually(t, func() bool { return true }, 0, 0) },
			func(t T) { require.Eventually(t, func() bool { return false }, 0, 0) },
		},
		"Fail": {func(T) {}, func(t T) { require.Fail(t) }},
	} {
		r := &recorder{}
		require.False(t, r.of(c.holds), "%s should hold: %s", name, r.text)
		require.True(t, r.of(c.fails), "%s should fail", name)
	}
}

func TestFailuresSayWhatTheTestSays(t *testing.T) {
	r := &recorder{}
	r.of(func(t require.TestingT) { require.Equal(t, 1, "a\nb", "step %d", 7) })
	require.Equal(t, "want 1\ngot  \na\nb\nstep 7", r.text)
	r.of(func(t require.TestingT) { require.True(t, false, named("case")) })
	require.True(t, strings.HasSuffix(r.text, "case"), r.text)
}
