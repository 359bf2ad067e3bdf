// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// dependents are the modules that contain code of a module, by its directory. A change of one is tested in all of them.
var dependents = map[string][]string{
	"semconv": {"gpuspan", "gpuspan/gpuspanyaml", "gpuspan/report/ddsketch", ".", "cmd/otelcol-gpu", "examples"},
	"gpuspan": {"gpuspan/gpuspanyaml", "gpuspan/report/ddsketch", ".", "cmd/otelcol-gpu", "examples"},

	"gpuspan/gpuspanyaml":     {"examples"},
	"gpuspan/report/ddsketch": {"examples"},

	".": {"cmd/otelcol-gpu"},
}

// heavy are the modules that run in jobs of their own: their tests need servers of others.
var heavy = []string{"test/browser", "test/prometheus", "benchmarks"}

// printChanged writes the modules to test for the difference between a commit and the working tree.
func printChanged(w io.Writer, root, base string) error {
	files, err := filesWith(root, "go.mod", "module ")
	if err != nil {
		return err
	}
	var all []string
	for _, f := range files {
		all = append(all, path.Dir(filepath.ToSlash(f)))
	}
	var diff []string
	if base != "" {
		out, err := exec.Command("git", "-C", root, "diff", "--name-only", base).Output()
		if err != nil {
			return fmt.Errorf("cannot compare with %q: %w (is the commit fetched?)", base, err)
		}
		diff = strings.Fields(string(out))
	}
	return json.NewEncoder(w).Encode(changed(all, diff, base == ""))
}

// changed returns the modules of the files and the modules that depend on them.
func changed(all, files []string, everything bool) []string {
	hit := map[string]bool{}
	for _, f := range files {
		if strings.HasPrefix(f, "go.work") || f == "Makefile" || strings.HasPrefix(f, ".github/") {
			everything = true
		}
		best := ""
		for _, m := range all {
			if m == "." || strings.HasPrefix(f, m+"/") {
				if best == "" || len(m) > len(best) || best == "." {
					best = m
				}
			}
		}
		hit[best] = true
		for _, d := range dependents[best] {
			hit[d] = true
		}
	}
	out := []string{}
	for _, m := range all {
		if (everything || hit[m]) && !slices.Contains(heavy, m) {
			out = append(out, m)
		}
	}
	slices.Sort(out)
	return out
}
