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

// Names of the results; a Chrome trace of files that were recorded far apart continues in
// trace-1.json, trace-2.json …
const (
	spansFile = "spans.json"
	traceFile = "trace.json"
	pageFile  = "report.html"
)

// results are written to a temporary folder inside the results folder and renamed at the end: two
// runs into one folder do not mix, and one that fails changes nothing.
type results struct {
	out, tmp string
	created  bool     // out did not exist
	page     bool     // there is one
	traces   []string // published names
}

func newResults(out string) (*results, error) {
	_, err := os.Stat(out)
	created := errors.Is(err, fs.ErrNotExist)
	if err := os.MkdirAll(out, 0o755); err != nil {
		return nil, fmt.Errorf("cannot create the output directory: %w", err)
	}
	tmp, err := os.MkdirTemp(out, ".otelcol-gpu-convert-*")
	if err != nil {
		return nil, fmt.Errorf("cannot write to the output directory: %w", err)
	}
	return &results{out: out, tmp: tmp, created: created}, nil
}

func (r *results) temporary(name string) string { return filepath.Join(r.tmp, name) }

// named returns an error about a temporary file as one about the result that it would have become.
func (r *results) named(err error) error {
	if text := err.Error(); strings.Contains(text, r.tmp) {
		return errors.New(strings.ReplaceAll(text, r.tmp, r.out))
	}
	return err
}

// publish gives the results their names and returns the earlier run's files that are replaced or,
// if there is no new one of that name, removed.
func (r *results) publish() (replaced []string, err error) {
	unlock, err := lockFolder(r.out)
	if err != nil {
		return nil, fmt.Errorf("cannot lock the output directory: %w", err)
	}
	defer unlock()
	written, err := os.ReadDir(r.tmp)
	if err != nil {
		return nil, fmt.Errorf("cannot list the results: %w", err)
	}
	earlier, err := r.earlier()
	if err != nil {
		return nil, fmt.Errorf("cannot list the output directory: %w", err)
	}
	for _, e := range written {
		if err := os.Rename(r.temporary(e.Name()), filepath.Join(r.out, e.Name())); err != nil {
			return nil, fmt.Errorf("cannot rename the results: %w", err)
		}
		switch e.Name() {
		case spansFile, findingsFile:
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

// earlier lists the results of an earlier run by name, including only the numbered files that this
// program wrote.
func (r *results) earlier() (names []string, err error) {
	entries, err := os.ReadDir(r.out)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		name := e.Name()
		switch numbered, _ := filepath.Match("trace-[0-9]*.json", name); {
		case !e.Type().IsRegular():
		case name == spansFile, name == traceFile, name == pageFile && r.isOwn(name, page.Mark),
			name == findingsFile && r.isOwn(name, findingsFormat), numbered &&
				r.isOwn(name, `"otelgpuFormat"`):
			names = append(names, name)
		}
	}
	return names, nil
}

// isOwn reports whether a result of this name has the mark of this program.
func (r *results) isOwn(name, mark string) bool {
	head, err := profilefile.Head(filepath.Join(r.out, name))
	return err == nil && bytes.Contains(head, []byte(mark))
}

// describe prints where the results are.
func (r *results) describe(out io.Writer) {
	fmt.Fprintf(out, "\n%s\n    the spans as OTLP JSON, one request per line\n",
		printable.Line(filepath.Join(r.out, spansFile)))
	for _, name := range r.traces {
		fmt.Fprintf(out, "%s\n    every activity: open it in https://ui.perfetto.dev or chrome://tracing\n",
			printable.Line(filepath.Join(r.out, name)))
	}
	fmt.Fprintf(out, "%s\n    the findings and where the time went, as JSON\n",
		printable.Line(filepath.Join(r.out, findingsFile)))
	if r.page {
		fmt.Fprintf(out, "%s\n    the report: open it in a browser; it needs nothing else\n",
			printable.Line(filepath.Join(r.out, pageFile)))
	}
}

// remove deletes unpublished results, and their folder if it was created for them and is empty.
func (r *results) remove() {
	_ = os.RemoveAll(r.tmp)
	if r.created {
		_ = os.Remove(r.out) // fails if there are results
	}
}

// expand replaces a folder by the profiler files below it, sorted by name. The folder of results is
// skipped if it is below. A folder without profiler files yields an error.
func expand(paths []string, results string) (files []string, refused []error) {
	for _, path := range paths {
		if info, err := os.Stat(path); err != nil || !info.IsDir() {
			files = append(files, path) // the reader reports the error
			continue
		}
		below, err := inFolder(path, results)
		switch {
		case err != nil:
			refused = append(refused, fmt.Errorf("cannot search %q for profiles: %w", path, err))
		case len(below) == 0:
			refused = append(refused, fmt.Errorf("no profile in %q (no file ends in %s)", path,
				strings.Join(profilefile.Endings(), ", ")))
		}
		files = append(files, below...)
	}
	return files, refused
}

// OnlyProfile returns the path of a file, or of the only profile in a folder.
func OnlyProfile(path string) (string, error) {
	files, refused := expand([]string{path}, "")
	switch {
	case len(refused) > 0:
		return "", refused[0]
	case len(files) != 1:
		return "", fmt.Errorf("%d profiles are in %q (name one of them)", len(files), path)
	}
	return files[0], nil
}

func inFolder(path, results string) (files []string, err error) {
	out, _ := os.Stat(results)
	err = filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			if info, err := d.Info(); err == nil && out != nil && os.SameFile(info, out) {
				return fs.SkipDir
			}
		case profilefile.InFolder(p):
			files = append(files, p)
		}
		return nil
	})
	return files, err
}
