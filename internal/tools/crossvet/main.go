// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Command crossvet reports what go vet reports for other systems, without compiling for them.
//
//	crossvet -systems "darwin/arm64 windows/amd64" DIR...
//
// Each DIR is a module, which is loaded alone (GOWORK=off) and without cgo. go vet compiles all dependencies for each
// system to read their types; crossvet reads the types from the declarations in the sources, which takes a tenth of the
// time. Facts about functions of other modules, such as wrappers of printf, are therefore unknown: make lint vets for
// the system of the machine with them.
package main

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/checker"
	"golang.org/x/tools/go/analysis/passes/appends"
	"golang.org/x/tools/go/analysis/passes/asmdecl"
	"golang.org/x/tools/go/analysis/passes/assign"
	"golang.org/x/tools/go/analysis/passes/atomic"
	"golang.org/x/tools/go/analysis/passes/bools"
	"golang.org/x/tools/go/analysis/passes/buildtag"
	"golang.org/x/tools/go/analysis/passes/composite"
	"golang.org/x/tools/go/analysis/passes/copylock"
	"golang.org/x/tools/go/analysis/passes/defers"
	"golang.org/x/tools/go/analysis/passes/directive"
	"golang.org/x/tools/go/analysis/passes/errorsas"
	"golang.org/x/tools/go/analysis/passes/framepointer"
	"golang.org/x/tools/go/analysis/passes/hostport"
	"golang.org/x/tools/go/analysis/passes/httpresponse"
	"golang.org/x/tools/go/analysis/passes/ifaceassert"
	"golang.org/x/tools/go/analysis/passes/loopclosure"
	"golang.org/x/tools/go/analysis/passes/lostcancel"
	"golang.org/x/tools/go/analysis/passes/nilfunc"
	"golang.org/x/tools/go/analysis/passes/printf"
	"golang.org/x/tools/go/analysis/passes/shift"
	"golang.org/x/tools/go/analysis/passes/sigchanyzer"
	"golang.org/x/tools/go/analysis/passes/slog"
	"golang.org/x/tools/go/analysis/passes/stdmethods"
	"golang.org/x/tools/go/analysis/passes/stdversion"
	"golang.org/x/tools/go/analysis/passes/stringintconv"
	"golang.org/x/tools/go/analysis/passes/structtag"
	"golang.org/x/tools/go/analysis/passes/testinggoroutine"
	"golang.org/x/tools/go/analysis/passes/tests"
	"golang.org/x/tools/go/analysis/passes/timeformat"
	"golang.org/x/tools/go/analysis/passes/unmarshal"
	"golang.org/x/tools/go/analysis/passes/unreachable"
	"golang.org/x/tools/go/analysis/passes/unsafeptr"
	"golang.org/x/tools/go/analysis/passes/unusedresult"
	"golang.org/x/tools/go/analysis/passes/waitgroup"
	"golang.org/x/tools/go/packages"
)

// analyzers are the analyzers of go vet but cgocall, which needs cgo.
var analyzers = []*analysis.Analyzer{
	appends.Analyzer, asmdecl.Analyzer, assign.Analyzer, atomic.Analyzer, bools.Analyzer, buildtag.Analyzer,
	composite.Analyzer, copylock.Analyzer, defers.Analyzer, directive.Analyzer, errorsas.Analyzer, framepointer.Analyzer,
	hostport.Analyzer, httpresponse.Analyzer, ifaceassert.Analyzer, loopclosure.Analyzer, lostcancel.Analyzer,
	nilfunc.Analyzer, printf.Analyzer, shift.Analyzer, sigchanyzer.Analyzer, slog.Analyzer, stdmethods.Analyzer,
	stdversion.Analyzer, stringintconv.Analyzer, structtag.Analyzer, testinggoroutine.Analyzer, tests.Analyzer,
	timeformat.Analyzer, unmarshal.Analyzer, unreachable.Analyzer, unsafeptr.Analyzer, unusedresult.Analyzer,
	waitgroup.Analyzer,
}

func main() {
	systems := flag.String("systems", "", "systems, as \"darwin/arm64 windows/amd64\"")
	flag.Parse()
	if *systems == "" || flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "usage: crossvet -systems \"GOOS/GOARCH ...\" DIR...")
		os.Exit(2)
	}
	failed := false
	for system := range strings.FieldsSeq(*systems) {
		for _, dir := range flag.Args() {
			fmt.Printf("--- %s: %s\n", dir, system)
			found, err := vet(dir, system)
			for _, line := range found {
				fmt.Println(line)
			}
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
			failed = failed || err != nil || len(found) > 0
		}
	}
	if failed {
		os.Exit(1)
	}
}

// vet returns what is wrong with the packages of the module in dir, and their tests, on a system, sorted.
func vet(dir, system string) ([]string, error) {
	goos, goarch, ok := strings.Cut(system, "/")
	if !ok {
		return nil, fmt.Errorf("invalid system %q (write GOOS/GOARCH)", system)
	}
	loaded, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports |
			packages.NeedDeps | packages.NeedTypes | packages.NeedTypesSizes | packages.NeedSyntax |
			packages.NeedTypesInfo | packages.NeedModule,
		Dir:   dir,
		Env:   append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0", "GOOS="+goos, "GOARCH="+goarch),
		Tests: true,
	}, "./...")
	if err != nil {
		return nil, fmt.Errorf("cannot load %s: %w", dir, err)
	}
	if len(loaded) == 0 {
		return nil, fmt.Errorf("no packages in %s", dir)
	}
	found := map[string]bool{}
	packages.Visit(loaded, nil, func(p *packages.Package) {
		for _, e := range p.Errors {
			found[e.Error()] = true
		}
	})
	own := map[*packages.Package]bool{}
	for _, p := range loaded {
		own[p] = true
	}
	var sound []*packages.Package
	for _, p := range loaded {
		// Other modules are loaded without the bodies of functions, so nothing can be concluded from these.
		maps.DeleteFunc(p.Imports, func(_ string, imported *packages.Package) bool { return !own[imported] })
		if !p.IllTyped {
			sound = append(sound, p)
		}
	}
	graph, err := checker.Analyze(analyzers, sound, nil)
	if err != nil {
		return slices.Sorted(maps.Keys(found)), err
	}
	var errs []error
	for a := range graph.All() {
		if a.Err != nil && a.IsRoot {
			errs = append(errs, fmt.Errorf("%s of %s: %w", a.Analyzer.Name, a.Package.ID, a.Err))
		}
		if !a.IsRoot {
			continue
		}
		for _, d := range a.Diagnostics {
			at := a.Package.Fset.Position(d.Pos)
			if abs, err := filepath.Abs(dir); err == nil {
				if short, err := filepath.Rel(abs, at.Filename); err == nil {
					at.Filename = filepath.Join(dir, short)
				}
			}
			found[fmt.Sprintf("%v: %s (%s)", at, d.Message, a.Analyzer.Name)] = true
		}
	}
	return slices.Sorted(maps.Keys(found)), errors.Join(errs...)
}
