// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package stepcsv

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// create makes a file that does not exist, header and all, in one step: the ranks of a job open the same path at the
// same moment, and each that found an empty file would write a header. Where that cannot be done (a file system without
// links) the file is created by opening it.
func create(path string, header []byte) {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return
	}
	// Not os.CreateTemp, whose files nobody else may read: the mode is that of a file made by opening it.
	name := filepath.Join(filepath.Dir(path), fmt.Sprintf(".%s-%016x", filepath.Base(path), rand.Uint64()))
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return
	}
	defer func() { _ = os.Remove(name) }()
	_, err = f.Write(header)
	if err = errors.Join(err, f.Close()); err == nil {
		_ = os.Link(name, path) // fails when another process was faster
	}
}
