// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
)

// Limits of the table of modules: rows, and the least share of the window.
const (
	moduleRows     = 24
	leastModuleRow = 0.01
)

// moduleTable returns a line for each module and annotation that takes at least a hundredth of the
// window, indented by its depth, with a dash for unknown values.
func moduleTable(d *facts.Report) []string {
	if len(d.Modules) == 0 {
		return nil
	}
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "calls\tGPU time\tbackward\tidle before\t%% of window\tTFLOP/s\t  modules and annotations of GPU %d\n",
		d.Ordinal)
	rows, rest := 0, d.MoreModules
	window := float64(max(1, d.Window))
	for i := range d.Modules {
		m := &d.Modules[i]
		share := float64(m.Time+m.Idle) / window
		if share < leastModuleRow || rows == moduleRows {
			rest++
			continue
		}
		rows++
		calls, backward, rate, name := "-", "-", "-", finding.Clip(m.Name)
		if m.Calls > 0 {
			calls = fmt.Sprint(m.Calls)
		}
		if m.Backward > 0 {
			backward = finding.Duration(int64(m.Backward))
		}
		if m.FLOPRate > 0 {
			rate = fmt.Sprintf("%.3g", m.FLOPRate/1e12)
		}
		if m.Instances > 1 {
			name = fmt.Sprintf("%s x %d", name, m.Instances)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%.3g\t%s\t  %s%s\n", calls, finding.Duration(int64(m.Time)), backward,
			finding.Duration(int64(m.Idle)), 100*share, rate, strings.Repeat("  ", m.Depth), name)
	}
	_ = w.Flush()
	lines := strings.Split(strings.TrimRight(b.String(), "\n"), "\n")
	if rest > 0 {
		lines = append(lines, fmt.Sprintf("and %s within or beside these (in the page: --html)",
			finding.Count(int64(rest), "smaller row", "smaller rows")))
	}
	return lines
}
