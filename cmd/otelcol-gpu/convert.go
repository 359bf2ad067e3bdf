// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/cmd/otelcol-gpu/internal/convert"
	"github.com/otelgpu/otelgpu/cmd/otelcol-gpu/internal/printable"
	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/page"
	"github.com/otelgpu/otelgpu/internal/profilefile"
	"github.com/otelgpu/otelgpu/internal/profiletrace"
	"github.com/otelgpu/otelgpu/internal/profiletrace/verdict"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/receiver/kinetoreceiver"
	"github.com/otelgpu/otelgpu/receiver/nsysreceiver"
)

func newConvertCommand() *cobra.Command {
	common := kinetoreceiver.Options{Attributes: spanfacts.Full} // trace.json holds what the file did
	var compare bool
	o := convert.Options{Info: buildInfo(), Factories: factories}
	cmd := &cobra.Command{
		Use: "convert [--detail LEVEL] [--html] --out DIR FILE|FOLDER...\n" +
			"  otelcol-gpu convert --compare [--html] BEFORE AFTER",
		Short: "Convert PyTorch and Nsight Systems profiles to OTLP and a Chrome trace",
		Long: `Convert PyTorch profiler (Kineto) traces, plain or compressed, and SQLite exports of Nsight Systems to
DIR/spans.json (OTLP JSON, one request per line) and DIR/trace.json (one Chrome trace of all; files recorded more than
three months apart go to trace-1.json, trace-2.json …), through the same
code as the kineto and nsys receivers and the processors, and print where the GPU time went. The Chrome trace and the
table are of every activity; --detail is for the spans. A folder stands for all profiles below it (.json, .json.gz,
.json.zst, .sqlite, _results.db); a profile that is there twice counts once. Results replace those of an earlier run at
the end.
Files that cannot be read are refused by name; the others are converted, and the exit code is 1. It is 3 where all were
read but of some only the beginning, because they are cut off or broken.

With --html there is DIR/report.html, too: one file that opens in a browser, with where the time went by step, findings,
the streams, roofline, kernels, operators, communication and ranks. DIR defaults to otelgpu-report.

With --pprof FILE the stacks of all files go to FILE, with GPU time and idle time: open it with go tool pprof,
speedscope or Pyroscope.

With --compare what changed between two profiles is printed, by cause, operator and kernel, per step; and written to
DIR/compare.html with --html.`,
		Args: takes(1, math.MaxInt, "convert takes profiles, or folders of them (otelcol-gpu convert --html FILE)"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := interruptible(cmd,
				"results of an earlier run are as they were; what is beside them with a temporary name can be deleted")
			defer stop()
			if o.Out == "" && o.HTML {
				o.Out = "otelgpu-report"
			}
			if compare && o.Pprof != "" {
				return fmt.Errorf("--pprof %q does not go with --compare (convert each file, and compare by go tool pprof -base)",
					o.Pprof)
			}
			if compare && o.Out != "" && !o.HTML {
				return fmt.Errorf("--compare prints; only with --html it writes to --out, %q", o.Out)
			}
			if compare {
				html := ""
				if o.HTML {
					html = o.Out
				}
				return comparison(ctx, cmd.OutOrStdout(), args, common, o.Rows, html)
			}
			if o.Out == "" {
				return errors.New("no folder for the results (--out DIR, or --html, which takes otelgpu-report)")
			}
			o.Terminal = terminal(os.Stdout)
			o.Files, o.Reader, o.Full = args, profileReader(common), common.Detail == kinetoreceiver.DetailKernels
			err := convert.Run(ctx, cmd.OutOrStdout(), cmd.ErrOrStderr(), o)
			switch {
			case errors.Is(err, convert.ErrSomeFailed):
				return errReported
			case errors.Is(err, convert.ErrSomePartial):
				return errPartial
			}
			return err
		},
	}
	cmd.Flags().TextVar(&common.Detail, "detail", kinetoreceiver.DetailAuto,
		"auto, steps, annotations, operators or kernels")
	cmd.Flags().TextVar(&common.Extent, "extent", kinetoreceiver.ExtentAll,
		"activities that findings are of: all, steps or steps_but_last")
	cmd.Flags().StringVar(&common.JobID, "job-id", "",
		"gpu.job.id of files that have none: the ranks of one run are linked by it")
	cmd.Flags().StringVar(&common.Device, "device", "",
		"model of devices that a file does not name, as the driver calls it: findings compare with its peak (docs/peaks.md)")
	cmd.Flags().StringSliceVar(&common.Captures, "captures", nil,
		"traces, or folders of them, in which graphs were captured that the files launch: kernels of graphs get their "+
			"operators")
	cmd.Flags().StringVar(&o.Out, "out", "", "folder for the results (required, but with --html)")
	cmd.Flags().IntVar(&o.Rows, "rows", 30, "operations in the table (0: all)")
	cmd.Flags().BoolVar(&o.HTML, "html", false, "write the report as a page, too: one file, which needs no network")
	cmd.Flags().StringVar(&o.Pprof, "pprof", "", "write GPU time and idle time by stack to this `file`, too")
	cmd.Flags().BoolVar(&compare, "compare", false, "print what changed from the first profile to the second")
	return cmd
}

