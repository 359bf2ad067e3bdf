// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chrometrace

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/otelgpu/otelgpu/gpuspan/internal/fileerr"
)

// prune removes the oldest complete files beyond MaxFiles. Only names that a Rotator of this path makes count.
func (r *Rotator) prune() error {
	if r.cfg.MaxFiles <= 0 || !r.rotates() && r.cfg.PerTrace <= 0 {
		return nil
	}
	dir, name := filepath.Split(r.cfg.Path)
	stem, ext := splitExt(name)
	entries, err := os.ReadDir(filepath.Clean(dir + "."))
	if err != nil {
		return fmt.Errorf("cannot remove old trace files of %q: %w", r.cfg.Path, fileerr.Cause(err))
	}
	type old struct {
		name string
		time time.Time
	}
	var files []old
	for _, e := range entries {
		mid, ok := strings.CutPrefix(e.Name(), stem+"-")
		if !ok {
			continue
		}
		mid, ok = strings.CutSuffix(mid, ext)
		if !ok || !r.made(mid) || !e.Type().IsRegular() {
			continue
		}
		if info, err := e.Info(); err == nil {
			files = append(files, old{e.Name(), info.ModTime()})
		}
	}
	if len(files) <= r.cfg.MaxFiles {
		return nil
	}
	slices.SortFunc(files, func(a, b old) int {
		if c := a.time.Compare(b.time); c != 0 {
			return c
		}
		return strings.Compare(a.name, b.name)
	})
	var errs error
	for _, f := range files[:len(files)-r.cfg.MaxFiles] {
		if err := os.Remove(filepath.Join(dir, f.name)); err != nil {
			errs = errors.Join(errs, fmt.Errorf("cannot remove old trace file %q: %w", filepath.Join(dir, f.name),
				fileerr.Cause(err)))
		}
	}
	return errs
}

// made reports whether a Rotator puts mid between stem and extension: a time or a trace id, and perhaps a number.
func (r *Rotator) made(mid string) bool {
	if r.cfg.PerTrace > 0 {
		return len(mid) >= 32 && strings.Trim(mid[:32], "0123456789abcdef") == ""
	}
	if len(mid) < len(timeFormat) {
		return false
	}
	_, err := time.Parse(timeFormat, mid[:len(timeFormat)])
	return err == nil
}
