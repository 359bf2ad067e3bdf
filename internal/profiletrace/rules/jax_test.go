// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/semconv"
)

// No remedy for a program of JAX names what only PyTorch or nsys has. The registry and this package
// have remedies.
func TestRemediesForJAXNameNothingOfPyTorch(t *testing.T) {
	foreign := regexp.MustCompile(`(?i)torch|autocast|pin_memory|non_blocking|with_stack|record_shapes|persistent_workers|` +
		`channels_last|set_to_none|empty_cache|expandable|schedule with|mark_dynamic|sdpa|attn_impl|emit_nvtx|sync_events|` +
		`nsys|second stream|--cuda|--captures`)
	texts := map[string]bool{}
	for _, k := range semconv.FindingKinds() {
		texts[k.Remedy] = true
	}
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") || name == "jax.go" {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		require.NoError(t, err)
		ast.Inspect(f, func(n ast.Node) bool {
			e, ok := n.(ast.Expr)
			if !ok {
				return true
			}
			text, ok := constant(e)
			texts[text] = texts[text] || ok
			return !ok
		})
	}
	replaced := 0
	for text := range texts {
		got := ofJAX.Replace(text)
		assert.NotRegexp(t, foreign, got, "%s: add to ofJAX (jax.go) what programs of JAX have for it", text)
		if got != text {
			replaced++
		}
	}
	assert.Greater(t, replaced, 20)
}

// constant returns the value of a string, or of a sum of strings.
func constant(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		s, err := strconv.Unquote(e.Value)
		return s, err == nil && e.Kind == token.STRING
	case *ast.BinaryExpr:
		a, ok := constant(e.X)
		b, also := constant(e.Y)
		return a + b, ok && also
	}
	return "", false
}

func TestFindingsOnProgramsOfJAXHaveItsRemedies(t *testing.T) {
	for framework, want := range map[event.Framework]string{
		event.PyTorch: "torch.compile", event.JAX: "one jax.jit around the whole step, several steps in one call (jax.lax.scan)",
		event.XLA: "in JAX: one jax.jit",
	} {
		j := &judge{f: &facts.Context{Framework: framework}, length: 100}
		j.add(finding.Finding{Kind: semconv.GPUFindingKindLaunchBound, Gain: 50})
		j.note(finding.Finding{Kind: semconv.GPUFindingKindLaunchBound}, 1, .5)
		for _, v := range j.list {
			assert.Contains(t, v.Remedy, want)
		}
		v := NoDevice(&facts.HostOnly{Time: 1, Where: []finding.Location{{Name: "main"}}}, framework)
		assert.Equal(t, framework != event.PyTorch, strings.Contains(v.Remedy, "jax.devices"))
	}
}
