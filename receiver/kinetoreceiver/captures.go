// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"context"
	"fmt"
	"os"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/otelgpu/otelgpu/internal/profiletrace"
	"github.com/otelgpu/otelgpu/internal/profiletrace/link"
	"github.com/otelgpu/otelgpu/internal/regularfile"
)

// knowCaptures reads the traces with captures of graphs, if the file launches any. One that cannot
// be read is a fault of the file that is read, not an error.
func (c *collect) knowCaptures(ctx context.Context) error {
	if len(c.opts.Captures) == 0 || !c.p.LaunchesGraphs() {
		return nil
	}
	files, faults := captureFiles(c.opts.Captures)
	c.p.Faults = append(c.p.Faults, faults...)
	any := false
	for _, path := range files {
		found, err := c.opts.Cache.Of(path, func() (link.Captures, error) { return capturesOf(ctx, path, c.opts) })
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			c.p.Faults = append(c.p.Faults, fmt.Sprintf("cannot read captures in %q: %v", path, err))
		}
		any = any || found.Len()+found.Lost > 0
		c.p.Know(&found)
	}
	if len(files) > 0 && !any {
		c.p.Faults = append(c.p.Faults, fmt.Sprintf("no graph was captured in %q", c.opts.Captures))
	}
	return nil
}

// maxCaptureFiles bounds the files that a pattern may match.
const maxCaptureFiles = 256

// captureFiles returns the files of the patterns; a folder means the traces below it.
func captureFiles(patterns []string) (files, faults []string) {
	for _, p := range patterns {
		if info, err := os.Stat(p); err == nil && info.IsDir() {
			p += "/**/*.{json,json.gz,json.zst}"
		}
		found, err := doublestar.FilepathGlob(p, doublestar.WithFilesOnly())
		if err == nil && len(found) == 0 {
			err = os.ErrNotExist
		}
		if err != nil {
			faults = append(faults, fmt.Sprintf("no captures in %q: %v", p, err))
		}
		files = append(files, found...)
	}
	if len(files) > maxCaptureFiles {
		faults = append(faults, fmt.Sprintf("%d files with captures; only the first %d were read", len(files),
			maxCaptureFiles))
		files = files[:maxCaptureFiles]
	}
	return files, faults
}

func capturesOf(ctx context.Context, path string, o Options) (link.Captures, error) {
	f, err := regularfile.Open(path)
	if err != nil {
		return link.Captures{}, err
	}
	defer f.Close()
	p := profiletrace.New(o, profiletrace.Source{})
	defer p.Close()
	c := &collect{p: p, opts: o, texts: map[string]int64{}, ranks: map[string]int64{}}
	if _, err := c.read(ctx, path, f); err != nil {
		return link.Captures{}, err
	}
	return p.Captures(ctx)
}

// graphFaults reports for how many launches of graphs the operators are unknown, and why.
func graphFaults(g *link.Graphs) (list []string) {
	if g.Lost > 0 {
		list = append(list, fmt.Sprintf("%d captures of graphs were omitted: too many nodes or captures at one time, "+
			"or a graph in the graph", g.Lost))
	}
	if g.Near > 0 {
		list = append(list, fmt.Sprintf("%d of %d launches of graphs run up to %d kernels fewer than were captured; their "+
			"operators are found by the names of the others", g.Near, g.Launches, link.MaxMissing))
	}
	if g.Ambiguous > 0 {
		list = append(list, fmt.Sprintf(
			"%d of %d launches of graphs have no operators: several captures have their kernels, "+
				"with other shapes (name only the capture of the graph)", g.Ambiguous, g.Launches))
	}
	if n := g.Launches - g.Known - g.Ambiguous; n > 0 {
		list = append(list, fmt.Sprintf("%d of %d launches of graphs have no operators: no capture has their kernels", n,
			g.Launches))
	}
	return list
}
