// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package configvalidate collects the problems of a configuration, so that all of them are reported
// at once.
package configvalidate

import (
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/collector/confmap"

	"github.com/otelgpu/otelgpu/internal/spelling"
)

// List is a list of problems. The zero value is empty.
type List []error

// Add adds a problem: the key in backquotes, the rule, and the value found.
func (l *List) Add(format string, args ...any) { *l = append(*l, fmt.Errorf(format, args...)) }

// If adds a problem if wrong is true.
func (l *List) If(wrong bool, format string, args ...any) {
	if wrong {
		l.Add(format, args...)
	}
}

// Join adds the problems of a part; nil adds nothing.
func (l *List) Join(err error) { *l = append(*l, err) }

// Positive adds a problem if the value of a key is not above 0.
func Positive[N int | int64 | time.Duration](l *List, key string, found N) {
	l.If(found <= 0, "`%s` must be positive, found %v", key, found)
}

// Names adds a problem for each name of a list that is blank or repeated.
func (l *List) Names(key string, names []string) {
	for i, name := range names {
		l.If(strings.TrimSpace(name) == "", "`%s::%d` must not be blank, found %q", key, i, name)
		l.If(slices.Contains(names[:i], name), "`%s::%d` must be unique, found %q", key, i, name)
	}
}

// Err returns the joined problems, nil if there are none.
func (l *List) Err() error { return errors.Join(*l...) }

// Removed is a key that earlier versions had, with colons between levels, and its replacement, keys
// in backquotes.
type Removed struct{ Key, Use string }

// Read calls conf.Unmarshal(into), for the Unmarshal methods of configurations. It also rejects
// values that Unmarshal accepts and changes without an error: a fraction or a number out of range
// for a whole number (truncated), a number for an enumerated word, a number below a millisecond in
// ns for a duration (a forgotten unit), and a duration of more than maxDuration. Keys that earlier
// versions had are reported with what replaces them, and misspelled keys with the key that is
// meant.
func Read(conf *confmap.Conf, into any, removed ...Removed) error {
	var bad List
	for _, r := range removed {
		bad.If(conf.IsSet(r.Key), "`%s` was removed (use %s)", r.Key, r.Use)
	}
	bad.numbers("", conf.ToStringMap(), reflect.TypeOf(into))
	bad.misspelled("", conf.ToStringMap(), reflect.TypeOf(into))
	if err := bad.Err(); err != nil {
		return err
	}
	return conf.Unmarshal(into)
}

func (l *List) numbers(key string, found any, t reflect.Type) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	words, ok := reflect.TypeAssert[encoding.TextUnmarshaler](reflect.New(t))
	if ok && (whole(t) || t.Kind() == reflect.String) {
		if _, text := found.(string); !text && found != nil {
			if err := words.UnmarshalText(fmt.Append(nil, found)); err != nil {
				l.Add("`%s`: %w", key, err)
			}
		}
		return
	}
	switch {
	case t == reflect.TypeFor[time.Duration]() && !isDuration(found):
		l.Add("`%s` must be a duration such as 10s or 100ms, found %s", key, quoted(found))
	case t == reflect.TypeFor[time.Duration]() && tooLong(found):
		l.Add("`%s` must be within %.0fh (100 years), found %s", key, maxDuration.Hours(), quoted(found))
	case whole(t):
		if v := reflect.ValueOf(found); v.IsValid() && !fits(v, t) {
			l.Add("`%s` must be a whole number within the range of %s, found %v", key, t.Kind(), found)
		}
	case t.Kind() == reflect.Struct:
		l.fields(key, found, t)
	case t.Kind() == reflect.Map:
		if m, ok := found.(map[string]any); ok {
			for k, v := range m {
				l.numbers(join(key, k), v, t.Elem())
			}
		}
	case t.Kind() == reflect.Slice:
		if list, ok := found.([]any); ok {
			for i, v := range list {
				l.numbers(join(key, fmt.Sprint(i)), v, t.Elem())
			}
		}
	}
}

func (l *List) fields(key string, found any, t reflect.Type) {
	m, ok := found.(map[string]any)
	if !ok {
		return
	}
	if get, ok := reflect.PointerTo(t).MethodByName("Get"); ok && get.Type.NumOut() == 1 { // of configoptional.Optional
		l.numbers(key, found, get.Type.Out(0))
		return
	}
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("mapstructure"), ",")
		if slices.Contains(strings.Split(options, ","), "squash") {
			l.numbers(key, found, f.Type)
		} else if v, ok := m[name]; ok && name != "" {
			l.numbers(join(key, name), v, f.Type)
		}
	}
}

