// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestCountsEqualTheEvents(t *testing.T) {
	var r result
	read(strings.NewReader(`{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p","Test":"TestA/sub"}
{"Action":"output","Package":"p","Test":"TestB","Output":"    b_test.go:7: no device here\n"}
{"Action":"skip","Package":"p","Test":"TestB"}
{"Action":"pass","Package":"p","Elapsed":0.1}
{"Action":"output","Package":"q","Test":"TestC","Output":"wrong\n"}
{"Action":"fail","Package":"q","Test":"TestC"}
{"Action":"fail","Package":"q"}
{"Action":"skip","Package":"no/tests"}
{"Action":"build-output","ImportPath":"x","Output":"undefined: y\n"}
{"Action":"build-fail","ImportPath":"x"}
not json
`), func(string) *result { return &r })
	want := result{packages: 1, passed: 2, failed: 1, skipped: 1, broken: true}
	if r != want {
		t.Errorf("%+v, want %+v", r, want)
	}
}

func TestPackagesAreCountedForTheirModules(t *testing.T) {
	dirs := []string{".", "cmd/otelcol-gpu", "gpuspan", "gpuspan/gpuspanyaml", "python"}
	for path, want := range map[string]string{
		"/internal/page": ".", "/gpuspan": "gpuspan", "/gpuspan/cuda": "gpuspan",
		"/gpuspan/gpuspanyaml": "gpuspan/gpuspanyaml", "/gpuspan_test": ".", "/cmd/otelcol-gpu/internal/demo": "cmd/otelcol-gpu",
		"/gpuspan/cuda [" + repository + "/gpuspan/cuda.test]": "gpuspan",
	} {
		if got := moduleOf(repository+path, dirs); got != want {
			t.Errorf("%q: %q, want %q", path, got, want)
		}
	}
}

func TestLongPackagesStartFirst(t *testing.T) {
	got := longestFirst([]string{repository, repository + "/test", repository + "/cmd/otelcol-gpu", repository + "/config"})
	want := []string{repository + "/cmd/otelcol-gpu", repository + "/test", repository, repository + "/config"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	for _, dir := range long {
		if _, err := os.Stat(filepath.Join("..", "..", "..", filepath.FromSlash(dir))); err != nil {
			t.Error(err)
		}
	}
}

func TestReasonOfASkipIsTheTestsMessage(t *testing.T) {
	got := reason([]string{
		"=== RUN   TestB\n", "    b_test.go:7: cannot load libcuda.so.1: no such file\n",
		"--- SKIP: TestB (0.00s)\n",
	})
	if got != "cannot load libcuda.so.1: no such file" {
		t.Errorf("%q", got)
	}
	if got := reason(nil); got != "no reason given" {
		t.Errorf("%q", got)
	}
}

func TestModulesAreDirectoriesWithAGoMod(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{".", "a/b", "a/testdata/c", ".hidden", "a/build"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, dir, "go.mod"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := modules(root)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{root, filepath.Join(root, "a/b")}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestCountsOfPytest(t *testing.T) {
	for line, want := range map[string]result{
		"48 passed, 1 skipped in 4.87s":                       {packages: 1, passed: 48, skipped: 1},
		"x\n===== 2 failed, 3 passed, 1 error in 0.10s ===\n": {packages: 1, passed: 3, failed: 3},
		"no tests ran in 0.01s":                               {packages: 1},
	} {
		if got := pytestCounts(line); got != want {
			t.Errorf("%q: %+v, want %+v", line, got, want)
		}
	}
}

func TestEachTestRunsInOneOfTheTwoModes(t *testing.T) {
	for dir, want := range map[string][2]bool{
		"gpuspan": {true, true}, "semconv": {true, false}, "test/kubernetes": {false, true}, "python": {true, false},
		"test/browser": {false, true}, "test/prometheus": {false, true}, "benchmarks": {false, true},
		"internal/tools/snapshot": {false, true}, ".": {true, true}, "internal/tools": {true, true},
	} {
		for i, integration := range []bool{false, true} {
			if got := len(selection(dir, integration)) > 0; got != want[i] {
				t.Errorf("%s with integration %t: %t, want %t", dir, integration, got, want[i])
			}
		}
	}
	if got := selection(".", true); got[0][1] != "^TestIntegration" {
		t.Errorf("%q", got)
	}
}

func TestGeneratedTestsRunWithIntegrationOnly(t *testing.T) {
	t.Chdir("../../..")
	t.Setenv("GOWORK", "")
	got, err := packages(".", selection(".", false)[0], false)
	if err != nil {
		t.Fatal(err)
	}
	const component = repository + "/receiver/gpureceiver"
	if !slices.Contains(got, component) || slices.Contains(got, component+"/internal/metadata") ||
		slices.Contains(got, component+"/internal/metadatatest") {
		t.Errorf("%q", got)
	}
	chosen := selection(".", true)[1]
	if !slices.Contains(chosen, "./.../internal/metadata") || !slices.Contains(chosen, "./.../internal/metadatatest") {
		t.Errorf("%q", chosen)
	}
}

func TestRaceDetectorRunsWhereGoroutinesOrUnsafePointersAre(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"sum/sum.go":          "package sum",
		"sum/sum_test.go":     `package sum; import "github.com/stretchr/testify/require"`,
		"pool/pool.go":        "package pool; func F() { go F() }",
		"user/user.go":        `package user; import _ "github.com/otelgpu/otelgpu/between"`,
		"between/between.go":  `package between; import _ "github.com/otelgpu/otelgpu/pool"`,
		"parallel/a_test.go":  `package parallel; import "testing"; func TestA(t *testing.T) { t.Parallel() }`,
		"group/a_test.go":     `package group; import "sync"; func f() { var w sync.WaitGroup; w.Go(f) }`,
		"pointer/a.go":        `package pointer; import "unsafe"`,
		"server/a_test.go":    `package server; import "net/http/httptest"`,
		"sdk/a_test.go":       `package sdk; import "go.opentelemetry.io/otel/sdk/trace"`,
		"attribute/a_test.go": `package attribute; import "go.opentelemetry.io/otel/attribute"`,
		"tested/a.go":         "package tested",
		"tested/a_test.go":    "package tested; func f() { go f() }",
		"plain/a.go":          `package plain; import _ "github.com/otelgpu/otelgpu/tested"`,
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	d := detector{root: root, seen: map[string]bool{}}
	for name, want := range map[string]bool{
		"sum": false, "pool": true, "between": true, "user": true, "parallel": true, "group": true, "pointer": true,
		"server": true, "sdk": true, "attribute": false, "tested": true, "plain": false, "missing": true,
	} {
		if got := d.tests(repository + "/" + name); got != want {
			t.Errorf("%s: %t, want %t", name, got, want)
		}
	}
}
