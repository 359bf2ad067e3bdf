// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/semconv"
)

// Each kind of finding has a row in the tables of docs/findings.md, which state what it is.
func TestEachKindOfFindingIsDocumented(t *testing.T) {
	text, err := os.ReadFile(filepath.FromSlash("../../../docs/findings.md"))
	require.NoError(t, err)
	var first []string // cells of rows
	for line := range strings.Lines(string(text)) {
		if cell, _, ok := strings.Cut(strings.TrimPrefix(line, "| "), " |"); ok && strings.HasPrefix(line, "| ") {
			first = append(first, cell)
		}
	}
	all := strings.Join(first, "\n")
	for _, k := range semconv.FindingKinds() {
		assert.True(t, strings.Contains(all, "`"+k.Kind+"`"), "docs/findings.md: add a row for %s", k.Kind)
	}
}
