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

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/otelcol"

	"github.com/otelgpu/otelgpu/cmd/otelcol-gpu/internal/pipeline"
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
	Other     error // of Reader: the file is no profile; files found in folders are skipped then
	Full      bool  // there is no more detail than the user requested
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

	known                  map[event.Identity]string // files, by their content
	good, skipped, partial int
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

// incomplete returns the error of a run in which some files were not or not completely read.
func (r *conversion) incomplete() error {
	switch {
	case r.good+r.skipped < len(r.files)+len(r.refused):
		return ErrSomeFailed
	case r.partial > 0:
		return ErrSomePartial
	}
	return nil
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

func (r *conversion) factories() (otelcol.Factories, error) {
	f, err := r.Factories()
	if err == nil {
		f.Receivers[pipeline.SourceType] = r.source.NewFactory()
	}
	return f, err
}
