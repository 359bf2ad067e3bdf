// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A module with one function, and a test of one of its two lines.
func TestAFaultIsCaughtOrPasses(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("GOWORK", "off")
	t.Setenv("GOFLAGS", "-mod=mod")
	for name, text := range map[string]string{
		"go.mod": "module m\n\ngo 1.24\n",
		"sum.go": "package m\n\nfunc sum(a, b int) int { return a + b }\n\nfunc twice(a int) int { return 2 * a }\n",
		"sum_test.go": "package m\n\nimport \"testing\"\n\nfunc TestSum(t *testing.T) {\n\tif sum(2, 3) != 5 {\n\t\tt.Fatal()\n\t}\n}\n" +
			"\nfunc TestWrong(t *testing.T) { t.Fatal() }\n",
		"internal/tools/mutate/mutations.yaml": `
- {name: difference, in: ., from: "a + b", to: "a - b", test: [.], run: Sum}
- {name: three times, in: ., from: "2 * a", to: "3 * a", test: [.], run: Sum}
- {name: fails anyway, in: ., from: "2 * a", to: "3 * a", test: [.], run: Wrong}
- {name: no such variable, in: ., from: "2 * a", to: "2 * c", test: [.], run: Sum}
- {name: not there, in: ., from: "a / b", to: "b / a", test: [.]}
`,
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o700))
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	}
	var out bytes.Buffer
	require.Error(t, run("", &out))
	assert.Regexp(t, `(?m)^caught  \.: difference `, out.String())
	assert.Regexp(t, `(?m)^PASSED  \.: three times `, out.String())
	assert.Regexp(t, `(?m)^BROKEN: does not build: `, out.String())
	assert.Regexp(t, `(?m)^BROKEN: the tests fail without it: `, out.String())
	assert.Contains(t, out.String(), "BROKEN: `from` must be in . once, is there 0 times")
	assert.Contains(t, out.String(), "5 faults: 1 caught, 1 passed, 3 broken\n")
	out.Reset()
	require.NoError(t, run("difference", &out))
}

// Detects outdated entries of the list here instead of after minutes.
func TestTheListMatchesTheCode(t *testing.T) {
	list, err := load("mutations.yaml")
	require.NoError(t, err)
	t.Chdir(filepath.Join("..", "..", ".."))
	names := map[string]bool{}
	for i := range list {
		m := &list[i]
		assert.False(t, names[m.Name], "%s is there twice", m.Name)
		names[m.Name] = true
		_, _, err = m.find()
		assert.NoError(t, err, m.Name)
		for _, dir := range m.Test {
			assert.DirExists(t, dir, m.Name)
		}
	}
}
