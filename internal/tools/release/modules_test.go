// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/mod/modfile"
)

func text(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(repository, name))
	require.NoError(t, err)
	return string(b)
}

// words returns the first group of a pattern in a file, split at spaces.
func words(t *testing.T, name, pattern string) []string {
	t.Helper()
	m := regexp.MustCompile(pattern).FindStringSubmatch(text(t, name))
	require.NotNil(t, m, "%s does not contain %s", name, pattern)
	return strings.Fields(m[1])
}

func TestEveryModuleIsInEveryListOfModules(t *testing.T) {
	files, err := filesWith(repository, "go.mod", "module ")
	require.NoError(t, err)
	var all []string
	for _, f := range files {
		dir := path.Dir(filepath.ToSlash(f))
		all = append(all, dir)
		assert.Equal(t, path.Join(prefix, dir), modfile.ModulePath([]byte(text(t, f))))
	}
	assert.ElementsMatch(t, all, slices.Concat(published, unpublished), "internal/tools/release/release.go")

	work, err := modfile.ParseWork("go.work", []byte(text(t, "go.work")), nil)
	require.NoError(t, err)
	var used []string
	for _, u := range work.Use {
		used = append(used, path.Clean(u.Path))
	}
	assert.ElementsMatch(t, published, used, "go.work")

	var left []string
	for _, dir := range words(t, "Makefile", `SHIPPED +:= \$\(filter-out ([^,]*),\$\(MODULES\)\)`) {
		left = append(left, path.Clean(dir))
	}
	assert.ElementsMatch(t, unpublished, left, "SHIPPED in the Makefile")

	list := strings.Join(words(t, ".github/dependabot.yml", `ecosystem: gomod\n +directories: \[([^\]]*)\]`), "")
	var updated []string
	for pattern := range strings.SplitSeq(list, ",") {
		pattern = strings.TrimPrefix(strings.Trim(pattern, `"`), "/")
		for _, dir := range all {
			if ok, err := path.Match(pattern, dir); err == nil && ok || pattern == "" && dir == "." {
				updated = append(updated, dir)
			}
		}
	}
	assert.ElementsMatch(t, all, updated, ".github/dependabot.yml")

	layout := text(t, "docs/layout.md")
	for _, dir := range all {
		row := regexp.MustCompile("(?m)^\\| `" + regexp.QuoteMeta(dir) + "/?` \\| own \\|")
		if dir == "." {
			row = regexp.MustCompile("(?m)^\\| `/` \\| root \\|")
		}
		assert.True(t, row.MatchString(layout), "docs/layout.md has no row for module %s", dir)
	}
}

func TestLibrariesAreTheModulesThatProgramsImport(t *testing.T) {
	assert.Equal(t, []string{"semconv", "gpuspan", "gpuspan/gpuspanyaml", "gpuspan/report/ddsketch", "."}, libraries())
}
