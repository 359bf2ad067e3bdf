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
	n := MaxText
	for n > MaxText-utf8.UTFMax && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}
