// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chrometrace

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/otelgpu/otelgpu/internal/spanfiles/fileerr"
)

// fileTime sorts by name as by time, and has no colon, which Windows forbids.
const fileTime = "20060102T150405.000Z"

// timedName returns the name of a rotated file. The stem may have a folder.
func timedName(stem, ext string, t time.Time) string {
	return stem + "-" + t.UTC().Format(fileTime) + ext
}

// isTimed reports whether the middle of a name starts with a time; a number may follow.
func isTimed(mid string) bool {
	_, err := time.Parse(fileTime, mid[:min(len(mid), len(fileTime))])
	return err == nil
}

// prune removes the oldest rotated files beyond a number, 0 meaning all are kept.
func prune(stem, ext string, keep int) error {
	if keep <= 0 {
		return nil
	}
	dir, prefix := filepath.Split(stem)
	entries, err := os.ReadDir(filepath.Clean(dir + "."))
	if err != nil {
		return fmt.Errorf("cannot remove old files of %q: %w", stem+ext, fileerr.Cause(err))
	}
	var files []os.FileInfo
	for _, e := range entries {
		mid, begins := strings.CutPrefix(e.Name(), prefix+"-")
		mid, ends := strings.CutSuffix(mid, ext)
		if !begins || !ends || !isTimed(mid) || !e.Type().IsRegular() {
			continue
		}
		if info, err := e.Info(); err == nil {
			files = append(files, info)
		}
	}
	slices.SortFunc(files, func(a, b os.FileInfo) int {
		return cmp.Or(a.ModTime().Compare(b.ModTime()), cmp.Compare(a.Name(), b.Name()))
	})
	var errs error
	for _, f := range files[:max(len(files)-keep, 0)] {
		if err := os.Remove(dir + f.Name()); err != nil {
			errs = errors.Join(errs, fmt.Errorf("cannot remove old file %q: %w", dir+f.Name(), fileerr.Cause(err)))
		}
	}
	return errs
}
