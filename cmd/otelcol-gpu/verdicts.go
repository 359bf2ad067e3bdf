// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/cmd/otelcol-gpu/internal/convert"
	"github.com/otelgpu/otelgpu/cmd/otelcol-gpu/internal/printable"
	"github.com/otelgpu/otelgpu/internal/gputrace/verdict"
	"github.com/otelgpu/otelgpu/internal/page"
	"github.com/otelgpu/otelgpu/internal/profilefile"
	"github.com/otelgpu/otelgpu/receiver/kinetoreceiver"
	"github.com/otelgpu/otelgpu/receiver/nsysreceiver"
)

// result is what convert prints of a file: what is to be gained first, then where the time of each device went, and at
// detail operators their rates.
func result(
	spans, cut int64, faults []string, skipped map[string]int64, what string, devices []verdict.Report,
	detail kinetoreceiver.Detail,
) convert.Result {
	r := convert.Result{Spans: spans, Cut: cut, Devices: devices, Odd: slices.Clone(faults)}
	for _, d := range devices {
		for _, v := range d.Verdicts {
			r.Remarks = append(r.Remarks, v.String())
		}
	}
	for _, d := range devices {
		r.Remarks = append(r.Remarks, d.String())
		if detail == kinetoreceiver.DetailOperators {
			r.Remarks = append(r.Remarks, operatorTable(&d)...)
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(skipped)) {
		r.Odd = append(r.Odd, fmt.Sprintf("%d %s left out: %s", skipped[reason], what, reason))
	}
	r.Remarks = append(r.Remarks, r.Odd...)
	return r
}

// operatorRows is how many operators are listed, by the time of their kernels.
const operatorRows = 40

// operatorTable has a line for each operator and shapes: what is not known is a dash.
func operatorTable(d *verdict.Report) []string {
	if len(d.Operators) == 0 {
		return nil
	}
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "kernels\ttime\t%% of window\tTFLOP/s\tGB/s\t%% of peak\tbound\t  operators of GPU %d\n", d.Ordinal)
	known := func(v, unit float64) string {
		if v == 0 {
			return "-"
		}
		return fmt.Sprintf("%.3g", v/unit)
	}
	for _, o := range d.Operators[:min(operatorRows, len(d.Operators))] {
		bound := o.Bound
		if bound == "" {
			bound = "-"
		}
		fmt.Fprintf(w, "%d\t%s\t%.3g\t%s\t%s\t%s\t%s\t  %s\n", o.Kernels, verdict.Span(int64(o.Time)),
			100*float64(o.Time)/float64(max(1, d.Window)),
			known(o.FLOPRate, 1e12), known(o.ByteRate, 1e9), known(o.PeakShare, 0.01), bound,
			strings.TrimSpace(o.Name+" "+o.Shapes))
	}
	_ = w.Flush()
	lines := strings.Split(strings.TrimRight(b.String(), "\n"), "\n")
	if rest := len(d.Operators) - operatorRows; rest > 0 {
		lines = append(lines, fmt.Sprintf("and %d more operators", rest))
	}
	return lines
}

// comparison prints what changed between two profiles.
func comparison(
	ctx context.Context, out io.Writer, files []string, o kinetoreceiver.Options, rows int, html string,
) error {
	if len(files) != 2 {
		return fmt.Errorf("--compare takes two profiles, before and after, found %d", len(files))
	}
	var reports [2][]verdict.Report
	for i, path := range files {
		var err error
		if reports[i], err = analyse(ctx, path, o); err != nil {
			return err
		}
		if len(reports[i]) == 0 {
			return fmt.Errorf("cannot compare %q: it has no activity of a device", path)
		}
	}
	var b bytes.Buffer
	if err := verdict.Compare(reports[0], reports[1]).Write(&b, rows); err != nil {
		return err
	}
	for line := range strings.Lines(b.String()) {
		if _, err := fmt.Fprintln(out, printable.Line(strings.TrimRight(line, "\n"))); err != nil {
			return err
		}
	}
	if html == "" {
		return nil
	}
	path, err := page.WriteReport(html, "compare.html", page.Compared([2]string(files), reports))
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "\n%s\n    the same as a page: open it in a browser; it needs nothing else\n",
		printable.Line(path))
	return err
}

// analyse reads a profile for its reports only.
func analyse(ctx context.Context, path string, o kinetoreceiver.Options) ([]verdict.Report, error) {
	o.Detail, o.Partial = kinetoreceiver.DetailSteps, false
	discard := func(context.Context, ptrace.Traces) error { return nil }
	head, _ := profilefile.Head(path)
	if profilefile.IsSQLite(head) {
		st, err := nsysreceiver.ReadFile(ctx, path, o, discard)
		return st.Devices, err
	}
	st, err := kinetoreceiver.ReadFile(ctx, path, o, discard)
	return st.Devices, err
}
