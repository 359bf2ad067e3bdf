// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/otelgpu/otelgpu/cmd/otelcol-gpu/internal/printable"
	"github.com/otelgpu/otelgpu/internal/page"
	"github.com/otelgpu/otelgpu/internal/profilefile"
)

// Names of the results; a Chrome trace of files that were recorded far apart goes on in trace-1.json, trace-2.json …
const (
	spansFile = "spans.json"
	traceFile = "trace.json"
	pageFile  = "report.html"
)

// results are written to a folder of their own, within that of the results, and renamed at the end: two runs into one
// folder do not mix, and one that fails changes nothing.
type results struct {
	out, tmp string
	page     bool     // there is one
	traces   []string // names of what was published
}

func newResults(out string) (*results, error) {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return nil, fmt.Errorf("cannot make the output folder: %w", err)
	}
	tmp, err := os.MkdirTemp(out, ".otelcol-gpu-convert-*")
	if err != nil {
		return nil, fmt.Errorf("cannot write to the output folder: %w", err)
	}
	return &results{out: out, tmp: tmp}, nil
}

func (r *results) temporary(name string) string { return filepath.Join(r.tmp, name) }

// named is an error about a temporary file as one about the result that it would have become.
func (r *results) named(err error) error {
	if text := err.Error(); strings.Contains(text, r.tmp) {
		return errors.New(strings.ReplaceAll(text, r.tmp, r.out))
	}
	return err
}

// publish gives the results their names and returns those of an earlier run that are replaced or, since there is no new
// one of that name, removed.
func (r *results) publish() (replaced []string, err error) {
	unlock, err := lockFolder(r.out)
	if err != nil {
		return nil, fmt.Errorf("cannot lock the output folder: %w", err)
	}
	defer unlock()
	written, err := os.ReadDir(r.tmp)
	if err != nil {
		return nil, fmt.Errorf("cannot list the results: %w", err)
	}
	earlier, err := r.earlier()
	if err != nil {
		return nil, fmt.Errorf("cannot list the output folder: %w", err)
	}
	for _, e := range written {
		if err := os.Rename(r.temporary(e.Name()), filepath.Join(r.out, e.Name())); err != nil {
			return nil, fmt.Errorf("cannot name the results: %w", err)
		}
		switch e.Name() {
		case spansFile:
		case pageFile:
			r.page = true
		default:
			r.traces = append(r.traces, e.Name())
		}
	}
	for _, name := range earlier {
		if !slices.ContainsFunc(written, func(e fs.DirEntry) bool { return e.Name() == name }) {
			if err := os.Remove(filepath.Join(r.out, name)); err != nil {
				return nil, fmt.Errorf("cannot remove a result of an earlier run: %w", err)
			}
		}
	}
	return earlier, nil
}

// earlier lists results of an earlier run: by name, and of what is numbered only what this program wrote.
func (r *results) earlier() (names []string, err error) {
	entries, err := os.ReadDir(r.out)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		name := e.Name()
		switch numbered, _ := filepath.Match("trace-[0-9]*.json", name); {
		case !e.Type().IsRegular():
		case name == spansFile, name == traceFile, name == pageFile && r.isOwn(name, page.Mark), numbered &&
			r.isOwn(name, `"otelgpuFormat"`):
			names = append(names, name)
		}
	}
	return names, nil
}

// isOwn says whether a result of this name has the mark of this program.
func (r *results) isOwn(name, mark string) bool {
	head, err := profilefile.Head(filepath.Join(r.out, name))
	return err == nil && bytes.Contains(head, []byte(mark))
}

// writePage writes the page as one file.
func (r *results) writePage(s *page.State) error {
	f, err := os.Create(r.temporary(pageFile))
	if err != nil {
		return fmt.Errorf("cannot write the page: %w", r.named(err))
	}
	if err := errors.Join(page.Report(f, s), f.Close()); err != nil {
		return fmt.Errorf("cannot write the page: %w", r.named(err))
	}
	return nil
}

// describe says where the results are.
func (r *results) describe(out io.Writer) {
	fmt.Fprintf(out, "\n%s\n    the spans as OTLP JSON, one request per line\n",
		printable.Line(filepath.Join(r.out, spansFile)))
	for _, name := range r.traces {
		fmt.Fprintf(out, "%s\n    every activity: open it in https://ui.perfetto.dev or chrome://tracing\n",
			printable.Line(filepath.Join(r.out, name)))
	}
	if r.page {
		fmt.Fprintf(out, "%s\n    the report: open it in a browser; it needs nothing else\n",
			printable.Line(filepath.Join(r.out, pageFile)))
	}
}

// remove removes what was not published.
func (r *results) remove() { _ = os.RemoveAll(r.tmp) }
