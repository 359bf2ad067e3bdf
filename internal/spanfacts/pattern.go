// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package spanfacts

import (
	"path"
	"strings"
)

// Matches reports whether a name matches a pattern (`*`, `?`, `[…]`) as a whole. It is path.Match,
// except that the slash is an ordinary character: scopes are often named by import paths.
func Matches(pattern, name string) bool {
	ok, _ := path.Match(noSlash(pattern), noSlash(name))
	return ok
}

// CheckPattern returns an error if the pattern is malformed.
func CheckPattern(pattern string) error {
	_, err := path.Match(noSlash(pattern), "")
	return err
}

func noSlash(s string) string { return strings.ReplaceAll(s, "/", "\x00") }
