// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const siteConfig = "docs/site/mkdocs.yml"

// Every page of docs is in the navigation of the site, and every page of the navigation exists.
func TestSiteNavigationNamesEveryPage(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, siteConfig))
	require.NoError(t, err)
	_, nav, found := strings.Cut(string(text), "\nnav:\n")
	require.True(t, found)
	for _, m := range regexp.MustCompile(`: (\S+\.md)\n`).FindAllStringSubmatch(nav, -1) {
		assert.FileExists(t, filepath.Join(root, m[1]))
	}
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	require.NoError(t, err)
	require.NotEmpty(t, pages)
	for _, page := range pages {
		assert.Contains(t, nav, ": docs/"+filepath.Base(page)+"\n")
	}
}

// The site builds in strict mode, in which a broken link fails; the test adds one.
func TestSiteHasNoBrokenLinks(t *testing.T) {
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Skip(err)
	}
	mkdocs, err := exec.LookPath(filepath.Join(cache, "otelgpu", "docs", "venv", "bin", "mkdocs"))
	if err != nil || testing.Short() {
		t.Skip("mkdocs is not installed (run make docs), or -short is set")
	}
	list := exec.Command("git", "ls-files", "--", "*.md", "docs/images", ":!*testdata*", ":!.github")
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		t.Skipf("cannot list the files of the repository: %v", err)
	}
	src := t.TempDir()
	for name := range strings.FieldsSeq(string(out)) {
		b, err := os.ReadFile(filepath.Join(root, name))
		require.NoError(t, err)
		require.NoError(t, os.MkdirAll(filepath.Join(src, filepath.Dir(name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(src, name), b, 0o600))
	}
	require.NoError(t, os.WriteFile(filepath.Join(src, "SECURITY.md"), []byte("# S\n\n[gone](docs/gone.md)\n"), 0o600))
	// Not --quiet, which would also silence the warnings that strict mode counts.
	build := exec.Command(mkdocs, "build", "--strict", "--config-file", siteConfig, "--site-dir", t.TempDir())
	build.Dir, build.Env = root, append(os.Environ(), "DOCS_SRC="+src)
	out, err = build.CombinedOutput()
	require.Error(t, err, "the planted link is broken")
	require.Contains(t, string(out), "'docs/gone.md'")
	require.Contains(t, string(out), "Aborted with 1 warnings in strict mode", string(out))
}
