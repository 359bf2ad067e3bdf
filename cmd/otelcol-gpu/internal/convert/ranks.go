// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/otelgpu/otelgpu/cmd/otelcol-gpu/internal/printable"
	"github.com/otelgpu/otelgpu/internal/profiletrace/jobs"
)

// renderJobs writes a finding, in lines that fit a width (0: any), and a table for each job of
// several ranks.
func renderJobs(w io.Writer, list []jobs.Job, width int) error {
	for i := range list {
		says := printable.Line(list[i].Says)
		if width > 0 {
			var parts []string
			for _, part := range list[i].Paragraphs() {
				parts = append(parts, printable.Wrapped(printable.Line(part), width, "", "  "))
			}
			says = strings.Join(parts, "\n")
		}
		if _, err := fmt.Fprintf(w, "\n%s\n\n%s", says, rankTable(&list[i])); err != nil {
			return err
		}
	}
	return nil
}

// rankTable returns a line for each rank.
func rankTable(j *jobs.Job) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "RANK\tSTEP\tOWN\tCOMPUTING\tCOMMUNICATING\tLAST AT\tWAITED\tOTHERS WAITED\tCAUSED\t  FILE")
	for _, r := range j.Ranks {
		step, own, last, waited, held, caused := "-", "-", "-", "-", "-", "-"
		if r.Step > 0 {
			step, own = jobs.FormatTime(r.Step), jobs.FormatTime(r.Own)
		}
		if r.Collectives > 0 {
			last, waited = fmt.Sprintf("%d of %d", r.Last, r.Collectives), jobs.FormatTime(r.Waited)
			held, caused = jobs.FormatTime(r.HeldUp), jobs.FormatTime(r.Caused)
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t  %s\n", r.Rank, step, own, jobs.FormatTime(r.Computing),
			jobs.FormatTime(r.Communicating), last, waited, held, caused, printable.Line(r.File))
	}
	_ = w.Flush() // strings.Builder accepts everything
	return b.String()
}
