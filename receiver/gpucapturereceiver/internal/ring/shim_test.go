// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package ring_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/capturetest"
)

var shim, _ = filepath.Abs(filepath.Join("..", "..", "shim"))

func sources(t *testing.T, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(shim, pattern))
	require.NoError(t, err)
	require.NotEmpty(t, found)
	return found
}

func TestTheLibraryIsSmall(t *testing.T) {
	lines := 0
	for _, path := range append(sources(t, "*.c"), sources(t, "*.h")...) {
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		lines += strings.Count(string(b), "\n")
	}
	assert.Less(t, lines, 1500)
}

func TestTheStaticAnalyzerFindsNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("the analyzer takes seconds")
	}
	capturetest.Build(t)
	args := append([]string{
		"-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-fanalyzer", "-fPIC", "-shared", "-o",
		os.DevNull,
	},
		sources(t, "*.c")...)
	out, err := exec.Command("gcc", args...).CombinedOutput()
	require.NoError(t, err, string(out))
}

// TestUnderSanitizers runs this package's other tests with the library and the stubs built with
// gcc's sanitizers.
func TestUnderSanitizers(t *testing.T) {
	if testing.Short() || os.Getenv("OTELGPU_TEST_SANITIZE") != "" {
		t.Skip("takes seconds")
	}
	capturetest.Build(t)
	for _, kind := range []string{"address,undefined", "thread"} {
		t.Run(kind, func(t *testing.T) {
			probe := exec.Command("gcc", "-fsanitize="+kind, "-x", "c", "-o", filepath.Join(t.TempDir(), "probe"), "-")
			probe.Stdin = strings.NewReader("int main(void){return 0;}")
			if out, err := probe.CombinedOutput(); err != nil {
				t.Skipf("gcc has no such sanitizer here: %s", out)
			}
			tests := "HasKernels|ABudget|AFull|Threads|Names|Ends|Fork|ANewReader"
			cmd := exec.Command(os.Args[0], "-test.run", tests, "-test.count=1", "-test.v")
			cmd.Env = append(os.Environ(), "OTELGPU_TEST_SANITIZE="+kind, "ASAN_OPTIONS=detect_leaks=0",
				"TSAN_OPTIONS=report_signal_unsafe=0")
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, string(out))
			for name := range strings.SplitSeq(tests, "|") {
				require.Regexp(t, "--- PASS: Test[A-Za-z]*"+name, string(out), "a test was renamed or skipped")
			}
		})
	}
}

// TestOffsetsOfCUPTI compares cupti.h with NVIDIA's headers in the folders that
// OTELGPU_CUPTI_INCLUDE lists, separated by colons; each needs cupti_activity.h, and cuda.h and
// crt/ in one of the others.
func TestOffsetsOfCUPTI(t *testing.T) {
	include := os.Getenv("OTELGPU_CUPTI_INCLUDE")
	if include == "" {
		t.Skip("OTELGPU_CUPTI_INCLUDE is not set: NVIDIA's headers are not here")
	}
	args := []string{"-w", "-c", "-o", os.DevNull, "-I" + shim}
	header := ""
	for dir := range strings.SplitSeq(include, ":") {
		args = append(args, "-isystem", dir)
		if b, err := os.ReadFile(filepath.Join(dir, "cupti_activity.h")); err == nil && header == "" {
			header = string(b)
		}
	}
	require.NotEmpty(t, header, "no cupti_activity.h in OTELGPU_CUPTI_INCLUDE")
	// The library uses the newest structure of each kind.
	newest := func(prefix string, versions ...string) string {
		for _, v := range versions {
			if strings.Contains(header, "} "+prefix+v+";") {
				return prefix + v
			}
		}
		t.Fatalf("the header has no %s", prefix)
		return ""
	}
	for key, name := range map[string]string{
		"KERNEL_T": newest("CUpti_ActivityKernel", "13", "12", "11", "10", "9", "8", "7"),
		"COPY_T":   newest("CUpti_ActivityMemcpy", "7", "6", "5"),
		"SET_T":    newest("CUpti_ActivityMemset", "5", "4"),
		"GRAPH_T":  newest("CUpti_ActivityGraphTrace", "2", ""),
	} {
		args = append(args, "-D"+key+"="+name)
	}
	out, err := exec.Command("gcc", append(args, filepath.Join("..", "..", "testdata", "offsets.c"))...).CombinedOutput()
	require.NoError(t, err, string(out))
}

// TestTheRealDriverLoadsTheLibrary runs cuInit of a real libcuda, which needs no GPU to load the
// library in CUDA_INJECTION64_PATH.
func TestTheRealDriverLoadsTheLibrary(t *testing.T) {
	programs := capturetest.Build(t)
	source := filepath.Join(t.TempDir(), "init.c")
	require.NoError(t, os.WriteFile(source, []byte(`
		#include <dlfcn.h>
		#include <stdio.h>
		int main(void) {
			void *lib = dlopen("libcuda.so.1", RTLD_NOW);
			int (*init)(unsigned) = lib ? (int (*)(unsigned))dlsym(lib, "cuInit") : 0;
			if (!init) { puts("absent"); return 0; }
			printf("cuInit %d\n", init(0));
			fflush(stdout);
			getchar();
			return 0;
		}`), 0o600))
	program := filepath.Join(t.TempDir(), "init")
	out, err := exec.Command("gcc", "-w", "-o", program, source, "-ldl").CombinedOutput()
	require.NoError(t, err, string(out))
	dir := t.TempDir()
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), "CUDA_INJECTION64_PATH="+programs.Shim, "OTELGPU_CAPTURE_DIR="+dir,
		"OTELGPU_CUPTI_LIBRARY="+programs.CUPTI)
	if driver := os.Getenv("GPUSPAN_CUDA_LIBRARY"); driver != "" {
		cmd.Env = append(cmd.Env, "LD_LIBRARY_PATH="+filepath.Dir(driver))
	}
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	defer func() { _ = in.Close(); _ = cmd.Wait() }()
	line := make([]byte, 64)
	n, _ := stdout.Read(line)
	if strings.HasPrefix(string(line[:n]), "absent") {
		t.Skip("libcuda is not installed: its injection is not tried (GPUSPAN_CUDA_LIBRARY names one)")
	}
	found, err := filepath.Glob(filepath.Join(dir, "*.ring"))
	require.NoError(t, err)
	require.Len(t, found, 1, "after %s", line[:n])
	r := open(t, found[0])
	assert.True(t, r.Alive())
	assert.False(t, answered(t, r, window(t, r, 10*time.Millisecond, 10)).Refused)
}
