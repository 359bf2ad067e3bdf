// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package configvalidate

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/confmap"
)

func TestErrReportsEveryProblem(t *testing.T) {
	var l List
	require.NoError(t, l.Err())
	l.If(1 > 2, "`a` is wrong")
	require.NoError(t, l.Err())
	l.If(2 > 1, "`b` must be below %d, found %d", 1, 2)
	l.Add("`c` must be set")
	require.EqualError(t, l.Err(), "`b` must be below 1, found 2\n`c` must be set")
}

func TestPartsAndNumbers(t *testing.T) {
	var l List
	l.Join(nil)
	Positive(&l, "a", 1)
	Positive(&l, "b", time.Nanosecond)
	require.NoError(t, l.Err())
	l.Join(errors.New("`part` is wrong"))
	Positive(&l, "a", 0)
	Positive(&l, "b", -time.Second)
	require.EqualError(t, l.Err(), "`part` is wrong\n`a` must be positive, found 0\n`b` must be positive, found -1s")
}

// word is an option with two allowed words.
type word int

func (w *word) UnmarshalText(b []byte) error {
	if string(b) != "lean" && string(b) != "full" {
		return fmt.Errorf("must be lean or full, found %q", b)
	}
	*w = word(len(b))
	return nil
}

type part struct {
	Small uint8         `mapstructure:"small"`
	For   time.Duration `mapstructure:"for"`
}

type options struct {
	Word  word                          `mapstructure:"word"`
	Count int                           `mapstructure:"count"`
	Limit float64                       `mapstructure:"limit"`
	Inner part                          `mapstructure:",squash"`
	May   configoptional.Optional[part] `mapstructure:"may"`
	List  []part                        `mapstructure:"list"`
	By    map[string]int                `mapstructure:"by"`
}

func (o *options) Unmarshal(conf *confmap.Conf) error { return Read(conf, o) }

func TestReadReportsEachRemovedKeyWithItsReplacement(t *testing.T) {
	conf := confmap.NewFromStringMap(map[string]any{
		"old": 1, "count": 2, "may": map[string]any{"was": nil},
	})
	var o options
	err := Read(conf, &o, Removed{"old", "`count`"}, Removed{"may::was", "`may::small`"}, Removed{"by::x", "`list`"})
	require.EqualError(t, err, "`old` was removed (use `count`)\n`may::was` was removed (use `may::small`)")
}

func TestReadNamesTheKeyThatAMisspelledOneMeans(t *testing.T) {
	conf := confmap.NewFromStringMap(map[string]any{
		"coun": 1, "smal": 2, "may": map[string]any{"smll": 1}, "by": map[string]any{"coutn": 1}, "unlike": 1,
	})
	require.EqualError(t, Read(conf, &options{}), "`coun` is not a key (did you mean `count`?)\n"+
		"`may::smll` is not a key (did you mean `may::small`?)\n`smal` is not a key (did you mean `small`?)")
	require.ErrorContains(t, Read(confmap.NewFromStringMap(map[string]any{"unlike": 1}), &options{}), "invalid keys: unlike")
}

func TestReadRejectsNumbersThatDoNotFit(t *testing.T) {
	for found, want := range map[string]string{
		"word: 0":              "`word`: must be lean or full, found \"0\"",
		"word: 1":              "`word`: must be lean or full, found \"1\"",
		"word: true":           "`word`: must be lean or full, found \"true\"",
		"word: half":           "must be lean or full, found \"half\"",
		"count: 1e30":          "`count` must be a whole number within the range of int, found 1e+30",
		"count: 2.5":           "`count` must be a whole number within the range of int, found 2.5",
		"count: .inf":          "`count` must be a whole number within the range of int, found +Inf",
		"small: 256":           "`small` must be a whole number within the range of uint8, found 256",
		"small: -1":            "`small` must be a whole number within the range of uint8, found -1",
		"for: 1e19":            "`for` must be a whole number within the range of int64, found 1e+19",
		"for: 6":               "`for` must be a duration such as 10s or 100ms, found 6 (a number alone is nanoseconds)",
		"for: -200":            "`for` must be a duration such as 10s or 100ms, found -200 (a number alone is nanoseconds)",
		"for: 999999":          "`for` must be a duration such as 10s or 100ms, found 999999 (a number alone is nanoseconds)",
		"for: 1.5":             "`for` must be a whole number within the range of int64, found 1.5",
		"for: 100 ms":          "`for` must be a duration such as 10s or 100ms, found \"100 ms\"",
		"for: ten":             "`for` must be a duration such as 10s or 100ms, found \"ten\"",
		"for: 876001h":         "`for` must be within 876000h (100 years), found \"876001h\"",
		"for: -876001h":        "`for` must be within 876000h (100 years), found \"-876001h\"",
		"for: 4e18":            "`for` must be within 876000h (100 years), found 4e+18 (a number alone is nanoseconds)",
		"may: {for: 5}":        "`may::for` must be a duration such as 10s or 100ms, found 5 (a number alone is nanoseconds)",
		"may: {small: 3.5}":    "`may::small` must be a whole number within the range of uint8, found 3.5",
		"list: [{small: 999}]": "`list::0::small` must be a whole number within the range of uint8, found 999",
		"by: {a: 0.5}":         "`by::a` must be a whole number within the range of int, found 0.5",
	} {
		raw, err := confmap.NewRetrievedFromYAML([]byte(found))
		require.NoError(t, err)
		conf, err := raw.AsConf()
		require.NoError(t, err)
		require.ErrorContains(t, conf.Unmarshal(&options{}), want, found)
	}
	raw, err := confmap.NewRetrievedFromYAML([]byte(
		"{word: full, count: 3.0, limit: 2.5, small: 255, for: 5s, may: {small: 7}, list: [{for: 1s}], by: {a: 4}}"))
	require.NoError(t, err)
	conf, err := raw.AsConf()
	require.NoError(t, err)
	o := options{May: configoptional.Some(part{})}
	require.NoError(t, conf.Unmarshal(&o))
	require.Equal(t, options{
		Word: 4, Count: 3, Limit: 2.5, Inner: part{Small: 255, For: 5 * time.Second}, May: configoptional.Some(part{Small: 7}),
		List: []part{{For: time.Second}}, By: map[string]int{"a": 4},
	}, o)
	for found, want := range map[string]time.Duration{
		"for: 0": 0, "for: 1000000": time.Millisecond, "for: 5e9": 5 * time.Second, "for: 800ns": 800, `for: "0"`: 0,
		"for: 876000h": 876_000 * time.Hour,
	} {
		raw, err := confmap.NewRetrievedFromYAML([]byte(found))
		require.NoError(t, err)
		conf, err := raw.AsConf()
		require.NoError(t, err)
		o := options{}
		require.NoError(t, conf.Unmarshal(&o), found)
		require.Equal(t, want, o.Inner.For, found)
	}
	o = options{}
	require.NoError(t, confmap.NewFromStringMap(map[string]any{"for": time.Microsecond}).Unmarshal(&o))
	require.Equal(t, time.Microsecond, o.Inner.For)
}

func TestNamesReportsEachBlankName(t *testing.T) {
	var l List
	l.Names("list", []string{"a", "", "b", " \t"})
	require.EqualError(t, l.Err(), "`list::1` must not be blank, found \"\"\n`list::3` must not be blank, found \" \\t\"")
}