// misspelled adds the keys that no field has and that resemble the key of one. Unmarshal rejects
// them, too, without naming the key that is meant. Types with their own Unmarshal method may have
// keys without a field.
func (l *List) misspelled(key string, found any, t reflect.Type) {
	t = inner(t)
	m, ok := found.(map[string]any)
	if !ok || t.Kind() != reflect.Struct {
		return
	}
	fields := map[string]reflect.Type{}
	if !keysOf(t, fields) {
		return
	}
	known := slices.Sorted(maps.Keys(fields))
	for _, name := range slices.Sorted(maps.Keys(m)) {
		of, ok := fields[name]
		if !ok {
			if meant := spelling.Nearest(name, known); meant != "" {
				l.Add("`%s` is not a key (did you mean `%s`?)", join(key, name), join(key, meant))
			}
		} else if _, custom := reflect.TypeAssert[confmap.Unmarshaler](reflect.New(inner(of))); !custom {
			l.misspelled(join(key, name), m[name], of)
		}
	}
}

// inner returns the type that a pointer or an Optional contains.
func inner(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if get, ok := reflect.PointerTo(t).MethodByName("Get"); ok && t.Kind() == reflect.Struct && get.Type.NumOut() == 1 {
		return inner(get.Type.Out(0))
	}
	return t
}

// keysOf collects the keys of a struct and of the structs squashed into it. It returns false if a
// field takes the remaining keys.
func keysOf(t reflect.Type, into map[string]reflect.Type) bool {
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("mapstructure"), ",")
		of := strings.Split(options, ",")
		switch {
		case slices.Contains(of, "remain"):
			return false
		case slices.Contains(of, "squash"):
			if !keysOf(inner(f.Type), into) {
				return false
			}
		case f.IsExported():
			into[cmp.Or(name, f.Name)] = f.Type
		}
	}
	return true
}

func join(outer, key string) string {
	if outer == "" {
		return key
	}
	return outer + confmap.KeyDelimiter + key
}

// isDuration reports whether the value is a duration or has a type that another check rejects.
func isDuration(found any) bool {
	if text, ok := found.(string); ok {
		_, err := time.ParseDuration(text)
		return err == nil
	}
	v := reflect.ValueOf(found)
	if _, typed := found.(time.Duration); typed || !v.IsValid() || !fits(v, reflect.TypeFor[time.Duration]()) {
		return true
	}
	ns := 0.0
	switch {
	case v.CanInt():
		ns = float64(v.Int())
	case v.CanUint():
		ns = float64(v.Uint())
	case v.CanFloat():
		ns = v.Float()
	}
	return ns == 0 || math.Abs(ns) >= float64(time.Millisecond)
}

// maxDuration is the longest duration of an option: times in nanoseconds since 1970 end in 2262,
// and sums of a time and a longer duration would be in the past.
const maxDuration = 876_000 * time.Hour

func tooLong(found any) bool {
	d, v := time.Duration(0), reflect.ValueOf(found)
	switch text, ok := found.(string); {
	case !v.IsValid() || !fits(v, reflect.TypeFor[time.Duration]()):
		return false // another check rejects it
	case ok:
		d, _ = time.ParseDuration(text)
	case v.CanInt():
		d = time.Duration(v.Int())
	case v.CanUint():
		d = time.Duration(v.Uint())
	case v.CanFloat():
		d = time.Duration(v.Float())
	}
	return d > maxDuration || d < -maxDuration
}

func quoted(found any) string {
	if text, ok := found.(string); ok {
		return strconv.Quote(text)
	}
	return fmt.Sprintf("%v (a number alone is nanoseconds)", found)
}

func whole(t reflect.Type) bool { return t.Kind() >= reflect.Int && t.Kind() <= reflect.Uintptr }

// fits reports whether the value is not a number or is in the range of the integer type.
func fits(v reflect.Value, t reflect.Type) bool {
	signed := t.Kind() <= reflect.Int64
	to := reflect.Zero(t)
	switch {
	case v.CanFloat():
		f := v.Float()
		return f == math.Trunc(f) && math.Abs(f) < 1<<63 &&
			(signed && !to.OverflowInt(int64(f)) || !signed && f >= 0 && !to.OverflowUint(uint64(f)))
	case v.CanInt():
		return signed && !to.OverflowInt(v.Int()) || !signed && v.Int() >= 0 && !to.OverflowUint(uint64(v.Int()))
	case v.CanUint():
		return !signed && !to.OverflowUint(v.Uint()) ||
			signed && v.Uint() <= math.MaxInt64 && !to.OverflowInt(int64(v.Uint()))
	}
	return true
}
