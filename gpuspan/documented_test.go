// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan_test

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Godoc shows an example on each type that users work with, and shows every example: one that is
// named for a type of another package appears nowhere, and vet accepts it.
func TestTypesHaveExamplesThatGodocShows(t *testing.T) {
	for folder, types := range map[string]string{
		".":       "Annotator Elapsed IDGenerator Operation OperationOption Option Profiler Section Stream StreamOption Work",
		"backend": "StatusError Unimplemented", "chrometrace": "Exporter", "cuda": "Backend", "flops": "Einsum Transformer",
		"gpuspanyaml": "Runtime", "hip": "Backend", "nvtx": "Annotator", "otlp": "Sink", "outputs": "FirstDivergence",
		"peaks": "Device", "rank": "Detector", "report": "Summary", "report/ddsketch": "New", "sampler": "LinksBased",
		"settings": "Schedule Settings", "simgpu": "GPU", "stepcsv": "Exporter", "train": "Loop Step",
	} {
		set := token.NewFileSet()
		names, err := filepath.Glob(filepath.Join(folder, "*.go"))
		require.NoError(t, err)
		var files, tests []*ast.File
		for _, name := range names {
			f, err := parser.ParseFile(set, name, nil, parser.ParseComments)
			require.NoError(t, err)
			files = append(files, f)
			if strings.HasSuffix(name, "_test.go") {
				tests = append(tests, f)
			}
		}
		pkg, err := doc.NewFromFiles(set, files, "github.com/otelgpu/otelgpu/gpuspan/"+folder)
		require.NoError(t, err)
		require.NotEmpty(t, pkg.Doc, folder)
		examples, shown := map[string]int{}, len(pkg.Examples)
		add := func(name string, list []*doc.Example) {
			examples[name] += len(list)
			shown += len(list)
		}
		for _, f := range pkg.Funcs {
			add(f.Name, f.Examples)
		}
		for _, typ := range pkg.Types {
			add(typ.Name, typ.Examples)
			for _, f := range append(typ.Funcs, typ.Methods...) {
				add(typ.Name, f.Examples)
			}
		}
		for name := range strings.FieldsSeq(types) {
			require.NotZero(t, examples[name], "example of %s.%s", folder, name)
		}
		require.Equal(t, len(doc.Examples(tests...)), shown, "godoc shows all examples of %s", folder)
	}
}
