// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/exp/apidiff"
	"golang.org/x/mod/semver"
	"golang.org/x/tools/go/packages"
)

// libraries returns the directories of the modules whose Go API VERSIONING.md covers: the published
// ones that hold more than programs and internal packages.
func libraries() []string {
	return slices.DeleteFunc(slices.Clone(published), func(dir string) bool {
		return slices.Contains(installed, dir) || dir == "examples" || strings.HasPrefix(dir, "internal/")
	})
}

// compareAPI writes the incompatible changes of the Go API since a commit, by default the last
// release. They are an error unless CHANGELOG.md changed, too.
func compareAPI(w io.Writer, root, base string, modules []string) error {
	if base == "" {
		if base = lastRelease(root); base == "" {
			return errors.New("there is no release to compare with (fetch the tags, or set BASE to a commit)")
		}
	}
	dir, err := os.MkdirTemp("", "otelgpu-api-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	old := filepath.Join(dir, "old")
	// A worktree would be registered in the repository, and left there if this is killed.
	clone := exec.Command("git", "clone", "-q", "--shared", "--no-checkout", root, old)
	if out, err := clone.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot clone: %w\n%s", err, out)
	}
	if out, err := exec.Command("git", "-C", old, "checkout", "-q", base).CombinedOutput(); err != nil {
		return fmt.Errorf("cannot check out %q: %w (is the commit fetched?)\n%s", base, err, out)
	}
	incompatible := 0
	for _, m := range modules {
		if _, err := os.Stat(filepath.Join(old, m, "go.mod")); errors.Is(err, fs.ErrNotExist) {
			fmt.Fprintf(w, "module %s is new since %s\n", m, base)
			continue
		}
		before, err := loadAPI(filepath.Join(old, m))
		if err != nil {
			return fmt.Errorf("module %s at %s: %w", m, base, err)
		}
		after, err := loadAPI(filepath.Join(root, m))
		if err != nil {
			return fmt.Errorf("module %s: %w", m, err)
		}
		for _, c := range apidiff.ModuleChanges(before, after).Changes {
			if !c.Compatible && !reworded.MatchString(c.Message) {
				incompatible++
				fmt.Fprintf(w, "%s: %s\n", before.Path, c.Message)
			}
		}
	}
	if incompatible == 0 {
		fmt.Fprintf(w, "the Go API is compatible with %s\n", base)
		return nil
	}
	if exec.Command("git", "-C", root, "diff", "--quiet", base, "--", "CHANGELOG.md").Run() == nil {
		return fmt.Errorf("%d incompatible changes since %s, and CHANGELOG.md is unchanged (describe what users have to do)",
			incompatible, base)
	}
	fmt.Fprintf(w, "%d incompatible changes since %s: check that CHANGELOG.md describes each of them\n",
		incompatible, base)
	return nil
}

// lastRelease returns the tag of the highest release before HEAD, "" if there is none. The commit
// of a release is on a separate branch, so that its parent is before HEAD and it may not be.
func lastRelease(root string) string {
	out, err := exec.Command("git", "-C", root, "tag", "--list", "v[0-9]*").Output()
	if err != nil {
		return ""
	}
	tags := strings.Fields(string(out))
	semver.Sort(tags)
	for _, tag := range slices.Backward(tags) {
		for _, commit := range []string{tag, tag + "^"} {
			if exec.Command("git", "-C", root, "merge-base", "--is-ancestor", commit, "HEAD").Run() == nil {
				return tag
			}
		}
	}
	return ""
}

// reworded matches the change of a description of package semconv, on whose text no program
// depends, and of the library's version.
var reworded = regexp.MustCompile(`^(\w+Description|(\S+\.)?Version): value changed from`)

// loadAPI type-checks the packages of the module in a directory that other modules may import.
func loadAPI(dir string) (*apidiff.Module, error) {
	// Dependencies are read from their export data, so that only the module itself is type-checked.
	loaded, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedImports | packages.NeedTypes | packages.NeedSyntax |
			packages.NeedTypesInfo | packages.NeedModule | packages.NeedExportFile,
		Dir: dir, Env: append(os.Environ(), "GOWORK=off"),
	}, "./...")
	if err != nil {
		return nil, err
	}
	m := &apidiff.Module{}
	for _, p := range loaded {
		if len(p.Errors) > 0 {
			return nil, p.Errors[0]
		}
		if p.Name == "main" || slices.Contains(strings.Split(p.PkgPath, "/"), "internal") {
			continue
		}
		m.Path = p.Module.Path
		m.Packages = append(m.Packages, p.Types)
	}
	if len(m.Packages) == 0 {
		return nil, errors.New("no packages found")
	}
	return m, nil
}
