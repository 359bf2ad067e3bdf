// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each package in the list imports only earlier ones.
func TestImportsOfTheLayersGoOneWay(t *testing.T) {
	const prefix = "github.com/otelgpu/otelgpu/gpuspan/internal/"
	layers := []string{
		"spanattr", "hostclock", "errreport", "spanid", "elapsed", "work", "sink", "worker", "cpu", "section", "spans", "engine", "access",
	}
	for rank, layer := range layers {
		files, err := filepath.Glob("../" + layer + "/*.go")
		require.NoError(t, err)
		require.NotEmpty(t, files, layer)
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
			require.NoError(t, err)
			for _, i := range f.Imports {
				name, own := strings.CutPrefix(strings.Trim(i.Path.Value, `"`), prefix)
				if at := slices.Index(layers, name); own && at >= 0 {
					require.Less(t, at, rank, "%s imports %s", file, name)
				}
			}
		}
	}
}
