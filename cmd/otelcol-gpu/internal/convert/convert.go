// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package convert turns profiler files into OTLP JSON and one Chrome trace, through the same components as a pipeline.
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
	"text/template"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/otelcol"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/cmd/otelcol-gpu/internal/optable"
	"github.com/otelgpu/otelgpu/cmd/otelcol-gpu/internal/pipeline"
)

//go:embed pipeline.yaml.tmpl
var pipelineText string

// Emit takes a batch of spans, which it then owns.
type Emit func(context.Context, ptrace.Traces) error

// Reader turns one file into batches of spans, with every activity of the device where all is set, and otherwise at the
// detail that the user asked for.
type Reader func(ctx context.Context, path string, all bool, emit Emit) (Result, error)

// Result is what a Reader says of a file that it has read.
type Result struct {
	Spans   int64
	Cut     int64    // spans that were summed on others, or cut by a limit
	Remarks []string // what was odd, once each
}

// Options of Run.
type Options struct {
	Out       string
	Files     []string // and folders, for all profiles in them
	Reader    Reader
	Full      bool // the detail that the user asked for is all there is
	Info      component.BuildInfo
	Factories func() (otelcol.Factories, error)
	Rows      int // operations in the table; 0 is all
}

// ErrSomeFailed is the error of a run in which files were refused; what was wrong with each has been written already.
var ErrSomeFailed = errors.New("not every file could be converted")

// Run converts each file. A file that cannot be read is named with the reason on problems, and the others are converted.
func Run(ctx context.Context, out, problems io.Writer, o Options) error {
	if err := os.MkdirAll(o.Out, 0o755); err != nil {
		return fmt.Errorf("cannot make the output folder: %w", err)
	}
	files, refused := expand(o.Files, o.Out)
	for _, err := range refused {
		fmt.Fprintf(problems, "otelcol-gpu: %v\n", err)
	}
	ends := struct{ Spans, Trace string }{filepath.Join(o.Out, "spans.json"), filepath.Join(o.Out, "trace.json")}
	text, err := configuration(pipeline.Quote(ends.Spans), pipeline.Quote(ends.Trace))
	if err != nil {
		return err
	}
	var source pipeline.Source
	table := optable.New()
	p, err := pipeline.Start(ctx, o.Info, o.factories(&source, table), text)
	if err != nil {
		return err
	}
	good := 0
	for _, file := range files {
		r, err := o.read(ctx, file, source.Next("files").ConsumeTraces, source.Next("table").ConsumeTraces)
		switch {
		case ctx.Err() != nil:
			return errors.Join(fmt.Errorf("interrupted in %s", file), p.Stop())
		case err != nil:
			fmt.Fprintf(problems, "otelcol-gpu: %v\n", err)
			continue
		}
		good++
		fmt.Fprintf(out, "%s: %d spans%s\n", file, r.Spans, also(r))
	}
	if err := p.Stop(); err != nil {
		return err
	}
	if good == 0 {
		return errors.Join(ErrSomeFailed, remove(ends.Spans), remove(ends.Trace))
	}
	fmt.Fprintln(out)
	if err := table.Render(out, o.Rows); err != nil {
		return err
	}
	fmt.Fprintf(out, "\n%s\n    the spans as OTLP JSON, one request per line\n%s\n    open it in https://ui.perfetto.dev or chrome://tracing\n", ends.Spans, ends.Trace)
	if good < len(files)+len(refused) {
		return ErrSomeFailed
	}
	return nil
}

// read hands a file to both ends. The table must not miss what a lower detail sums up, so that it is read twice there.
func (o Options) read(ctx context.Context, file string, files, table Emit) (Result, error) {
	if o.Full {
		return o.Reader(ctx, file, true, func(ctx context.Context, td ptrace.Traces) error {
			twin := ptrace.NewTraces()
			td.CopyTo(twin)
			return errors.Join(files(ctx, td), table(ctx, twin))
		})
	}
	r, err := o.Reader(ctx, file, false, files)
	if err == nil {
		_, err = o.Reader(ctx, file, true, table)
	}
	return r, err
}

func also(r Result) string {
	s := ""
	if r.Cut > 0 {
		s = fmt.Sprintf(" (%d more are summed on them: --detail kernels shows all)", r.Cut)
	}
	for _, remark := range r.Remarks {
		s += "\n    " + remark
	}
	return s
}

func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

func (o Options) factories(source *pipeline.Source, table *optable.Table) func() (otelcol.Factories, error) {
	return func() (otelcol.Factories, error) {
		f, err := o.Factories()
		if err != nil {
			return f, err
		}
		f.Receivers[pipeline.SourceType] = source.NewFactory()
		f.Exporters[optable.Type] = optable.NewFactory(table)
		return f, nil
	}
}

func configuration(spans, trace string) (string, error) {
	t, err := template.New("pipeline").Parse(pipelineText)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	err = t.Execute(&b, struct{ Spans, Trace string }{spans, trace})
	return b.String(), err
}
