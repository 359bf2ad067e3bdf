// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
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
	"github.com/otelgpu/otelgpu/cmd/otelcol-gpu/internal/summarytable"
	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/gcpace"
	"github.com/otelgpu/otelgpu/internal/page"
	"github.com/otelgpu/otelgpu/internal/profilefile"
	"github.com/otelgpu/otelgpu/internal/profiletrace"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/internal/profiletrace/link"
	"github.com/otelgpu/otelgpu/internal/regularfile"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/internal/stackprofile"
	"github.com/otelgpu/otelgpu/receiver/kinetoreceiver"
	"github.com/otelgpu/otelgpu/receiver/nsysreceiver"
	"github.com/otelgpu/otelgpu/receiver/xplanereceiver"
)

func newConvertCommand() *cobra.Command {
	common := kinetoreceiver.Options{Attributes: spanfacts.Full} // trace.json has the file's own events
	var compare bool
	var failOn []string
	o := convert.Options{Info: buildInfo(), Factories: factories}
	cmd := &cobra.Command{
		Use: "convert [--detail LEVEL] [--html] --out DIR FILE|FOLDER...\n" +
			"  otelcol-gpu convert --compare [--html] BEFORE AFTER",
		Short: "Convert profiles of PyTorch, JAX, Nsight Systems and rocprofv3 to OTLP and a Chrome trace",
		Long: `Convert profiles to OTLP and a Chrome trace, and print where the GPU time went. The input is PyTorch profiler
(Kineto) traces, plain or compressed, XPlane profiles of JAX, SQLite exports of Nsight Systems, and runs of ROCm's
rocprofv3 as JSON or as its database. A directory is searched recursively for profiles (.json, .json.gz, .json.zst,
.sqlite, _results.db, .xplane.pb); duplicates are counted once.

The command writes DIR/spans.json (OTLP JSON, one request per line, at the level set by --detail) and DIR/trace.json
(one Chrome trace of all activities). Files recorded more than three months apart go to separate Chrome traces:
trace-1.json, trace-2.json, and so on. The results replace earlier ones only when the conversion is complete.

With --html, it also writes DIR/report.html: a self-contained page with findings, steps, a flame graph, streams,
roofline, kernels, operators, communication and ranks. DIR defaults to otelgpu-report.

With --pprof FILE, it also writes the stacks of all files with their GPU time and idle time. Open FILE with
go tool pprof.

Dumps of PyTorch's flight recorder (one file per rank, whose name ends with the rank) are compared instead: the command
prints which rank the others wait for, in which collective, and why. So are files of NCCL Inspector: it prints which
rank arrives last, and which communicator is slow. Both need no --out; with it, DIR/findings.json has the findings.

With --compare, it prints what changed per step between two profiles, by cause, operator and kernel. With --html, it
also writes DIR/compare.html.

The exit code is 1 if any file cannot be read (the others are still converted), and 3 if any file is truncated or
damaged and was read only in part. With --fail-on KIND[:SHARE], it is 4 if any file or job has such a finding of at
least that share of its window: a check for continuous integration.`,
		Args: takes(1, math.MaxInt, "convert takes profiles or directories (otelcol-gpu convert --html FILE)"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := interruptible(cmd,
				"earlier results are unchanged; temporary files next to them can be deleted")
			defer stop()
			if o.Out == "" && o.HTML {
				o.Out = "otelgpu-report"
			}
			if compare && o.Pprof != "" {
				return fmt.Errorf("--pprof %q cannot be used with --compare (convert each file, then use go tool pprof -base)",
					o.Pprof)
			}
			if compare && o.Out != "" && !o.HTML {
				return fmt.Errorf("--out %q cannot be used with --compare (add --html to write a page)", o.Out)
			}
			if compare {
				html := ""
				if o.HTML {
					html = o.Out
				}
				return comparison(ctx, cmd.OutOrStdout(), args, common, o.Rows, html)
			}
			o.Terminal = terminal(os.Stdout)
			for _, text := range failOn {
				c, err := convert.ParseCondition(text)
				if err != nil {
					return fmt.Errorf("--fail-on: %w", err)
				}
				o.FailOn = append(o.FailOn, c)
			}
			width := summarytable.Terminal(o.Terminal).Width
			of := collectives{out: cmd.OutOrStdout(), problems: cmd.ErrOrStderr(), width: width}
			args = of.inspected(ctx, of.hangs(args))
			failed := of.failed
			o.Collectives = of.found
			if len(args) == 0 {
				err := convert.RunCollectives(of.out, of.problems, o)
				if err == nil && failed {
					return errReported
				}
				return err
			}
			if o.Out == "" {
				return errors.New("no output directory (set --out DIR, or --html to use otelgpu-report)")
			}
			if os.Getenv("GOGC") == "" {
				defer gcpace.Start(heapBudget, garbagePercent)()
			}
			o.Other = kinetoreceiver.ErrNoEvents
			o.Files, o.Reader, o.Full = args, profileReader(common, alone(args)), common.Detail == kinetoreceiver.DetailKernels
			err := convert.Run(ctx, cmd.OutOrStdout(), cmd.ErrOrStderr(), o)
			if err == nil && failed {
				return errReported
			}
			return err
		},
	}
	cmd.Flags().TextVar(&common.Detail, "detail", kinetoreceiver.DetailAuto,
		"level of detail of the spans: auto, steps, annotations, operators or kernels")
	cmd.Flags().TextVar(&common.Extent, "extent", kinetoreceiver.ExtentAll,
		"activities that findings cover: all, steps or steps_but_last")
	cmd.Flags().StringVar(&common.JobID, "job-id", "",
		"gpu.job.id for files without one; it links the ranks of a job")
	cmd.Flags().StringVar(&common.Device, "device", "",
		"device model, as named by the driver, for files that do not name it (selects the peaks)")
	cmd.Flags().StringSliceVar(&common.Captures, "captures", nil,
		"traces (or directories of them) of CUDA graph captures, used to map graph kernels to operators")
	cmd.Flags().StringSliceVar(&failOn, "fail-on", nil,
		"findings with which the command fails: `KIND` or KIND:SHARE, as loader:10%; several are separated by commas")
	cmd.Flags().StringVar(&o.Out, "out", "", "output directory (required unless --html is set)")
	cmd.Flags().IntVar(&o.Rows, "rows", 30, "maximum operations in the table (0 = all)")
	cmd.Flags().BoolVar(&o.HTML, "html", false, "also write the report as a self-contained page")
	cmd.Flags().StringVar(&o.Pprof, "pprof", "", "also write GPU time and idle time by stack to `file`")
	cmd.Flags().BoolVar(&compare, "compare", false, "print what changed from the first profile to the second")
	return cmd
}

