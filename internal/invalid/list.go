// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package invalid collects what is wrong with a configuration, so that all of it is reported at once.
package invalid

import (
	"errors"
	"fmt"
	"time"
)

// List is what is wrong. The zero value is nothing.
type List []error

// Add adds a problem: the key in backquotes, the rule, the value that was found.
func (l *List) Add(format string, args ...any) { *l = append(*l, fmt.Errorf(format, args...)) }

// If adds a problem where there is one.
func (l *List) If(wrong bool, format string, args ...any) {
	if wrong {
		l.Add(format, args...)
	}
}

// Join adds what is wrong with a part; nil is nothing.
func (l *List) Join(err error) { *l = append(*l, err) }

// Positive adds a problem where what a key has is not above 0.
func Positive[N int | int64 | time.Duration](l *List, key string, found N) {
	l.If(found <= 0, "`%s` must be positive, found %v", key, found)
}

// Err joins the problems; nil where there are none.
func (l *List) Err() error { return errors.Join(*l...) }
