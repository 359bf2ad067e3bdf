// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestIncompatibleChangesNeedALineInTheChangelog(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	git := func(args ...string) {
		t.Helper()
		command(t, dir, nil, "git", append([]string{"-c", "user.name=test", "-c", "user.email=test@example.com"}, args...)...)
	}
	write("lib/go.mod", "module example.com/lib\n\ngo 1.26.0\n")
	write("lib/lib.go", "package lib\n\nconst ADescription, Version = \"a\", \"1\"\n\nfunc Kept() {}\n\nfunc Gone() {}\n")
	write("lib/internal/x/x.go", "package x\n\nfunc Free() {}\n")
	write("CHANGELOG.md", "# Changelog\n")
	git("init", "-q")
	git("add", ".")
	git("commit", "-qm", "one")

	var out bytes.Buffer
	compare := func(base string) error {
		out.Reset()
		return compareAPI(&out, dir, base, []string{"lib"})
	}
	require.ErrorContains(t, compare(""), "no release to compare with")
	git("tag", "v0.1.0")
	write("lib/lib.go", "package lib\n\nconst ADescription, Version = \"b\", \"2\"\n\nfunc Kept() {}\n\nfunc Gone() {}\n\nfunc New() {}\n")
	write("lib/internal/x/x.go", "package x\n")
	require.NoError(t, compare(""), "new functions, internal packages and other words of a description")
	require.Contains(t, out.String(), "compatible with v0.1.0")

	write("lib/lib.go", "package lib\n\nconst ADescription, Version = \"b\", \"2\"\n\nfunc Kept(int) {}\n")
	require.ErrorContains(t, compare("HEAD"), "2 incompatible changes since HEAD, and CHANGELOG.md is unchanged")
	require.Contains(t, out.String(), "Gone: removed")
	require.Contains(t, out.String(), "Kept: changed from func() to func(int)")
	write("CHANGELOG.md", "# Changelog\n\n- lib: Gone is gone.\n")
	require.NoError(t, compare("HEAD"))
	require.ErrorContains(t, compare("nowhere"), `cannot check out "nowhere"`)
}

// The commits of releases are on branches, which are not merged.
func TestTheLastReleaseIsTheHighestOneBeforeTheCommit(t *testing.T) {
	dir := t.TempDir()
	git := func(args ...string) {
		t.Helper()
		command(t, dir, nil, "git", append([]string{"-c", "user.name=test", "-c", "user.email=test@example.com"}, args...)...)
	}
	commit := func(message string) { git("commit", "-q", "--allow-empty", "-m", message) }
	git("init", "-q", "-b", "main")
	commit("one")
	require.Empty(t, lastRelease(dir))
	for _, version := range []string{"v0.1", "v0.9", "v0.10"} {
		commit("a change before " + version)
		git("checkout", "-q", "-b", "release/"+version)
		commit("release " + version)
		git("tag", version+".0")
		git("tag", "gpuspan/"+version+".0")
		git("checkout", "-q", "main")
	}
	require.Equal(t, "v0.10.0", lastRelease(dir))
	git("checkout", "-q", "release/v0.9")
	commit("a fix")
	require.Equal(t, "v0.9.0", lastRelease(dir))
	git("tag", "v0.9.1")
	commit("another fix")
	require.Equal(t, "v0.9.1", lastRelease(dir))
	git("checkout", "-q", "main")
	require.Equal(t, "v0.10.0", lastRelease(dir))
}
