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
	r.read(strings.NewReader(`{"Action":"pass","Package":"p","Test":"TestA"}
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
`))
	want := result{packages: 1, passed: 2, failed: 1, skipped: 1, broken: true}
	if r != want {
		t.Errorf("%+v, want %+v", r, want)
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
		"gpuspan": {true, false}, "test/kubernetes": {false, true}, "python": {true, false},
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
	packages, err := withoutGenerated(".", selection(".", false)[0])
	if err != nil {
		t.Fatal(err)
	}
	const component = "github.com/otelgpu/otelgpu/receiver/gpureceiver"
	if !slices.Contains(packages, component) || slices.Contains(packages, component+"/internal/metadata") ||
		slices.Contains(packages, component+"/internal/metadatatest") {
		t.Errorf("%q", packages)
	}
	chosen := selection(".", true)[1]
	if !slices.Contains(chosen, "./.../internal/metadata") || !slices.Contains(chosen, "./.../internal/metadatatest") {
		t.Errorf("%q", chosen)
	}
}
