// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gputrace

import "strings"

// wrappers are kernels of template libraries whose name says nothing; their first template argument does.
var wrappers = map[string]bool{"Kernel": true, "Kernel2": true, "device_kernel": true, "kernel": true}

// ShortName is a kernel's name without return type, namespaces, template arguments and parameters:
// "vectorized_elementwise_kernel" for "void at::native::vectorized_elementwise_kernel<4, …>(int, …)".
func ShortName(name string) string {
	s := strings.TrimSuffix(strings.TrimSpace(name), ".kd")
	s = strings.TrimPrefix(s, "void ")
	s = strings.ReplaceAll(s, "(anonymous namespace)", "anon")
	head, args := splitName(s)
	base := lastComponent(head)
	if wrappers[base] && args != "" {
		if inner := ShortName(firstArgument(args)); inner != "" {
			base = inner
		}
	}
	if base == "" {
		return name
	}
	return base
}

// splitName cuts at the first template bracket or parameter list outside of "operator<" and the like.
func splitName(s string) (head, args string) {
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '<':
			if i == 0 { // compilers' own, as in "<lambda>"
				continue
			}
			end := closing(s[i:])
			args = s[i+1 : i+end]
			rest := s[min(i+end+1, len(s)):]
			if strings.HasPrefix(rest, "::") { // a member of a template: what follows is the name
				h, a := splitName(rest[2:])
				return h, a
			}
			return s[:i], args
		case '(':
			return s[:i], ""
		}
	}
	return s, ""
}

// closing is the index of the bracket that closes the one at s[0], or len(s).
func closing(s string) int {
	depth := 0
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '<', '(', '[', '{':
			depth++
		case '>':
			if i > 0 && s[i-1] == '-' {
				continue
			}
			depth--
		case ')', ']', '}':
			depth--
		}
		if depth == 0 {
			return i
		}
	}
	return len(s)
}

func firstArgument(args string) string {
	depth := 0
	for i := 0; i < len(args); i++ {
		switch args[i] {
		case '<', '(':
			depth++
		case '>', ')':
			depth--
		case ',':
			if depth == 0 {
				return args[:i]
			}
		}
	}
	return args
}

func lastComponent(s string) string {
	if i := strings.LastIndex(s, "::"); i >= 0 {
		s = s[i+2:]
	}
	s = strings.TrimSpace(s)
	if i := strings.LastIndexByte(s, ' '); i >= 0 && !strings.HasPrefix(s, "operator") && !strings.HasPrefix(s, "Mem") {
		s = s[i+1:]
	}
	return s
}
