// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// interpreter is the Python that tests run with: OTELGPU_PYTHON, else an environment in python/.venv, else python3. It
// is empty where there is none with what the tests need, and reason says so.
func interpreter(root string) (path, reason string) {
	path = os.Getenv("OTELGPU_PYTHON")
	if path == "" {
		path = filepath.Join(root, "python", ".venv", "bin", "python")
		if _, err := os.Stat(path); err != nil {
			path = "python3"
		}
	}
	if _, err := exec.LookPath(path); err != nil {
		return "", path + " is not installed"
	}
	if out, err := exec.Command(path, "-c",
		"import pytest, opentelemetry.sdk, opentelemetry.exporter.otlp.proto.http").CombinedOutput(); err != nil {
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		return "", fmt.Sprintf("%s: %s (pip install ./python[test] into python/.venv)", path, lines[len(lines)-1])
	}
	return path, ""
}

// testPython runs the tests of the Python package, or says why not.
func testPython(root string) result {
	path, reason := interpreter(root)
	if path == "" {
		fmt.Printf("skipped python: %s\n", reason)
		return result{skipped: 1}
	}
	begin := time.Now()
	if strings.ContainsRune(path, filepath.Separator) {
		path, _ = filepath.Abs(path) // it runs in another folder
	}
	cmd := exec.Command(path, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider")
	cmd.Dir = filepath.Join(root, "python")
	cmd.Env = append(os.Environ(), "PYTHONPATH=src", "PYTHONDONTWRITEBYTECODE=1")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	r := pytestCounts(out.String())
	r.took = time.Since(begin)
	if err != nil {
		r.broken = r.failed == 0
		fmt.Printf("FAILED  python: %v\n%s", err, out.String())
		return r
	}
	for line := range strings.SplitSeq(out.String(), "\n") {
		if text, ok := strings.CutPrefix(line, "SKIPPED "); ok {
			fmt.Printf("skipped python %s\n", text)
		}
	}
	return r
}

var pytestCount = regexp.MustCompile(`(\d+) (passed|failed|skipped|errors?)`)

// pytestCounts reads the closing line of pytest.
func pytestCounts(output string) result {
	r := result{packages: 1}
	lines := strings.Split(strings.TrimSpace(output), "\n")
	for _, m := range pytestCount.FindAllStringSubmatch(lines[len(lines)-1], -1) {
		n, _ := strconv.Atoi(m[1])
		switch m[2] {
		case "passed":
			r.passed += n
		case "skipped":
			r.skipped += n
		default:
			r.failed += n
		}
	}
	return r
}
