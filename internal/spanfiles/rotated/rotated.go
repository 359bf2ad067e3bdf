// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package rotated names and removes rotated files: <stem>-<UTC time><extension>.
package rotated

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

// format sorts by name as by time, and has no colon, which Windows forbids.
const format = "20060102T150405.000Z"

// Name returns the name of a file of this time. The stem may have a folder.
func Name(stem, ext string, t time.Time) string { return stem + "-" + t.UTC().Format(format) + ext }

// Timed reports whether the middle of a name starts with a time; a number may follow.
func Timed(mid string) bool {
	_, err := time.Parse(format, mid[:min(len(mid), len(format))])
	return err == nil
}

// Prune removes the oldest files beyond a number, 0 meaning all are kept. Only regular files named
// <stem>-<middle><extension> count, of which ours accepts the middle.
func Prune(stem, ext string, keep int, ours func(mid string) bool) error {
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
		if !begins || !ends || !ours(mid) || !e.Type().IsRegular() {
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
