// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/otelgpu/otelgpu/cmd/otelcol-gpu/internal/convert"
	"github.com/otelgpu/otelgpu/cmd/otelcol-gpu/internal/printable"
	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/ncclinspector"
)

// inspectorEnding is the ending of NCCL Inspector's files; others are read if they are named.
const inspectorEnding = ".log"

// inspected prints what the files of NCCL Inspector in args show, and returns the other arguments.
// Files in one folder are of one job.
func (c *collectives) inspected(ctx context.Context, args []string) (rest []string) {
	var alone []string
	for _, arg := range args {
		info, err := os.Stat(arg)
		switch {
		case err != nil:
			rest = append(rest, arg) // the reader of profiles reports it
		case info.IsDir():
			folders := foldersOfInspector(arg)
			for _, folder := range folders {
				c.inspect(ctx, folder, ncclinspector.FilesIn(folder))
			}
			if len(folders) == 0 {
				rest = append(rest, arg)
			}
		case strings.HasSuffix(arg, inspectorEnding) && ncclinspector.IsFile(arg):
			alone = append(alone, arg)
		default:
			rest = append(rest, arg)
		}
	}
	if len(alone) > 0 {
		c.inspect(ctx, "", alone)
	}
	return rest
}

// foldersOfInspector returns the folders at or below path that have files of NCCL Inspector.
func foldersOfInspector(path string) (folders []string) {
	_ = filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
		folder := filepath.Dir(p)
		if err == nil && d.Type().IsRegular() && strings.HasSuffix(p, inspectorEnding) &&
			!slices.Contains(folders, folder) && ncclinspector.IsFile(p) {
			folders = append(folders, folder)
		}
		return nil
	})
	return folders
}

func (c *collectives) inspect(ctx context.Context, folder string, files []string) {
	complain := func(text string) {
		c.failed = true
		fmt.Fprintln(c.problems, printable.Line(text))
	}
	var devices ncclinspector.Devices
	if folder != "" {
		var err error
		if devices, err = ncclinspector.DevicesIn(folder); err != nil {
			complain(fmt.Sprintf("cannot read ras.json of %s: %v", folder, err))
		}
	}
	job, problems, err := ncclinspector.ReadFiles(ctx, files)
	if err != nil {
		complain(err.Error())
		return
	}
	for _, p := range problems {
		complain(p.Error())
	}
	doc := convert.CollectivesDocument{Path: folder, Findings: job.Findings(devices)}
	c.found = append(c.found, doc)
	line := func(format string, args ...any) {
		fmt.Fprintln(c.out, printable.Wrapped(fmt.Sprintf(format, args...), c.width, "  ", "    "))
	}
	if folder == "" {
		folder = "the job"
	}
	fmt.Fprintf(c.out, "%s: %s of NCCL Inspector, %s\n", printable.Line(folder),
		finding.Count(int64(len(files)), "file", "files"), finding.Count(job.Records, "operation", "operations"))
	for _, s := range job.Summary() {
		line("%s", printable.Line(fmt.Sprintf("%-14s %-40s %9d runs, %10s in the mean, %s", s.Operation, s.Communicator,
			s.Count, finding.Duration(s.Mean), finding.Rate(s.BusBandwidth, "B/s"))))
	}
	for i := range doc.Findings {
		printFinding(line, &doc.Findings[i])
	}
	switch {
	case len(doc.Findings) > 0:
	case job.Matched == 0:
		line("not judged: no collective was recorded by 80 %% of the ranks of its communicator (give the files of all ranks)")
	default:
		line("no rank arrives last more often than by chance, and no communicator is slow")
	}
	if job.Incomplete > 0 {
		line("%s lack ranks, as small or overwritten ones do, and are not judged",
			finding.Count(job.Incomplete, "collective", "collectives"))
	}
}
