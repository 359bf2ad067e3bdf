// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const rulesForTests = `rules:
  - {match: 'given up', write: evicted}
  - {match: 'stands? for', write: represents}
`

func rulesOf(t *testing.T) []Rule {
	t.Helper()
	rules, err := parseRules([]byte(rulesForTests))
	require.NoError(t, err)
	return rules
}

func TestCommentsAndStringsOfGoAreChecked(t *testing.T) {
	source := "package p\n\n// é is Given up.\nconst s = `it stands for x`\n\nfunc given() { up() }\n\nimport _ \"given up\"\n"
	got := check("a/b.go", []byte("package p\n\n// é is Given up.\nconst s = `it stands for x`\n\nvar given, up int\n"), rulesOf(t))
	require.Equal(t, []Match{
		{File: "a/b.go", Line: 3, Text: "Given up", Write: "evicted"},
		{File: "a/b.go", Line: 4, Text: "stands for", Write: "represents"},
	}, got)
	require.NotEmpty(t, check("broken.go", []byte(source), rulesOf(t)), "a file that does not parse is checked whole")
}

func TestCodeInMarkdownIsIgnored(t *testing.T) {
	text := "Series are given up.\n\n```\ngiven up\n```\nThe key `stands for` is\n  - it stands for all\n"
	require.Equal(t, []Match{
		{File: "d.md", Line: 1, Text: "given up", Write: "evicted"},
		{File: "d.md", Line: 7, Text: "stands for", Write: "represents"},
	}, check("d.md", []byte(text), rulesOf(t)))
}

func TestWholeWordsMatch(t *testing.T) {
	require.Empty(t, check("d.md", []byte("forgiven upper, understands for"), rulesOf(t)))
}

func TestRulesNeedAReplacementAndKnownKeys(t *testing.T) {
	for _, bad := range []string{"rules:\n  - {match: a}\n", "rules:\n  - {match: '(', write: b}\n", "rules:\n  - {mtch: a, write: b}\n"} {
		_, err := parseRules([]byte(bad))
		require.Error(t, err, bad)
	}
	_, err := parseRules(wordsYAML)
	require.NoError(t, err)
}

func TestCountsMayDecreaseAndNeverIncrease(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	git := func(arguments ...string) {
		t.Helper()
		cmd := exec.Command("git", arguments...)
		cmd.Dir = root
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
	}
	git("init", "-q")
	baseline := "internal/tools/stylecheck/baseline.yaml"
	write("a.md", "A complaint. A complaint.\n")
	write("testdata/a.md", "A complaint.\n")
	write("x/testdata/a.md", "A complaint.\n")
	write(baseline, "a.md: 2\n")
	git("add", ".")
	require.ErrorContains(t, run(root, false, false), "testdata/a.md")
	git("rm", "-q", "-f", "testdata/a.md")
	require.NoError(t, run(root, false, false))

	write("a.md", "A complaint. A complaint. A complaint.\n")
	require.ErrorContains(t, run(root, false, false), `a.md:1: "complaint" (write: violation, is reported)`)
	require.NoError(t, run(root, false, true))
	require.Error(t, run(root, false, false), "an update raises nothing")

	write("a.md", "One complaint.\n")
	require.NoError(t, run(root, false, false))
	require.NoError(t, run(root, false, true))
	data, err := os.ReadFile(filepath.Join(root, baseline))
	require.NoError(t, err)
	require.Contains(t, string(data), "a.md: 1\n")

	write("program", strings.Repeat("x", maxSize+1))
	git("add", ".")
	require.ErrorContains(t, run(root, false, false), "program has 1048577 bytes")
	write("program", strings.Repeat("x", maxSize))
	require.NoError(t, run(root, false, false))
}
