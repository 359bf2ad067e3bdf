// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuderiveprocessor

import (
	"path"
	"strings"
)

// matches reports whether a name matches a pattern (`*`, `?`, `[…]`) as a whole. It is path.Match, but for the slash,
// which is a letter like any other: scopes are often named by import paths.
func matches(pattern, name string) bool {
	ok, _ := path.Match(noSlash(pattern), noSlash(name))
	return ok
}

// checkPattern returns an error where the pattern is malformed.
func checkPattern(pattern string) error {
	_, err := path.Match(noSlash(pattern), "")
	return err
}

func noSlash(s string) string { return strings.ReplaceAll(s, "/", "\x00") }
