// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"fmt"
	"io"
	"strings"

	"github.com/otelgpu/otelgpu/cmd/otelcol-gpu/internal/printable"
	"github.com/otelgpu/otelgpu/cmd/otelcol-gpu/internal/summarytable"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/internal/profiletrace/jobs"
)

func (r *conversion) complain(err error) {
	fmt.Fprintf(r.problems, "otelcol-gpu: %s\n", printable.Text(err.Error()))
}

// printProfiles prints what was found in jobs of several ranks, then in each file.
func (r *conversion) printProfiles(found []jobs.Job) error {
	if err := renderJobs(r.out, found, r.width); err != nil {
		return err
	}
	if len(found) > 0 {
		fmt.Fprintln(r.out)
	}
	for i := range r.profiles {
		p := &r.profiles[i]
		text := p.skipped
		if text == "" {
			text = fmt.Sprintf("%s: %d spans%s\n", printable.Line(p.file), p.got.Spans, also(p.got, r.width))
		}
		if _, err := io.WriteString(r.out, text); err != nil {
			return err
		}
	}
	return nil
}

// findingLines is the most lines of a finding on a terminal.
const findingLines = 4

func wrapped(remark string, width int) string {
	return printable.Wrapped(printable.Line(remark), width, "    ", "      ")
}

// also returns the lines printed below the spans of a file, wrapped to a width; 0: not wrapped.
func also(r Result, width int) string {
	var b strings.Builder
	if r.Cut > 0 {
		fmt.Fprintf(&b, " (%d more are summed on them: --detail kernels shows all)", r.Cut)
	}
	var remarks []string
	fits := func(text string) bool { return strings.Count(wrapped(text, width), "\n") < findingLines }
	for i := range r.Devices {
		for _, v := range r.Devices[i].Findings {
			remarks = append(remarks, v.Fit(fits))
		}
	}
	for _, remark := range append(remarks, r.Remarks...) {
		b.WriteString("\n" + wrapped(remark, width))
	}
	return b.String()
}

// printTables prints the tables of all files.
func (r *conversion) printTables(found []jobs.Job) error {
	if text := r.ranks.NotCompared(); text != "" {
		fmt.Fprintf(r.out, "\n%s\n", printable.Wrapped(text, r.width, "", ""))
	}
	fmt.Fprintln(r.out)
	if err := r.table.Render(r.out, summarytable.Format{Rows: r.Rows}); err != nil {
		return err
	}
	return renderTransfers(r.out, found, r.transfers)
}

// printResults prints which files were written.
func (r *conversion) printResults(replaced []string) {
	if len(replaced) > 0 {
		fmt.Fprintf(r.out, "\n%s of an earlier run in %s: replaced\n", strings.Join(replaced, ", "), printable.Line(r.Out))
	}
	r.results.describe(r.out)
	if r.Pprof == "" {
		return
	}
	fmt.Fprintf(r.out, "%s\n    GPU time and idle time by stack: open it with go tool pprof\n", printable.Line(r.Pprof))
	if n := r.book.Stacks().Merged(); n > 0 {
		fmt.Fprintf(r.out, "    %d values are in one stack, because there are too many stacks\n", n)
	}
}

// renderTransfers writes the bandwidth of collectives: of jobs if they have any, otherwise of each
// profile alone.
func renderTransfers(out io.Writer, found []jobs.Job, alone []facts.Transfer) error {
	var ofJobs []facts.Transfer
	more := 0
	for _, j := range found {
		more += j.MoreTransfers
		for _, t := range j.Transfers {
			ofJobs = append(ofJobs, t.Transfer)
		}
	}
	if len(ofJobs) > 0 {
		alone = ofJobs
	}
	if len(alone) == 0 {
		return nil
	}
	of := "the shortest run: longer ones waited for another rank, and if all did, the bandwidth is higher"
	if len(ofJobs) > 0 {
		of = "the mean run, each as long as its shortest rank: the last to arrive does not wait"
	}
	fmt.Fprintln(out)
	return summarytable.RenderTransfers(out, alone, more, of)
}
