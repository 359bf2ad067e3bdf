// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package spanfacts

import "unicode/utf8"

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
