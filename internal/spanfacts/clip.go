// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package spanfacts

import (
	"fmt"
	"hash/fnv"
	"strings"
	"unicode/utf8"
)

// MaxText is how many bytes of a name from the wire metrics and pages keep.
const MaxText = 256

// Clip returns s, or the start of it and an ellipsis if it is longer than MaxText. A clipped text does not keep the
// whole one in memory.
func Clip(s string) string {
	if len(s) <= MaxText {
		return s
	}
	return Truncate(s, MaxText) + "…"
}

// Truncate returns at most n bytes of s, without a part of a rune at their end.
func Truncate(s string, n int) string {
	if len(s) <= n {
		return s
	}
	least := max(0, n-utf8.UTFMax) // of invalid UTF-8
	for n > least && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// ValidText returns at most n bytes of s as valid UTF-8, which OTLP requires.
func ValidText(s string, n int) string { return strings.ToValidUTF8(Truncate(s, n), "\uFFFD") }

// DistinctText is like ValidText, but truncates different texts to different ones: a truncated text ends in a hash of
// the whole.
func DistinctText(s string, n int) string {
	if len(s) <= n {
		return ValidText(s, n)
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(s))
	return ValidText(s, n-len("…12345678")) + fmt.Sprintf("…%08x", h.Sum32())
}
