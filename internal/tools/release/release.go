// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
)

// prefix is the path of the root module.
const prefix = "github.com/otelgpu/otelgpu"

// published are the directories of the modules that users get, and unpublished are the tools and
// tests of the repository. Other lists of modules follow from these two, or a test compares them:
// the Makefile, go.work, .github and docs/layout.md.
var (
	published = []string{
		"semconv", "internal/spanfiles", "gpuspan", "gpuspan/gpuspanyaml", "gpuspan/report/ddsketch", ".",
		"cmd/otelcol-gpu", "examples",
	}
	unpublished = []string{
		"benchmarks", "internal/tools", "internal/tools/snapshot", "internal/tools/vale",
		"test/browser", "test/kubernetes", "test/prometheus",
	}
)

// installed are the modules whose programs users install by their path. go install refuses replace
// lines in these.
var installed = []string{"cmd/otelcol-gpu"}

func own(path string) bool { return path == prefix || strings.HasPrefix(path, prefix+"/") }

// tag returns the tag of the module in a directory: the go command expects the directory before the
// version.
func tag(dir, version string) string {
	if dir == "." {
		return version
	}
	return dir + "/" + version
}

// edit is a pattern whose first group is followed by a version, and the files that must contain it.
type edit struct {
	files   []string // patterns of filepath.Glob; ** is not supported
	pattern *regexp.Regexp
	text    string
}

// prepare writes version into every file that states it, in the working tree.
func prepare(root, version, date string) error {
	bare := strings.TrimPrefix(version, "v")
	if err := unreleased(root, bare); err != nil {
		return err
	}
	if err := setModules(root, version); err != nil {
		return err
	}
	library, err := filesWith(filepath.Join(root, "gpuspan"), ".go", "\nconst Version = \"")
	if err != nil {
		return err
	}
	for i := range library {
		library[i] = filepath.Join("gpuspan", library[i])
	}
	edits := []edit{
		{library, regexp.MustCompile(`(const Version = ")[^"]*(")`), "${1}" + bare + "${2}"},
		{
			[]string{"cmd/otelcol-gpu/builder.yaml", "cmd/otelcol-gpu/builder-full.yaml", "deploy/own-collector/builder.yaml"},
			regexp.MustCompile(`(gomod: ` + regexp.QuoteMeta(prefix) + `(?:/cmd/otelcol-gpu)? )v\S+`), "${1}" + version,
		},
		{
			[]string{"cmd/otelcol-gpu/builder.yaml", "cmd/otelcol-gpu/builder-full.yaml"},
			regexp.MustCompile(`(?m)^(  version: )\S+$`), "${1}" + bare,
		},
		{
			[]string{"python/pyproject.toml", "python/src/otelgpu/_runtime.py"},
			regexp.MustCompile(`(?m)^((?:version|__version__|VERSION) = ")[^"]*(")$`), "${1}" + pep440(bare) + "${2}",
		},
		{
			[]string{"deploy/helm/otelgpu/Chart.yaml"},
			regexp.MustCompile(`(?m)^((?:version|appVersion): )\S+$`), "${1}" + bare,
		},
		{[]string{"CHANGELOG.md"}, newestSection, "## [" + bare + "] - " + date},
	}
	for _, e := range edits {
		if len(e.files) == 0 {
			return fmt.Errorf("no file contains %s", e.pattern)
		}
		for _, name := range e.files {
			if err := e.apply(filepath.Join(root, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

var newestSection = regexp.MustCompile(`(?m)^## \[([^]]*)\](.*)$`)

// unreleased returns an error if the newest section of the changelog is of another version that was released: it has a
// date or a tag. Release candidates share the section of their version.
func unreleased(root, version string) error {
	b, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	m := newestSection.FindStringSubmatch(string(b))
	if m == nil || m[1] == version || strings.HasPrefix(m[1], version+"-") {
		return nil
	}
	dated := regexp.MustCompile(`^ - \d{4}-\d\d-\d\d`).MatchString(m[2])
	if dated || exec.Command("git", "-C", root, "rev-parse", "-q", "--verify", "refs/tags/v"+m[1]).Run() == nil {
		return fmt.Errorf("the newest section of CHANGELOG.md is of %s, which is released (add `## [Unreleased]` above it, "+
			"with the changes since)", m[1])
	}
	return nil
}

// pep440 writes a version as Python does: 0.2.0-rc.1 is 0.2.0rc1.
func pep440(version string) string {
	release, pre, ok := strings.Cut(version, "-")
	if !ok {
		return version
	}
	return release + strings.ReplaceAll(pre, ".", "")
}

func (e edit) apply(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if !e.pattern.Match(b) {
		return fmt.Errorf("%s does not contain %s (adjust internal/tools/release)", path, e.pattern)
	}
	if strings.HasSuffix(path, ".md") { // only the newest section of the changelog
		i := e.pattern.FindIndex(b)
		return os.WriteFile(path, slices.Concat(b[:i[0]], []byte(e.text), b[i[1]:]), 0o644)
	}
	return os.WriteFile(path, e.pattern.ReplaceAll(b, []byte(e.text)), 0o644)
}

// setModules sets the version of the repository's own modules wherever one is required, and removes their replace lines
// from the modules that users install by their path.
func setModules(root, version string) error {
	files, err := filesWith(root, "go.mod", "module ")
	if err != nil {
		return err
	}
	for _, name := range files {
		file := filepath.Join(root, name)
		b, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		f, err := modfile.Parse(name, b, nil)
		if err != nil {
			return err
		}
		for _, r := range slices.Clone(f.Require) {
			if own(r.Mod.Path) {
				if err := f.AddRequire(r.Mod.Path, version); err != nil {
					return err
				}
			}
		}
		if slices.Contains(installed, path.Dir(filepath.ToSlash(name))) {
			for _, r := range slices.Clone(f.Replace) {
				if !own(r.Old.Path) {
					return fmt.Errorf("%s replaces %s, which go install refuses (remove the line)", name, r.Old.Path)
				}
				if err := f.DropReplace(r.Old.Path, r.Old.Version); err != nil {
					return err
				}
			}
		}
		f.Cleanup()
		if b, err = f.Format(); err != nil {
			return err
		}
		if err := os.WriteFile(file, b, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// filesWith returns the files below a directory whose names have the ending and that contain a text, relative to it.
// Hidden directories, testdata and what builders write are omitted.
func filesWith(root, suffix, text string) ([]string, error) {
	var out []string
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && file != root &&
			(strings.HasPrefix(d.Name(), ".") || slices.Contains([]string{"testdata", "build", "bin"}, d.Name())) {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(d.Name(), suffix) {
			return nil
		}
		b, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(b), text) {
			return err
		}
		name, err := filepath.Rel(root, file)
		out = append(out, name)
		return err
	})
	return out, err
}
