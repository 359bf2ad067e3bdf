// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"slices"

	"github.com/otelgpu/otelgpu/cmd/otelcol-gpu/internal/convert"
	"github.com/otelgpu/otelgpu/internal/gputrace/verdict"
)

// result is what convert prints of a file: what is to be gained first, then where the time of each device went.
func result(spans, cut int64, faults []string, skipped map[string]int64, what string, devices []verdict.Report) convert.Result {
	r := convert.Result{Spans: spans, Cut: cut}
	for _, d := range devices {
		for _, v := range d.Verdicts {
			r.Remarks = append(r.Remarks, v.String())
		}
	}
	for _, d := range devices {
		r.Remarks = append(r.Remarks, d.String())
	}
	r.Remarks = append(r.Remarks, faults...)
	for _, reason := range slices.Sorted(maps.Keys(skipped)) {
		r.Remarks = append(r.Remarks, fmt.Sprintf("%d %s left out: %s", skipped[reason], what, reason))
	}
	return r
}
