// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package convert turns profiler files into OTLP JSON and one Chrome trace, through the same components as a pipeline.
package convert

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/otelcol"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/cmd/otelcol-gpu/internal/pipeline"
	"github.com/otelgpu/otelgpu/cmd/otelcol-gpu/internal/printable"
	"github.com/otelgpu/otelgpu/cmd/otelcol-gpu/internal/ranks"
	"github.com/otelgpu/otelgpu/cmd/otelcol-gpu/internal/summarytable"
	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/page"
	"github.com/otelgpu/otelgpu/internal/profiletrace/criticalpath"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/internal/stackprofile"
)

//go:embed pipeline.yaml.tmpl
var pipelineText string

// Reader converts one file to batches of spans, which emit owns: all activities of the device if all is set, otherwise
// the detail that the user requested.
type Reader func(ctx context.Context, path string, all bool, emit consumer.ConsumeTracesFunc) (Result, error)

// Result is what a Reader returns for a file.
type Result struct {
	Spans   int64
	Cut     int64    // spans that were summed into others, or dropped by a limit
	Partial bool     // the file was read only in part; Remarks give the reason
	Remarks []string // what was found, and irregularities, once each
	Odd     []string // the remarks about oddities of the file
	Devices []facts.Report
	Host    *finding.Finding // of a profile without activities of a device
	Paths   []*criticalpath.Path
}

// Options of Run.
type Options struct {
	Out       string
	Files     []string // and folders, for all profiles in them
	Process   string   // instead of files: what Reader reads is a running process of this name
	Reader    Reader
	Full      bool // there is no more detail than the user requested
	Info      component.BuildInfo
	Factories func() (otelcol.Factories, error)
	Rows      int      // operations in the table; 0 is all
	HTML      bool     // also write the page
	Pprof     string   // file for GPU time and idle time by stack; "": none
	Terminal  *os.File // terminal whose width limits texts and names; nil: output is not a terminal, lines have any length
}

// Errors of a run whose results are complete except for some files, which have been reported already.
var (
	ErrSomeFailed  = errors.New("some files could not be converted")
	ErrSomePartial = errors.New("some files could be read only in part")
)

// errNoSpans rejects files of a known format without any usable content.
var errNoSpans = errors.New("it has no device activity and no host range or API call")

// Run converts each file. A file that cannot be read is reported on problems, and the others are converted. Results get
// their names at the end, all at once: a run that fails or is killed does not change the results of an earlier one.
func Run(ctx context.Context, out, problems io.Writer, o Options) error {
	results, err := newResults(o.Out)
	if err != nil {
		return err
	}
	defer results.remove()
	files, refused := expand(o.Files, o.Out)
	if o.Process != "" {
		files = []string{o.Process}
	}
	for _, err := range refused {
		complain(problems, err)
	}
	text, err := pipeline.Fill(pipelineText, map[string]string{
		"Spans": results.temporary(spansFile), "Trace": results.temporary(traceFile),
	})
	if err != nil {
		return err
	}
	var source pipeline.Source
	table := summarytable.New()
	p, err := pipeline.Start(ctx, o.Info, o.factories(&source, table), text)
	if err != nil {
		return err
	}
	var byRank ranks.Profiles
	book := page.NewBook()
	stacks := stackprofile.New(fileProfile)
	shared := o.HTML && len(files) <= page.MaxProfiles // the page has the same stacks
	good, repeated, partial := 0, 0, 0
	width := summarytable.Terminal(o.Terminal).Width
	known := contents{}
	blocks := out // of files: findings on a job of several files are printed first
	var transfers []facts.Transfer
	var later bytes.Buffer
	if len(files) > 1 {
		blocks = &later
	}
	for _, file := range files {
		if first, err := known.repeats(file, len(files)); err == nil && first != "" {
			repeated++
			fmt.Fprintf(blocks, "%s: skipped, because it is the same profile as %s\n", printable.Line(file),
				printable.Line(first))
			continue
		}
		sink := &sink{}
		r, err := o.read(ctx, file, sink.to(source.Next("files").ConsumeTraces),
			sink.to(func(ctx context.Context, td ptrace.Traces) error {
				byRank.Add(file, td)
				if o.HTML {
					book.Spans(file, td)
				}
				if !shared && o.Pprof != "" {
					stacks.Add(td, time.Now().UnixNano())
				}
				return source.Next("all").ConsumeTraces(ctx, td)
			}))
		switch {
		case ctx.Err() != nil:
			return errors.Join(fmt.Errorf("interrupted in %s", printable.Line(file)), p.Stop())
		case sink.err != nil: // not related to the file: the others would fail as well
			_ = p.Stop()
			return fmt.Errorf("cannot write the results to %q: %w", o.Out, results.named(sink.err))
		case err == nil && r.Spans == 0:
			err = fmt.Errorf("cannot use %q: %w%s", file, errNoSpans, also(Result{Remarks: r.Remarks}, 0))
		}
		if err != nil {
			complain(problems, err)
			continue
		}
		good++
		stacks.Resolve(time.Now().UnixNano(), true)
		byRank.Judged(file, r.Devices)
		book.Profile(file, r.Devices, r.Odd)
		for i := range r.Devices {
			table.Kernels(r.Devices[i].ByKernel)
			transfers = append(transfers, r.Devices[i].Transfers...)
		}
		book.Host(file, r.Host)
		book.Paths(file, r.Paths)
		if r.Partial {
			partial++
			complain(problems, fmt.Errorf("%q could be read only in part", file))
		}
		fmt.Fprintf(blocks, "%s: %d spans%s\n", printable.Line(file), r.Spans, also(r, width))
	}
	jobs := byRank.Jobs()
	if err := ranks.Render(out, jobs, width); err != nil {
		return err
	}
	if len(jobs) > 0 {
		fmt.Fprintln(out)
	}
	if _, err := later.WriteTo(out); err != nil {
		return err
	}
	err = nil
	if len(jobs) > 0 {
		err = source.Next("files").ConsumeTraces(ctx, ranks.Spans(jobs))
	}
	if err := errors.Join(err, p.Stop()); err != nil {
		return fmt.Errorf("cannot write the results to %q: %w", o.Out, results.named(err))
	}
	if good == 0 {
		return ErrSomeFailed
	}
	if o.HTML {
		if _, err := page.WriteReport(results.tmp, pageFile, book.State(jobs)); err != nil {
			return results.named(err)
		}
	}
	if o.Pprof != "" {
		list := stacks.Take(math.MaxInt64)
		if shared {
			list = book.Stacks()
		}
		if err := writePprof(o.Pprof, list); err != nil {
			return err
		}
	}
	replaced, err := results.publish()
	if err != nil {
		return err
	}
	if text := byRank.NotCompared(); text != "" {
		fmt.Fprintf(out, "\n%s\n", printable.Wrapped(text, width, "", ""))
	}
	fmt.Fprintln(out)
	if err := table.Render(out, summarytable.Format{Rows: o.Rows}); err != nil {
		return err
	}
	if err := renderTransfers(out, jobs, transfers); err != nil {
		return err
	}
	if len(replaced) > 0 {
		fmt.Fprintf(out, "\n%s of an earlier run in %s: replaced\n", strings.Join(replaced, ", "), printable.Line(o.Out))
	}
	results.describe(out)
	if o.Pprof != "" {
		fmt.Fprintf(out, "%s\n    GPU time and idle time by stack: open it with go tool pprof\n",
			printable.Line(o.Pprof))
		if text := stacks.Stats().Missing(); text != "" {
			fmt.Fprintf(out, "%s\n", printable.Wrapped(text, width, "    ", "    "))
		}
	}
	switch {
	case good+repeated < len(files)+len(refused):
		return ErrSomeFailed
	case partial > 0:
		return ErrSomePartial
	}
	return nil
}

