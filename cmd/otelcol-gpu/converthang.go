// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/otelgpu/otelgpu/cmd/otelcol-gpu/internal/convert"
	"github.com/otelgpu/otelgpu/cmd/otelcol-gpu/internal/printable"
	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/flightrecorder"
	"github.com/otelgpu/otelgpu/internal/profilefile"
)

// collectives prints what files about collectives show.
type collectives struct {
	out, problems io.Writer
	width         int
	found         []convert.CollectivesDocument
	failed        bool // a file cannot be read
}

// hang prints and keeps what the dumps of a job show.
func (c *collectives) hang(path, job string, r *flightrecorder.Report) {
	doc := convert.CollectivesDocument{Path: path, Findings: []finding.Finding{}}
	for i := range r.Hangs {
		doc.Findings = append(doc.Findings, r.Hangs[i].Finding())
	}
	c.found = append(c.found, doc)
	fmt.Fprint(c.out, hangReport(job, r, c.width))
}

// hangs prints which rank hangs by the dumps of PyTorch's flight recorder in args, and returns the
// arguments without dumps. Dumps in one folder are of one job. Other files in a folder with dumps
// are not converted.
func (c *collectives) hangs(args []string) (rest []string) {
	var alone []*flightrecorder.Dump
	var folders []string
	for _, arg := range args {
		info, err := os.Stat(arg)
		switch {
		case err != nil:
			rest = append(rest, arg) // the reader of profiles reports it
		case info.IsDir():
			if below := foldersOfDumps(arg); len(below) > 0 {
				folders = append(folders, below...)
			} else {
				rest = append(rest, arg)
			}
		case !mayBeDump(arg):
			rest = append(rest, arg)
		default:
			d, err := flightrecorder.ReadFile(arg)
			switch {
			case errors.Is(err, flightrecorder.ErrNotADump):
				rest = append(rest, arg)
			case err != nil:
				fmt.Fprintf(c.problems, "cannot read %s: %s\n", printable.Line(arg), printable.Line(err.Error()))
				c.failed = true
			default:
				alone = append(alone, d)
			}
		}
	}
	if len(alone) > 0 {
		r := flightrecorder.Analyze(alone)
		c.hang("", "the job", &r)
	}
	for _, folder := range folders {
		dumps, others, errs := flightrecorder.ReadFolder(folder)
		for _, err := range errs {
			fmt.Fprintln(c.problems, printable.Line(err.Error()))
			c.failed = true
		}
		if len(dumps) == 0 {
			continue
		}
		r := flightrecorder.Analyze(dumps, errs...)
		c.hang(folder, folder, &r)
		if others > 0 {
			fmt.Fprintf(c.out, "  %s not read (name profiles among them one by one)\n",
				finding.Count(int64(others), "other file", "other files"))
		}
	}
	return rest
}

// mayBeDump reports whether a file is opened to find out whether it is a dump: not if it is named
// like a profile, without a rank at the end, because profiles are opened once.
func mayBeDump(path string) bool {
	_, named := flightrecorder.RankOf(path)
	hasEnding := func(end string) bool { return strings.HasSuffix(path, end) }
	return named || !slices.ContainsFunc(profilefile.Endings(), hasEnding)
}

// foldersOfDumps returns the folders at or below path in which at least one file is a dump, or is
// named like one and cannot be read.
func foldersOfDumps(path string) (folders []string) {
	_ = filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !d.Type().IsRegular() {
			return nil
		}
		folder := filepath.Dir(p)
		if _, named := flightrecorder.RankOf(p); !named || slices.Contains(folders, folder) {
			return nil
		}
		_, err = flightrecorder.ReadFile(p)
		broken := !errors.Is(err, flightrecorder.ErrNotADump) && strings.Contains(filepath.Base(p), "rank")
		if err == nil || broken {
			folders = append(folders, folder)
		}
		return nil
	})
	return folders
}

// hangReport returns what the dumps of a job show: one sentence for each hang, and its evidence.
func hangReport(job string, r *flightrecorder.Report, width int) string {
	var b strings.Builder
	line := func(format string, args ...any) {
		b.WriteString(printable.Wrapped(fmt.Sprintf(format, args...), width, "  ", "    ") + "\n")
	}
	fmt.Fprintf(&b, "%s: dumps of %d of %d ranks\n", printable.Line(job), len(r.Ranks), r.World)
	switch {
	case r.NotJudged != "":
		line("not judged: %s", r.NotJudged)
	case len(r.Hangs) == 0:
		line("no rank waits in an operation that does not end")
	}
	for i := range r.Hangs {
		f := r.Hangs[i].Finding()
		printFinding(line, &f)
	}
	if len(r.Stale) > 0 {
		line("the dump of %s is of an earlier run", flightrecorder.Ranks(r.Stale))
	}
	if len(r.Without) > 0 {
		line("no dump of %s", flightrecorder.Ranks(r.Without))
	}
	return b.String()
}

// printFinding prints a finding on collectives.
func printFinding(line func(string, ...any), f *finding.Finding) {
	line("%s", printable.Line(fmt.Sprintf("%s, %s: %s (certainty %s)",
		f.Kind, f.Subject, strings.Join(f.Chain, " -> "), f.Certainty)))
	if f.Evidence != "" {
		line("%s", printable.Line(f.Evidence))
	}
	line("try: %s", f.Remedy)
}
