// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package configtest_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// documentedReasons checks that text, which is metadata.yaml and the README, names each value of
// the attribute `reason` in the Go files of the working directory: Label("reason", X) or
// attribute.String("reason", X), where X is a literal, an element of a list of literals, or a
// parameter of a function that is called with literals.
func documentedReasons(t *testing.T, text string) {
	t.Helper()
	r := reasonFinder{lists: map[string][]string{}, passed: map[string][]string{}, found: map[string]bool{}}
	names, err := filepath.Glob("*.go")
	require.NoError(t, err)
	var files []*ast.File
	for _, name := range names {
		if !strings.HasSuffix(name, "_test.go") {
			f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
			require.NoError(t, err)
			files = append(files, f)
			ast.Inspect(f, r.collect)
		}
	}
	for _, f := range files {
		ast.Inspect(f, r.use)
	}
	words := map[string]bool{}
	for w := range strings.FieldsFuncSeq(text, func(c rune) bool { return c != '_' && (c < 'a' || c > 'z') }) {
		words[w] = true
	}
	delete(r.found, "")
	for reason := range r.found {
		assert.True(t, words[reason], "metadata.yaml and the README do not name the reason %s", reason)
	}
}

type reasonFinder struct {
	lists  map[string][]string // literals of a variable's value, by its name
	passed map[string][]string // literals passed to a function, by its name
	found  map[string]bool
}

func literals(n ast.Node) (out []string) {
	ast.Inspect(n, func(n ast.Node) bool {
		if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
			if s, err := strconv.Unquote(l.Value); err == nil {
				out = append(out, s)
			}
		}
		return true
	})
	return out
}

func calledName(c *ast.CallExpr) string {
	switch f := c.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}

func (r *reasonFinder) collect(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.ValueSpec:
		for i, name := range n.Names {
			if i < len(n.Values) {
				if _, isFunc := n.Values[i].(*ast.FuncLit); !isFunc {
					r.lists[name.Name] = literals(n.Values[i])
				}
			}
		}
	case *ast.CallExpr:
		for _, a := range n.Args {
			if _, ok := a.(*ast.BasicLit); ok {
				r.passed[calledName(n)] = append(r.passed[calledName(n)], literals(a)...)
			}
		}
	}
	return true
}

// use finds the values of reason within a function, where ranges and parameters are known.
func (r *reasonFinder) use(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GenDecl:
		r.within(n, nil)
	case *ast.FuncDecl:
		from := map[string][]string{}
		for _, p := range n.Type.Params.List {
			for _, name := range p.Names {
				from[name.Name] = r.passed[n.Name.Name]
			}
		}
		ast.Inspect(n, func(n ast.Node) bool {
			if over, ok := n.(*ast.RangeStmt); ok {
				for _, e := range []ast.Expr{over.Key, over.Value} {
					if id, ok := e.(*ast.Ident); ok {
						from[id.Name] = r.values(over.X, nil)
					}
				}
			}
			return true
		})
		r.within(n, from)
	}
	_, file := n.(*ast.File)
	return file
}

func (r *reasonFinder) within(n ast.Node, from map[string][]string) {
	ast.Inspect(n, func(n ast.Node) bool {
		c, ok := n.(*ast.CallExpr)
		if !ok || len(c.Args) != 2 || calledName(c) != "Label" && !isAttribute(c.Fun) {
			return true
		}
		if l, ok := c.Args[0].(*ast.BasicLit); ok && l.Value == `"reason"` {
			for _, v := range r.values(c.Args[1], from) {
				r.found[v] = v != ""
			}
		}
		return true
	})
}

// isAttribute reports whether a function is attribute.String, and not the String function of a
// logger.
func isAttribute(f ast.Expr) bool {
	s, ok := f.(*ast.SelectorExpr)
	if !ok || s.Sel.Name != "String" {
		return false
	}
	x, ok := s.X.(*ast.Ident)
	return ok && x.Name == "attribute"
}

func (r *reasonFinder) values(e ast.Expr, from map[string][]string) []string {
	switch e := e.(type) {
	case *ast.Ident:
		if v, ok := from[e.Name]; ok {
			return v
		}
		return r.lists[e.Name]
	case *ast.IndexExpr:
		return r.values(e.X, from)
	}
	return literals(e)
}
