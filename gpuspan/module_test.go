// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every module that go.mod requires, directly or not, is in the module graph of every user. So
// go.mod may require only what non-test packages of this module build with, and what the trace SDK
// requires in the same version.
func TestModulesThatOnlyTestsUseAreInTheGraphOfTheSDKAnyway(t *testing.T) {
	lines := func(args ...string) map[string]bool {
		cmd := exec.Command("go", args...)
		cmd.Env = append(os.Environ(), "GOWORK=off")
		out, err := cmd.Output()
		require.NoError(t, err)
		set := map[string]bool{}
		for line := range strings.Lines(string(out)) {
			set[strings.TrimSpace(line)] = true
		}
		return set
	}
	built := lines("list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", "./...")
	graph := lines("mod", "graph")
	text, err := os.ReadFile("go.mod")
	require.NoError(t, err)
	required := regexp.MustCompile(`(?m)^\t(\S+) (v\S+)( // indirect)?$`).FindAllStringSubmatch(string(text), -1)
	require.Greater(t, len(required), 10)
	sdk := ""
	for _, m := range required {
		if m[1] == "go.opentelemetry.io/otel/sdk" {
			sdk = m[1] + "@" + m[2]
		}
	}
	for _, m := range required {
		module := m[1] + "@" + m[2]
		require.True(t, built[m[1]] || graph[sdk+" "+module], "only tests import %s, which %s does not require", module, sdk)
	}
	require.NotRegexp(t, `gonum|rapid|sketches-go|klauspost|gpuspanyaml`, string(text))
}

// A program that imports the library builds the OpenTelemetry API with its dependencies, and
// nothing else; one that imports the CUDA backend also builds purego.
func TestModulesOfAUser(t *testing.T) {
	root, err := filepath.Abs("..")
	require.NoError(t, err)
	api := []string{
		"github.com/cespare/xxhash/v2", "github.com/go-logr/logr", "github.com/go-logr/stdr",
		"github.com/otelgpu/otelgpu/gpuspan", "github.com/otelgpu/otelgpu/semconv", "go.opentelemetry.io/auto/sdk",
		"go.opentelemetry.io/otel", "go.opentelemetry.io/otel/metric", "go.opentelemetry.io/otel/trace",
	}
	sdk := graphOfTheSDK(t)
	for path, want := range map[string][]string{
		"gpuspan":          api,
		"gpuspan/train":    api,
		"gpuspan/settings": {"github.com/otelgpu/otelgpu/gpuspan"},
		"gpuspan/report":   api, // the kinds of findings are in semconv
		"gpuspan/cuda":     append([]string{"github.com/ebitengine/purego"}, api...),
	} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			main := "package main\n\nimport _ \"github.com/otelgpu/otelgpu/" + path + "\"\n\nfunc main() {}\n"
			require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte(main), 0o600))
			mod := "module example.com/user\n\ngo 1.25.0\n\nrequire github.com/otelgpu/otelgpu/gpuspan v0.1.0\n"
			for _, name := range []string{"gpuspan", "internal/spanfiles", "semconv"} {
				mod += "\nreplace github.com/otelgpu/otelgpu/" + name + " => " + filepath.Join(root, name) + "\n"
			}
			require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte(mod), 0o600))
			cmd := exec.Command("go", "list", "-mod=mod", "-deps", "-f",
				"{{with .Module}}{{if not .Main}}{{.Path}}{{end}}{{end}}", ".")
			cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
			out, err := cmd.Output()
			require.NoError(t, err)
			built := slices.Compact(slices.Sorted(strings.FieldsSeq(string(out))))
			require.Contains(t, built, "github.com/otelgpu/otelgpu/gpuspan")
			require.Subset(t, want, built)
			sums, err := os.ReadFile(filepath.Join(dir, "go.sum"))
			if !errors.Is(err, fs.ErrNotExist) { // no module is downloaded
				require.NoError(t, err)
			}
			for line := range strings.Lines(string(sums)) { // of modules whose code is downloaded
				if name, version, _ := strings.Cut(line, " "); !strings.Contains(version, "/go.mod ") {
					require.Contains(t, want, name)
				}
			}
			// The graph contains the modules of the SDK's graph, which tests of the library import,
			// and purego.
			require.Subset(t, append([]string{
				"github.com/ebitengine/purego", "github.com/otelgpu/otelgpu/gpuspan", "github.com/otelgpu/otelgpu/semconv",
				"github.com/otelgpu/otelgpu/internal/spanfiles",
			}, sdk...), moduleGraph(t, dir))
		})
	}
}

// moduleGraph lists the modules in the graph of the program in a directory.
func moduleGraph(t *testing.T, dir string) []string {
	cmd := exec.Command("go", "list", "-mod=mod", "-m", "-f", "{{.Path}}", "all")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
	out, err := cmd.Output()
	require.NoError(t, err)
	return strings.Fields(string(out))
}

// graphOfTheSDK lists the modules in the graph of a program that requires the SDK only, in the
// library's versions.
func graphOfTheSDK(t *testing.T) []string {
	text, err := os.ReadFile("go.mod")
	require.NoError(t, err)
	mod := "module example.com/user\n\ngo 1.25.0\n"
	for _, name := range []string{"sdk", "sdk/metric"} {
		line := regexp.MustCompile(`go\.opentelemetry\.io/otel/` + name + ` v\S+`).FindString(string(text))
		require.NotEmpty(t, line)
		mod += "\nrequire " + line + "\n"
	}
	dir := t.TempDir()
	main := "package main\n\nimport _ \"go.opentelemetry.io/otel/sdk/trace\"\n\nfunc main() {}\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte(main), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte(mod), 0o600))
	cmd := exec.Command("go", "list", "-mod=mod", "-deps", ".") // adds indirect requirements
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
	require.NoError(t, cmd.Run())
	return moduleGraph(t, dir)
}
