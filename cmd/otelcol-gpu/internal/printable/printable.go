// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package printable makes text from files and devices safe to print: the name of a kernel must not
// move the cursor, set the window's title or overwrite the line above.
package printable

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Line returns the text in one line: control characters, marks that change the direction of
// writing, line and paragraph separators and invalid UTF-8 are written as escapes (\x1b, \u202e).
func Line(s string) string { return escape(s, "") }

// Text is like Line for text of several lines: line feeds and tabs are kept.
func Text(s string) string { return escape(s, "\n\t") }

// Wrapped returns a text in lines of fewer columns than width, with first before the first of them
// and more before the others. A word that is longer stays whole. Without a width there is one line.
func Wrapped(s string, width int, first, more string) string {
	if width == 0 {
		return first + s
	}
	var b strings.Builder
	column, before := 0, first
	for word := range strings.FieldsSeq(s) {
		n := utf8.RuneCountInString(word)
		switch {
		case before != "" || column == 0:
			b.WriteString(before)
			column, before = utf8.RuneCountInString(before), ""
		case column+1+n >= width:
			b.WriteString("\n" + more)
			column = utf8.RuneCountInString(more)
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += n
	}
	return b.String()
}

func escape(s, keep string) string {
	bad := func(r rune) bool { return !unicode.IsPrint(r) && !strings.ContainsRune(keep, r) }
	if utf8.ValidString(s) && strings.IndexFunc(s, bad) < 0 {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if n == 1 && r == utf8.RuneError || bad(r) {
			quoted := strconv.QuoteToASCII(s[:n])
			b.WriteString(quoted[1 : len(quoted)-1])
		} else {
			b.WriteString(s[:n])
		}
		s = s[n:]
	}
	return b.String()
}
