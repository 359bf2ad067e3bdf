// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package convert turns profiler files into OTLP JSON and one Chrome trace, through the same
// components as a pipeline.
package convert

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/otelcol"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/cmd/otelcol-gpu/internal/pipeline"
	"github.com/otelgpu/otelgpu/cmd/otelcol-gpu/internal/printable"
	"github.com/otelgpu/otelgpu/cmd/otelcol-gpu/internal/summarytable"
	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/page"
	"github.com/otelgpu/otelgpu/internal/profiletrace/criticalpath"
	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/internal/profiletrace/jobs"
	"github.com/otelgpu/otelgpu/internal/profiletrace/link"
	"github.com/otelgpu/otelgpu/internal/stackprofile"
)

//go:embed pipeline.yaml.tmpl
var pipelineText string

// Reader converts one file, which it opens once, to batches of spans, which the outputs own.
type Reader func(ctx context.Context, path string, to Outputs) (Result, error)

// Outputs are what a Reader writes to.
type Outputs struct {
	Files consumer.ConsumeTracesFunc // at the detail that the user requested
	All   consumer.ConsumeTracesFunc // all activities of the device, for the Chrome trace; nil if Files gets them
	// Accept is called with the identity of the file before anything is written. Its error rejects
	// the file.
	Accept func(event.Identity) error
	// Observe returns the observer of the file; see the options of profiletrace.
	Observe func(*link.Input) link.Observer
}

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
	// Collectives are the findings on collectives, which are part of the results.
	Collectives []CollectivesDocument
	FailOn      []Condition // findings with which the run fails, with complete results
	Rows        int         // operations in the table; 0 is all
	HTML        bool        // also write the page
	Pprof       string      // file for GPU time and idle time by stack; "": none
	Terminal    *os.File    // whose width limits texts and names; nil: output is not a terminal, lines have any length
}

// Errors of a run whose results are complete except for some files, which have been reported
// already.
var (
	ErrSomeFailed  = errors.New("some files could not be converted")
	ErrSomePartial = errors.New("some files could be read only in part")
)

// errNoSpans rejects files of a known format without any usable content.
var errNoSpans = errors.New("it has no device activity and no host range or API call")

// Run converts each file. A file that cannot be read is reported on problems, and the others are
// converted. Results get their names at the end, all at once: a run that fails or is killed does
// not change the results of an earlier one.
func Run(ctx context.Context, out, problems io.Writer, o Options) error {
	results, err := newResults(o.Out)
	if err != nil {
		return err
	}
	defer results.remove()
	r := newConversion(out, problems, o, results)
	if err := r.start(ctx); err != nil {
		return err
	}
	if err := r.read(ctx); err != nil {
		if stopped := r.pipeline.Stop(); ctx.Err() != nil {
			err = errors.Join(err, stopped)
		}
		return err
	}
	found := r.ranks.Jobs()
	for i := range r.profiles {
		jobs.Revise(found, r.profiles[i].file, r.profiles[i].got.Devices)
	}
	if err := r.printProfiles(found); err != nil {
		return err
	}
	if err := r.stop(ctx, found); err != nil {
		return err
	}
	if r.good == 0 {
		return ErrSomeFailed
	}
	if err := r.writeReports(found); err != nil {
		return err
	}
	if err := r.writeFindings(found); err != nil {
		return err
	}
	replaced, err := results.publish()
	if err != nil {
		return err
	}
	if err := r.printTables(found); err != nil {
		return err
	}
	r.printResults(replaced)
	if err := r.incomplete(); err != nil || len(r.FailOn) == 0 {
		return err
	}
	doc := r.document(found)
	return r.failing(&doc)
}

// conversion is one run of convert.
type conversion struct {
	Options
	out      io.Writer
	problems io.Writer
	width    int // of lines; 0: any
	results  *results
	files    []string
	refused  []error

	pipeline *pipeline.Pipeline
	source   pipeline.Source

	table     *summarytable.Table
	ranks     jobs.Profiles
	book      *page.Book
	transfers []facts.Transfer
	profiles  []converted

	known                   map[event.Identity]string // files, by their content
	good, repeated, partial int
}

// converted is a file that was read, or why it was skipped.
type converted struct {
	file, skipped string
	got           Result
}

func newConversion(out, problems io.Writer, o Options, results *results) *conversion {
	r := &conversion{
		Options: o, out: out, problems: problems, results: results, width: summarytable.Terminal(o.Terminal).Width,
		table: summarytable.New(), book: page.NewBook(), known: map[event.Identity]string{},
	}
	if r.files, r.refused = expand(o.Files, o.Out); o.Process != "" {
		r.files = []string{o.Process}
	}
	return r
}

// start starts the pipelines, and reports folders that cannot be used.
func (r *conversion) start(ctx context.Context) error {
	for _, err := range r.refused {
		r.complain(err)
	}
	text, err := pipeline.Fill(pipelineText, map[string]any{
		"Spans": r.results.temporary(spansFile), "Trace": r.results.temporary(traceFile), "Full": r.Full,
	})
	if err != nil {
		return err
	}
	r.pipeline, err = pipeline.Start(ctx, r.Info, r.factories, text)
	return err
}

