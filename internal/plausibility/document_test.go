// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package plausibility

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

//go:generate go test -run TestGenerated -update .

var update = flag.Bool("update", false, "write the table of reasons in the README of gpu_samples")

func TestGeneratedTableOfReasons(t *testing.T) {
	const begin, end = "<!-- contradictions begin (go test ./internal/plausibility -update) -->\n", "<!-- contradictions end -->"
	path := filepath.Join("..", "..", "extension", "gpusamplesextension", "README.md")
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(b), begin)
	require.True(t, ok)
	_, after, ok := strings.Cut(rest, end)
	require.True(t, ok)

	table := "| reason | contradiction | effect | remedy |\n|---|---|---|---|\n"
	for r := range Reason(NumReasons) {
		i := r.Info()
		table += "| `" + i.Name + "` | " + i.Compared + " | " + i.Effect + " | " + i.Remedy + " |\n"
	}
	want := before + begin + table + end + after
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(want), 0o644))
		return
	}
	require.Equal(t, want, string(b), "run go generate ./internal/plausibility")
}
