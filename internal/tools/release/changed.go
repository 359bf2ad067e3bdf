// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
)

// heavy are the modules that run in separate jobs: their tests need servers of others.
var heavy = []string{"test/browser", "test/prometheus", "benchmarks"}

// outside are directories with the module whose tests read them.
var outside = map[string]string{"config": "test/kubernetes", "deploy": "test/kubernetes"}

// printChanged writes the modules to test for the difference between a commit and the working tree.
func printChanged(w io.Writer, root, base string) error {
	dependents, err := dependentsOf(root)
	if err != nil {
		return err
	}
	var diff []string
	if base != "" {
		out, err := exec.Command("git", "-C", root, "diff", "--name-only", base).Output()
		if err != nil {
			return fmt.Errorf("cannot compare with %q: %w (is the commit fetched?)", base, err)
		}
		diff = strings.Fields(string(out))
	}
	return json.NewEncoder(w).Encode(changed(dependents, diff, base == ""))
}

// dependentsOf returns the directory of each module with the directories of the modules that
// require it: a change of one is tested in all of them.
func dependentsOf(root string) (map[string][]string, error) {
	files, err := filesWith(root, "go.mod", "module ")
	if err != nil {
		return nil, err
	}
	out := map[string][]string{}
	for _, name := range files {
		b, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return nil, err
		}
		f, err := modfile.Parse(name, b, nil)
		if err != nil {
			return nil, err
		}
		dir := path.Dir(filepath.ToSlash(name))
		out[dir] = slices.Grow(out[dir], 1) // also without dependents
		for _, r := range f.Require {
			if own(r.Mod.Path) {
				of := cmp.Or(strings.TrimPrefix(strings.TrimPrefix(r.Mod.Path, prefix), "/"), ".")
				out[of] = append(out[of], dir)
			}
		}
	}
	return out, nil
}

// changed returns the modules of the files and the modules that depend on them.
func changed(dependents map[string][]string, files []string, everything bool) []string {
	all := slices.Collect(maps.Keys(dependents))
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
		top, _, _ := strings.Cut(f, "/")
		hit[outside[top]] = true
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
