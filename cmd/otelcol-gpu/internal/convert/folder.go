// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/otelgpu/otelgpu/internal/profilefile"
)

// expand puts the profiler files below a folder in its place, in the order of their names. The folder of results is
// passed over, which may lie below. Folders without any are refused, each by an error.
func expand(paths []string, results string) (files []string, refused []error) {
	for _, path := range paths {
		if info, err := os.Stat(path); err != nil || !info.IsDir() {
			files = append(files, path) // the reader says what is wrong
			continue
		}
		below, err := inFolder(path, results)
		switch {
		case err != nil:
			refused = append(refused, fmt.Errorf("cannot look for profiles in %q: %w", path, err))
		case len(below) == 0:
			refused = append(refused, fmt.Errorf("no profile in %q (no file that ends in %s)", path,
				strings.Join(profilefile.Endings(), ", ")))
		}
		files = append(files, below...)
	}
	return files, refused
}

func inFolder(path, results string) (files []string, err error) {
	out, err := os.Stat(results)
	if err != nil {
		return nil, err
	}
	err = filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			if info, err := d.Info(); err == nil && os.SameFile(info, out) {
				return fs.SkipDir
			}
		case profilefile.InFolder(p):
			files = append(files, p)
		}
		return nil
	})
	return files, err
}
