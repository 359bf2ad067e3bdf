// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package rankname finds the rank of a process in the name of its profile.
package rankname

import (
	"path/filepath"
	"regexp"
	"strconv"
)

// pattern finds the rank in names such as from nsys profile -o train_rank%q{RANK}, or
// rank3.pt.trace.json.gz.
var pattern = regexp.MustCompile(`(?i)(?:^|[^a-z])rank[-_.=]?(\d{1,9})(?:[^0-9]|$)`)

// Of returns the rank in the name of a file; false if it has none.
func Of(path string) (rank int64, ok bool) {
	f := pattern.FindStringSubmatch(filepath.Base(path))
	if f == nil {
		return 0, false
	}
	rank, err := strconv.ParseInt(f[1], 10, 64)
	return rank, err == nil
}
