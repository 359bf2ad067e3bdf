// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package vocabulary

import "strings"

// mangledName returns the last name of a nested name in Itanium's mangling
// ("_ZN2at6native13reduce_kernelI…"), where every name is preceded by its length; a short name
// needs no more than that. Wrappers are replaced by the first name among their template arguments.
// Empty for other manglings.
func mangledName(s string) string {
	rest, ok := strings.CutPrefix(s, "_Z")
	if !ok {
		return ""
	}
	last := ""
	for {
		name, after := nested(rest)
		if name == "" {
			return last
		}
		last = name
		args, ok := strings.CutPrefix(after, "I")
		if !ok || !wrappers[name] {
			return last
		}
		for strings.HasPrefix(args, "L") { // literals, as Li1E
			if _, args, ok = strings.Cut(args, "E"); !ok {
				return last
			}
		}
		rest = args
	}
}

// nested reads names one after another, with or without the N before them, and returns the last and
// what follows.
func nested(s string) (last, rest string) {
	s = strings.TrimPrefix(s, "N")
	s = strings.TrimLeft(s, "rVK")                // qualifiers
	if sub, ok := strings.CutPrefix(s, "S"); ok { // a substitution of an earlier name, S_ or S1_
		if _, after, ok := strings.Cut(sub, "_"); ok {
			s = after
		}
	}
	for {
		n, i := 0, 0
		for i < len(s) && s[i]-'0' <= 9 && n < 1<<16 {
			n, i = n*10+int(s[i]-'0'), i+1
		}
		if i == 0 || n == 0 || n > len(s)-i {
			return last, s
		}
		if last, s = s[i:i+n], s[i+n:]; strings.HasPrefix(last, "_GLOBAL__N_") { // anonymous namespace
			last = ""
		}
	}
}
