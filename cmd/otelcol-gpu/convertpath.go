// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/profiletrace/criticalpath"
)

// Limits of the lines on a critical path.
const (
	pathParts     = 4
	leastPathPart = 0.01 // of the path
	leastPathKind = 0.001
)

// pathLines returns what the steps of a process consist of along their critical paths, and what
// would shorten them most.
func pathLines(p *criticalpath.Path, process bool) []string {
	of, each := "the profile", ""
	switch {
	case p.Steps == 1:
		of = "the step"
	case p.Steps > 1:
		of, each = fmt.Sprintf("%d steps, mean", p.Steps), " per step"
	}
	if process {
		of = fmt.Sprintf("process %d, %s", p.Process, of)
	}
	timed := func(name string, t time.Duration) string {
		return fmt.Sprintf("%s %s (%.3g %%)", name, finding.Duration(int64(p.Mean(t))), 100*p.Share(t))
	}
	var kinds, parts []string
	var small time.Duration
	for _, k := range p.Kinds {
		if p.Share(k.Time) < leastPathKind {
			small += k.Time
			continue
		}
		kinds = append(kinds, timed(k.Kind.ForPeople(), k.Time))
	}
	if small > 0 {
		kinds = append(kinds, timed("other", small))
	}
	for i := range p.Parts {
		x := &p.Parts[i]
		if x.Name == "" || len(parts) == pathParts || p.Share(x.Gain) < leastPathPart {
			continue
		}
		name := finding.Clip(x.Name)
		if x.Lane != "" {
			name = fmt.Sprintf("%s on %s", name, x.Lane)
		}
		parts = append(parts, timed(name, x.Gain))
	}
	lines := []string{fmt.Sprintf("critical path of %s: %s = %s", of, finding.Duration(int64(p.Mean(p.Length))),
		strings.Join(kinds, " + "))}
	if len(parts) > 0 {
		lines = append(lines, fmt.Sprintf("at most saved%s if it took no time, less if another path is nearly as "+
			"long: %s", each, strings.Join(parts, ", ")))
	}
	return lines
}
