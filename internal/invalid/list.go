// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package invalid collects what is wrong with a configuration, so that all of it is reported at once.
package invalid

import (
	"errors"
	"fmt"
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

// Err joins the problems; nil where there are none.
func (l *List) Err() error { return errors.Join(*l...) }
