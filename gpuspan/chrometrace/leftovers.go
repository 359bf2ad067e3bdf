// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chrometrace

import (
	"os"
	"path/filepath"
	"strings"
)

// partialExtension ends the names of files that are not complete: <name>.<number>.partial.
const partialExtension = ".partial"

// Leftovers are the files under temporary names that belong to this Rotator's path and are not its own: those of a
// process that was killed, and those of one that runs and writes to the same path, which look alike. Their beginning
// can be read by the kineto receiver and otelcol-gpu convert.
func (r *Rotator) Leftovers() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	own := map[string]bool{}
	for _, f := range r.open {
		own[filepath.Base(f.f.Name())] = true
	}
	for _, f := range r.unnamed {
		own[filepath.Base(f.temp)] = true
	}
	dir, name := filepath.Split(r.cfg.Path)
	stem, ext := splitExt(name)
	entries, err := os.ReadDir(filepath.Clean(dir + "."))
	if err != nil {
		return nil // the next write says what is wrong
	}
	var list []string
	for _, e := range entries {
		base, ok := strings.CutSuffix(e.Name(), partialExtension)
		if !ok || own[e.Name()] || !e.Type().IsRegular() {
			continue
		}
		base = strings.TrimSuffix(base, filepath.Ext(base)) // the number
		if strings.HasPrefix(base, stem) && strings.HasSuffix(base, ext) && len(base) >= len(stem)+len(ext) {
			list = append(list, dir+e.Name())
		}
	}
	return list
}
