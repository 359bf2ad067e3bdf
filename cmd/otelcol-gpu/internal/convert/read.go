// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/cmd/otelcol-gpu/internal/printable"
	"github.com/otelgpu/otelgpu/cmd/otelcol-gpu/internal/summarytable"
	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/internal/profiletrace/link"
)

// converted is a file that was read, or why it was skipped.
type converted struct {
	file, skipped string
	got           Result
}

// read reads all files. An error ends the run.
func (r *conversion) read(ctx context.Context) error {
	for _, file := range r.files {
		sink, seen := &sink{}, &observers{conversion: r, file: file}
		got, err := r.Reader(ctx, file, r.outputs(sink, seen))
		first, isRepeated := errors.AsType[repeatedError](err)
		isOther := r.Other != nil && errors.Is(err, r.Other) && !slices.Contains(r.Files, file)
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("interrupted in %s", printable.Line(file))
		case sink.err != nil: // not related to the file: the others would fail as well
			return fmt.Errorf("cannot write the results to %q: %w", r.Out, r.results.named(sink.err))
		case isRepeated:
			r.skip(file, ", because it is the same profile as "+string(first))
			continue
		case isOther:
			r.skip(file, ": "+cmp.Or(errors.Unwrap(err), err).Error())
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

// skip notes why a file was not used, which is no failure.
func (r *conversion) skip(file, because string) {
	r.skipped++
	r.profiles = append(r.profiles, converted{
		file: file, skipped: printable.Line(file) + ": skipped" + printable.Line(because) + "\n",
	})
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
