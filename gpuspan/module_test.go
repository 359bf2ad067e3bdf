// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/otelgpu/otelgpu/gpuspan/internal/require"
)

// What go.mod requires is in the module graph of every user, so it is only what code that users build imports. The
// SDK of metrics is the exception: it is released with the API, and requires nothing that the API does not.
func TestModulesThatOnlyTestsUseAreNotRequired(t *testing.T) {
	imported := map[string]bool{}
	require.NoError(t, filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, i := range f.Imports {
			p, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				return err
			}
			imported[p] = true
		}
		return nil
	}))
	text, err := os.ReadFile("go.mod")
	require.NoError(t, err)
	direct := regexp.MustCompile(`(?m)^\t(\S+) v\S+$`).FindAllStringSubmatch(string(text), -1)
	require.Greater(t, len(direct), 5)
	for _, m := range direct {
		used := m[1] == "go.opentelemetry.io/otel/sdk/metric"
		for p := range imported {
			used = used || p == m[1] || strings.HasPrefix(p, m[1]+"/")
		}
		require.True(t, used, "go.mod requires %s, which only tests import", m[1])
	}
	require.NotRegexp(t, `testify|goleak|gonum|rapid`, string(text))
}
