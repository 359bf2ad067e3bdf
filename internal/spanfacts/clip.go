// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package spanfacts

import (
	"fmt"
	"hash/fnv"
	"strings"
	"unicode/utf8"

	"go.opentelemetry.io/collector/pdata/pcommon"
)

// MaxText is how many bytes of a name from the wire metrics and pages keep.
const MaxText = 256

// replacement is written for bytes that are not UTF-8.
const replacement = "\uFFFD"

// Clip returns s as valid UTF-8, without which protocol buffers reject a whole request, or the
// start of it and an ellipsis if it is longer than MaxText. A clipped text does not keep the whole
// one in memory.
func Clip(s string) string { return Valid(s, MaxText) }

// Valid is like Clip, with another limit in bytes, which the ellipsis exceeds. A run of invalid
// bytes becomes U+FFFD.
func Valid(s string, limit int) string {
	if len(s) <= limit && utf8.ValidString(s) {
		return s
	}
	start := strings.ToValidUTF8(Truncate(s, limit), replacement)
	if len(s) <= limit && len(start) <= limit {
		return start
	}
	return Truncate(start, limit) + "…"
}

// maxTraceState is the length of a trace state that the standard requires participants to
// propagate.
const maxTraceState = 512

// TraceState returns the trace state of a span or link. One that is too long or invalid is omitted,
// because half of it would be another state.
func TraceState(ts pcommon.TraceState) string {
	state := ts.AsRaw()
	if len(state) > maxTraceState || !utf8.ValidString(state) {
		return ""
	}
	return state
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
func ValidText(s string, n int) string { return strings.ToValidUTF8(Truncate(s, n), replacement) }

// DistinctText is like ValidText, but truncates different texts to different ones: a truncated text
// ends in a hash of the whole.
func DistinctText(s string, n int) string {
	if len(s) <= n {
		return ValidText(s, n)
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(s))
	return ValidText(s, n-len("…12345678")) + fmt.Sprintf("…%08x", h.Sum32())
}
