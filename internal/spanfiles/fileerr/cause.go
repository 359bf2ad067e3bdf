// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package fileerr helps file writers to name the file that their user knows.
package fileerr

import (
	"errors"
	"io/fs"
	"os"
)

// Cause strips the path from a path or link error: the path may be a temporary file's, and the
// caller names another one.
func Cause(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	var l *os.LinkError
	if errors.As(err, &l) {
		return l.Err
	}
	return err
}
