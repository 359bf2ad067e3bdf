// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const repository = "github.com/otelgpu/otelgpu"

// sequential are the packages of others, with those below them, that call nothing in their own goroutine.
var sequential = []string{
	"github.com/stretchr/testify", "go.opentelemetry.io/otel/attribute", "go.uber.org/goleak", "go.yaml.in/yaml/v3",
}

// concurrent are packages of the standard library that start goroutines, or whose use a build with -race verifies.
var concurrent = []string{"net", "os/signal", "plugin", "unsafe"}

// starters are methods and functions that call another function in a goroutine.
var starters = []string{"AfterFunc", "Go", "Parallel", "RunParallel", "Pull", "Pull2"}

// detector decides which packages the race detector can find something in.
type detector struct {
	root string          // directory of the repository
	seen map[string]bool // an import path, and whether its package may run goroutines
}

// tests reports whether the tests of a package, or what they import, may run goroutines or use unsafe pointers.
func (d *detector) tests(path string) bool { return d.directory(path, true) }

// imports is the same for a package that tests import.
func (d *detector) imports(path string) bool {
	if below(path, repository) {
		found, known := d.seen[path]
		if !known {
			d.seen[path] = false
			found = d.directory(path, false)
			d.seen[path] = found
		}
		return found
	}
	if first, _, _ := strings.Cut(path, "/"); !strings.Contains(first, ".") { // the standard library, or C
		return path == "C" || slices.ContainsFunc(concurrent, func(p string) bool { return below(path, p) })
	}
	return !slices.ContainsFunc(sequential, func(p string) bool { return below(path, p) })
}

func below(path, parent string) bool { return path == parent || strings.HasPrefix(path, parent+"/") }

func (d *detector) directory(path string, tests bool) bool {
	files, err := filepath.Glob(filepath.Join(d.root, strings.TrimPrefix(path, repository), "*.go"))
	if err != nil || len(files) == 0 {
		return true
	}
	return slices.ContainsFunc(files, func(name string) bool {
		if strings.HasSuffix(name, "_test.go") && !tests {
			return false
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return true
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.SkipObjectResolution)
		if err != nil {
			return true
		}
		return startsGoroutine(file) || slices.ContainsFunc(file.Imports, func(s *ast.ImportSpec) bool {
			imported, err := strconv.Unquote(s.Path.Value)
			return err != nil || d.imports(imported)
		})
	})
}

func startsGoroutine(file *ast.File) bool {
	found := false
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			found = true
		case *ast.SelectorExpr:
			found = found || slices.Contains(starters, n.Sel.Name)
		}
		return !found
	})
	return found
}
