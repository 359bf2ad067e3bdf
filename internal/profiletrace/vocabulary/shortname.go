// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package vocabulary

import (
	"cmp"
	"slices"
	"strings"
)

// wrappers are kernels of template libraries with a generic name; their first template argument
// that is a type is specific.
var wrappers = map[string]bool{"Kernel": true, "Kernel2": true, "device_kernel": true, "kernel": true, "kentry": true}

// ShortName returns a kernel's name without return type, namespaces, template arguments and
// parameters: "vectorized_elementwise_kernel" for "void
// at::native::vectorized_elementwise_kernel<4, …>(int, …)". Names that are not C++ are left as they
// are.
func ShortName(name string) string {
	s := strings.TrimSuffix(strings.TrimSpace(name), ".kd")
	if m := mangledName(s); m != "" {
		return m
	}
	s = strings.ReplaceAll(s, "(anonymous namespace)", "anon")
	s = s[:outside(s, 0, '(')]     // parameters
	s = s[lastOutside(s, ' ')+1:]  // return type
	s = s[lastOutside(s, ':')+1:]  // namespaces, enclosing types
	base := s[:outside(s, 1, '<')] // template arguments; a name may begin with a bracket
	if wrappers[base] && len(s) > len(base)+1 {
		base = cmp.Or(wrapped(s[len(base)+1:]), base)
	}
	if base == "" {
		return name
	}
	return base
}

// wrapped returns the short name of the first specific template argument of a wrapper: numbers,
// truth values and targets ("gfx9_t") are not.
func wrapped(args string) string {
	for args != "" {
		end := min(outside(args, 0, ','), outside(args, 0, '>'))
		inner := ShortName(args[:end])
		switch {
		case inner == "", inner == "true", inner == "false", inner == "void", strings.HasPrefix(inner, "gfx"):
		case strings.IndexByte("-(0123456789", inner[0]) < 0:
			return inner
		}
		if end == len(args) || args[end] == '>' {
			return ""
		}
		args = args[end+1:]
	}
	return ""
}

// brackets tracks what is open. Angle brackets within round ones are usually comparisons, as in
// "enable_if<((8)>(0)), void>": a closing one counts only if an angle bracket is innermost, and a
// closing round bracket also closes the angle brackets opened within it.
type brackets struct{ open []byte }

func (b *brackets) next(s string, i int) {
	switch c := s[i]; c {
	case '<', '(', '[', '{':
		b.open = append(b.open, c)
	case '>':
		if n := len(b.open); n > 0 && b.open[n-1] == '<' && (i == 0 || s[i-1] != '-') {
			b.open = b.open[:n-1]
		}
	case ')', ']', '}':
		for n, v := range slices.Backward(b.open) {
			if v != '<' {
				b.open = b.open[:n]
				break
			}
		}
	}
}

// outside returns the index of the first c at or after from that is outside of all brackets, or
// len(s).
func outside(s string, from int, c byte) int {
	var b brackets
	for i := from; i < len(s); i++ {
		if len(b.open) == 0 && s[i] == c {
			return i
		}
		b.next(s, i)
	}
	return len(s)
}

// lastOutside returns the index of the last c that is outside of all brackets, or -1.
func lastOutside(s string, c byte) int {
	var b brackets
	last := -1
	for i := range len(s) {
		if len(b.open) == 0 && s[i] == c {
			last = i
		}
		b.next(s, i)
	}
	return last
}
