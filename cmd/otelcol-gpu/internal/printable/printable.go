// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package printable makes text of files and devices safe to print: what a profile calls a kernel must not move the
// cursor, set the title of the window or write over the line above.
package printable

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Line is the text in one line: control characters, marks that change the direction of writing, line and paragraph
// separators and bytes that are no UTF-8 are written as escapes (\x1b, \u202e).
func Line(s string) string { return escape(s, "") }

// Text is Line for a text of several lines: line feeds and tabs stay.
func Text(s string) string { return escape(s, "\n\t") }

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
