// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package dl

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"
)

// Library is a loaded C library. It is never unloaded: other code of the process may use it too.
type Library struct {
	handle uintptr
	Path   string // as it was given to the loader
}

// Func is the address of a C function; zero is not callable.
type Func uintptr

// Open loads the first of paths that can be loaded. A soname that the process has loaded already
// answers with that library, so that handles made elsewhere (by cgo, by C libraries) are valid
// here. The error contains why the first path cannot be loaded, why any file that exists cannot,
// and names the others.
func Open(paths ...string) (*Library, error) {
	var reasons, absent []string
	for i, p := range paths {
		h, err := open(p)
		if err == nil {
			return &Library{handle: h, Path: p}, nil
		}
		if i > 0 && strings.Contains(err.Error(), "No such file") {
			absent = append(absent, p)
			continue
		}
		reason, _, _ := strings.Cut(err.Error(), "\n")
		reasons = append(reasons, p+": "+strings.TrimPrefix(reason, p+": "))
	}
	if absent != nil {
		reasons = append(reasons, "nor is there "+strings.Join(absent, ", "))
	}
	if reasons == nil {
		return nil, errors.New("no library named")
	}
	return nil, errors.New(strings.Join(reasons, "; "))
}

// Find opens the library at path; if that is empty, the one that an environment variable names;
// otherwise the first of the usual paths.
func Find(path, variable string, paths []string) (*Library, error) {
	if path = cmp.Or(path, os.Getenv(variable)); path != "" {
		paths = []string{path}
	}
	return Open(paths...)
}

// Lookup returns the first of names that the library exports, 0 if it exports none.
func (l *Library) Lookup(names ...string) Func {
	for _, n := range names {
		if f, err := symbol(l.handle, n); err == nil && f != 0 {
			return Func(f)
		}
	}
	return 0
}

// Symbols resolves several functions and remembers the missing ones.
type Symbols struct {
	lib     *Library
	missing []string
}

// Symbols starts a resolution.
func (l *Library) Symbols() *Symbols { return &Symbols{lib: l} }

// Need resolves the first of names that exists and records the first name if none does.
func (s *Symbols) Need(names ...string) Func {
	f := s.lib.Lookup(names...)
	if f == 0 {
		s.missing = append(s.missing, names[0])
	}
	return f
}

// Err names the missing symbols.
func (s *Symbols) Err() error {
	if s.missing == nil {
		return nil
	}
	return fmt.Errorf("%s lacks %s (library too old)", s.lib.Path, strings.Join(s.missing, ", "))
}