// read reads all files. An error ends the run.
func (r *conversion) read(ctx context.Context) error {
	for _, file := range r.files {
		sink, seen := &sink{}, &observers{conversion: r, file: file}
		got, err := r.Reader(ctx, file, r.outputs(sink, seen))
		first, isRepeated := errors.AsType[repeatedError](err)
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("interrupted in %s", printable.Line(file))
		case sink.err != nil: // not related to the file: the others would fail as well
			return fmt.Errorf("cannot write the results to %q: %w", r.Out, r.results.named(sink.err))
		case isRepeated:
			r.repeated++
			r.profiles = append(r.profiles, converted{file: file, skipped: fmt.Sprintf(
				"%s: skipped, because it is the same profile as %s\n", printable.Line(file), printable.Line(string(first)))})
			continue
		case err == nil && got.Spans == 0:
			err = fmt.Errorf("cannot use %q: %w%s", file, errNoSpans, also(Result{Remarks: got.Remarks}, 0))
		}
		if err != nil {
			r.complain(err)
			continue
		}
		r.add(file, &got, seen)
	}
	return nil
}

// repeatedError is the name of the file that was read before with the same content.
type repeatedError string

func (e repeatedError) Error() string { return "the same profile as " + string(e) }

// outputs returns where the spans of a file go, and who observes its events.
func (r *conversion) outputs(errs *sink, seen *observers) Outputs {
	o := Outputs{
		Files: errs.to(r.source.Next("files").ConsumeTraces),
		Accept: func(id event.Identity) error {
			if first, ok := r.known[id]; ok {
				return repeatedError(first)
			}
			r.known[id] = seen.file
			return nil
		},
		Observe: seen.observe,
	}
	if !r.Full {
		o.All = errs.to(r.source.Next("all").ConsumeTraces)
	}
	return o
}

// observers get the events of a file. What they recorded counts when the file was read to its end.
type observers struct {
	*conversion
	file  string
	table *summarytable.Recorder
}

func (o *observers) observe(in *link.Input) link.Observer {
	o.table = summarytable.NewRecorder(in)
	all := link.Observers{o.table}
	if ranks := o.ranks.Observe(o.file, in); ranks != nil {
		all = append(all, ranks)
	}
	if o.HTML || o.Pprof != "" {
		all = append(all, o.book.Observe(o.file, in))
	}
	return all
}

// add adds the results of a file.
func (r *conversion) add(file string, got *Result, seen *observers) {
	r.good++
	if seen.table != nil {
		r.table.Recorded(seen.table)
	}
	r.ranks.Judged(file, got.Devices)
	r.book.Profile(file, got.Devices, got.Odd)
	for i := range got.Devices {
		r.table.Kernels(got.Devices[i].ByKernel)
		r.transfers = append(r.transfers, got.Devices[i].Transfers...)
	}
	r.book.Host(file, got.Host)
	r.book.Paths(file, got.Paths)
	if got.Partial {
		r.partial++
		r.complain(fmt.Errorf("%q could be read only in part", file))
	}
	kept := make([]facts.Report, 0, len(got.Devices)) // the rest is summed up already
	for i := range got.Devices {
		d := &got.Devices[i]
		kept = append(kept, facts.Report{
			Ordinal: d.Ordinal, Model: d.Model, Window: d.Window, Parts: d.Parts, Idle: d.Idle, ByStep: d.ByStep,
			Findings: d.Findings,
		})
	}
	got.Devices = kept
	r.profiles = append(r.profiles, converted{file: file, got: *got})
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

// stop writes the findings on jobs as spans, and completes the files that the pipelines write.
func (r *conversion) stop(ctx context.Context, found []jobs.Job) (err error) {
	if len(found) > 0 {
		err = r.source.Next("jobs").ConsumeTraces(ctx, jobs.Spans(found))
	}
	if err := errors.Join(err, r.pipeline.Stop()); err != nil {
		return fmt.Errorf("cannot write the results to %q: %w", r.Out, r.results.named(err))
	}
	return nil
}

// writeReports writes the page and the stacks.
func (r *conversion) writeReports(found []jobs.Job) error {
	if r.HTML {
		if _, err := page.WriteReport(r.results.tmp, pageFile, r.book.State(found)); err != nil {
			return r.results.named(err)
		}
	}
	if r.Pprof == "" {
		return nil
	}
	return writePprof(r.Pprof, r.book.Stacks().Profiles())
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

// incomplete returns the error of a run in which some files were not or not completely read.
func (r *conversion) incomplete() error {
	switch {
	case r.good+r.repeated < len(r.files)+len(r.refused):
		return ErrSomeFailed
	case r.partial > 0:
		return ErrSomePartial
	}
	return nil
}

func (r *conversion) complain(err error) {
	fmt.Fprintf(r.problems, "otelcol-gpu: %s\n", printable.Text(err.Error()))
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

// also returns the lines printed below the spans of a file, wrapped to a width; 0: not wrapped.
func also(r Result, width int) string {
	var b strings.Builder
	if r.Cut > 0 {
		fmt.Fprintf(&b, " (%d more are summed on them: --detail kernels shows all)", r.Cut)
	}
	var remarks []string
	for i := range r.Devices {
		for _, v := range r.Devices[i].Findings {
			remarks = append(remarks, v.String())
		}
	}
	for _, remark := range append(remarks, r.Remarks...) {
		b.WriteString("\n" + printable.Wrapped(printable.Line(remark), width, "    ", "      "))
	}
	return b.String()
}

func (r *conversion) factories() (otelcol.Factories, error) {
	f, err := r.Factories()
	if err == nil {
		f.Receivers[pipeline.SourceType] = r.source.NewFactory()
	}
	return f, err
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