// partial is remarked of files that were made of a profile, at whatever detail.
const partial = "spans as they were written: the table has only activities that have a span of their own"

// profileReader reads files for convert.
func profileReader(o kinetoreceiver.Options) convert.Reader {
	asked := o.Detail
	o.Partial, o.Version, o.Cache = true, buildInfo().Version, &profiletrace.CaptureCache{}
	return func(
		ctx context.Context, path string, all bool, emit consumer.ConsumeTracesFunc,
	) (convert.Result, error) {
		o := o
		if all {
			o.Detail = kinetoreceiver.DetailKernels
		}
		p, err := read(ctx, path, o, emit)
		return p.result(asked), err
	}
}

// profile is what a reader says of a file.
type profile struct {
	profiletrace.Stats
	what    string // was skipped
	partial bool
}

// read reads a file by what it begins with: a database is an export of Nsight Systems, all else must be a trace.
func read(
	ctx context.Context, path string, o kinetoreceiver.Options, emit consumer.ConsumeTracesFunc,
) (profile, error) {
	head, _ := profilefile.Head(path) // what cannot be read is left to the reader, which says why
	if profilefile.IsSQLite(head) {
		st, err := nsysreceiver.ReadFile(ctx, path, o, emit)
		return profile{Stats: st.Stats, what: "rows"}, err
	}
	st, err := kinetoreceiver.ReadFile(ctx, path, o, emit)
	if st.Restored > 0 && len(st.Devices) > 0 {
		st.Faults = append(st.Faults, partial)
	}
	return profile{st.Stats, "events", st.Partial}, err
}

// result is what convert prints of a file: what is to be gained first, then where the time of each device went, and at
// detail operators their rates.
func (p *profile) result(detail kinetoreceiver.Detail) convert.Result {
	r := convert.Result{
		Spans: p.Spans, Cut: p.Cut, Partial: p.partial, Devices: p.Devices, Host: p.Host, Odd: slices.Clone(p.Faults),
	}
	if p.Host != nil {
		r.Remarks = append(r.Remarks, p.Host.String())
	}
	for _, d := range p.Devices {
		for _, v := range d.Findings {
			r.Remarks = append(r.Remarks, v.String())
		}
	}
	for _, d := range p.Devices {
		r.Remarks = append(r.Remarks, d.String())
		if detail == kinetoreceiver.DetailOperators {
			r.Remarks = append(r.Remarks, operatorTable(&d)...)
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(p.Skipped)) {
		r.Odd = append(r.Odd, fmt.Sprintf("%d %s left out: %s", p.Skipped[reason], p.what, reason))
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
		fmt.Fprintf(w, "%d\t%s\t%.3g\t%s\t%s\t%s\t%s\t  %s\n", o.Kernels, finding.Duration(int64(o.Time)),
			100*float64(o.Time)/float64(max(1, d.Window)),
			known(o.FLOPRate, 1e12), known(o.ByteRate, 1e9), known(o.PeakShare, 0.01), cmp.Or(o.Bound, "-"),
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
	o.Detail = kinetoreceiver.DetailSteps // only the reports are of use
	var reports [2][]verdict.Report
	for i, path := range files {
		p, err := read(ctx, path, o, func(context.Context, ptrace.Traces) error { return nil })
		if err != nil {
			return err
		}
		if reports[i] = p.Devices; len(p.Devices) == 0 {
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