// The heap may grow to heapBudget while little is live. Beyond it, garbagePercent trades CPU time
// for memory: what a report of any file keeps stays below 150 MB, so the process stays below 256
// MB.
const (
	heapBudget     = 112 << 20
	garbagePercent = 25
)

// alone reports whether one file is converted, of which more is printed.
func alone(args []string) bool {
	if len(args) != 1 {
		return false
	}
	info, err := os.Stat(args[0])
	return err == nil && !info.IsDir()
}

// profileReader reads files for convert.
func profileReader(o kinetoreceiver.Options, alone bool) convert.Reader {
	asked := o.Detail
	o.Partial, o.Version, o.Cache = true, buildInfo().Version, &link.CaptureCache{}
	o.Paths = true
	return func(ctx context.Context, path string, to convert.Outputs) (convert.Result, error) {
		o := o
		o.All, o.Accept, o.Observe = to.All, to.Accept, to.Observe
		p, err := read(ctx, path, o, to.Files)
		return p.result(asked, alone), err
	}
}

// profile is the result of reading a file.
type profile struct {
	profiletrace.Stats
	what    string // was skipped
	partial bool
}

// read opens a file, and chooses a reader by its first bytes: a database is an export of Nsight
// Systems, everything else is read as a trace.
func read(
	ctx context.Context, path string, o kinetoreceiver.Options, emit consumer.ConsumeTracesFunc,
) (profile, error) {
	f, err := regularfile.Open(path)
	if err != nil {
		return profile{}, fmt.Errorf("cannot open trace file: %w", err)
	}
	b := bufio.NewReaderSize(f, 1<<16)
	head, _ := b.Peek(profilefile.HeadSize) // the reader reports why a file cannot be read
	if profilefile.IsSQLite(head) {
		st, err := nsysreceiver.ReadOpened(ctx, f, o, emit)
		return profile{Stats: st, what: "rows"}, err
	}
	defer f.Close()
	if profilefile.IsXPlane(path, head) {
		st, err := xplanereceiver.ReadOpened(ctx, f, o, emit)
		return profile{Stats: st, what: "events"}, err
	}
	st, err := kinetoreceiver.ReadOpened(ctx, f, b, o, emit)
	return profile{st.Stats, "events", st.Partial}, err
}