// fileProfile is one profile of all files: gaps belong to the profiled program, whatever their length, and a span waits
// for the end of its file.
var fileProfile = stackprofile.Options{
	MaxGap: -1, MaxStacks: 1_000_000, MaxSpans: 40_000, Settle: math.MaxInt64, MaxWait: math.MaxInt64,
}

// writePprof writes the stacks to a file, which takes its name when it is complete.
func writePprof(path string, stacks []*stackprofile.Profile) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".otelcol-gpu-pprof-*")
	if err != nil {
		return fmt.Errorf("cannot write the pprof file %q: %w", path, err)
	}
	err = stackprofile.WritePprof(f, stacks, stackprofile.Time)
	err = errors.Join(err, f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return fmt.Errorf("cannot write the pprof file %q: %w", path, err)
	}
	return nil
}

func complain(problems io.Writer, err error) {
	fmt.Fprintf(problems, "otelcol-gpu: %s\n", printable.Text(err.Error()))
}

// sink remembers errors of later stages, which are not errors of the file being read.
type sink struct{ err error }

func (s *sink) to(next consumer.ConsumeTracesFunc) consumer.ConsumeTracesFunc {
	return func(ctx context.Context, td ptrace.Traces) error {
		err := next(ctx, td)
		if err != nil && s.err == nil {
			s.err = err
		}
		return err
	}
}

// read passes a file to both outputs: the Chrome trace and the table need everything, so they read it on their own if
// the detail leaves something out.
func (o Options) read(ctx context.Context, file string, files, all consumer.ConsumeTracesFunc) (Result, error) {
	if o.Full {
		return o.Reader(ctx, file, true, func(ctx context.Context, td ptrace.Traces) error {
			twin := ptrace.NewTraces()
			td.CopyTo(twin)
			return errors.Join(files(ctx, td), all(ctx, twin))
		})
	}
	r, err := o.Reader(ctx, file, false, files)
	if err != nil {
		return r, err
	}
	full, err := o.Reader(ctx, file, true, all)
	// Findings are more precise if no range is omitted.
	r.Remarks, r.Odd, r.Devices, r.Paths = full.Remarks, full.Odd, full.Devices, full.Paths
	return r, err
}

// also returns the lines printed below the spans of a file, wrapped to a width; 0: not wrapped.
func also(r Result, width int) string {
	var b strings.Builder
	if r.Cut > 0 {
		fmt.Fprintf(&b, " (%d more are summed on them: --detail kernels shows all)", r.Cut)
	}
	for _, remark := range r.Remarks {
		b.WriteString("\n" + printable.Wrapped(printable.Line(remark), width, "    ", "      "))
	}
	return b.String()
}

func (o Options) factories(source *pipeline.Source, table *summarytable.Table) func() (otelcol.Factories, error) {
	return func() (otelcol.Factories, error) {
		f, err := o.Factories()
		if err != nil {
			return f, err
		}
		f.Receivers[pipeline.SourceType] = source.NewFactory()
		(&pipeline.Sink{Traces: table.Add}).AddTo(f.Exporters)
		return f, nil
	}
}

// renderTransfers writes the bandwidth of collectives: of jobs if they have any, otherwise of each profile alone.
func renderTransfers(out io.Writer, jobs []page.Job, alone []facts.Transfer) error {
	var ofJobs []facts.Transfer
	more := 0
	for _, j := range jobs {
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