// result returns what convert prints for a file: possible gains first, then the time of each device
// and, at detail operators, the rates of operators; of a file that is alone, or at that detail,
// also the time of modules.
func (p *profile) result(detail kinetoreceiver.Detail, alone bool) convert.Result {
	r := convert.Result{
		Spans: p.Spans, Cut: p.Cut, Partial: p.partial, Devices: p.Devices, Host: p.Host, Odd: slices.Clone(p.Faults),
		Paths: p.Paths,
	}
	if p.Host != nil {
		r.Remarks = append(r.Remarks, p.Host.String())
	}
	for _, d := range p.Devices {
		r.Remarks = append(r.Remarks, d.String())
		if alone || detail == kinetoreceiver.DetailOperators {
			r.Remarks = append(r.Remarks, moduleTable(&d)...)
		}
		if detail == kinetoreceiver.DetailOperators {
			r.Remarks = append(r.Remarks, operatorTable(&d)...)
		}
	}
	if alone || detail == kinetoreceiver.DetailOperators {
		for _, path := range p.Paths {
			r.Remarks = append(r.Remarks, pathLines(path, len(p.Paths) > 1)...)
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(p.Skipped)) {
		r.Odd = append(r.Odd, fmt.Sprintf("%d %s omitted: %s", p.Skipped[reason], p.what, reason))
	}
	r.Remarks = append(r.Remarks, r.Odd...)
	return r
}

// operatorRows is how many operators are listed, by the time of their kernels.
const operatorRows = 40

// operatorTable returns a line for each operator and its shapes, with a dash for unknown values.
func operatorTable(d *facts.Report) []string {
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

// comparison prints the differences of two profiles.
func comparison(
	ctx context.Context, out io.Writer, files []string, o kinetoreceiver.Options, rows int, html string,
) error {
	if len(files) != 2 {
		return fmt.Errorf("--compare takes two profiles (BEFORE AFTER), found %d", len(files))
	}
	o.Detail = kinetoreceiver.DetailSteps // only the reports are used
	var reports [2][]facts.Report
	var flames [2]*stackprofile.Graph
	for i, path := range files {
		path, err := convert.OnlyProfile(path)
		if err != nil {
			return err
		}
		book := page.NewBook()
		if html != "" {
			o.Observe = func(in *link.Input) link.Observer { return book.Observe(path, in) }
		}
		p, err := read(ctx, path, o, func(context.Context, ptrace.Traces) error { return nil })
		if err != nil {
			return err
		}
		if reports[i] = p.Devices; len(p.Devices) == 0 {
			return fmt.Errorf("cannot compare %q: it has no device activity", path)
		}
		book.Profile(path, nil, nil)
		flames[i] = book.Flames()
	}
	var b bytes.Buffer
	if err := facts.Compare(reports[0], reports[1]).Write(&b, rows); err != nil {
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
	path, err := page.WriteReport(html, "compare.html", page.Compared([2]string(files), reports, flames))
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "\n%s\n    self-contained page: open it in a browser\n",
		printable.Line(path))
	return err
}
