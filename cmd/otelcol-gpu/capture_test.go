// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/capturetest"
)

func TestCaptureRecordsARunningProcess(t *testing.T) {
	p := capturetest.Start(t, t.TempDir())
	p.Ring()
	out := filepath.Join(t.TempDir(), "out")
	var stdout, stderr bytes.Buffer
	cmd := newCaptureCommand()
	cmd.SetOut(&stdout)
	cmd.SetErr(&stderr)
	cmd.SetArgs([]string{"--folder", p.Folder, "--for", "2s", "--html", "--out", out, strconv.Itoa(p.PID)})
	done := make(chan error, 1)
	go func() { done <- cmd.ExecuteContext(t.Context()) }()
	for running := true; running; {
		select {
		case err := <-done:
			require.NoError(t, err, stderr.String())
			running = false
		case <-time.After(5 * time.Millisecond):
			p.Do("launch 1000000 void captured_kernel<float>(int)")
		}
	}
	assert.Contains(t, stdout.String(), "process "+strconv.Itoa(p.PID)+": ")
	assert.Contains(t, stdout.String(), "captured_kernel", "the table")
	for _, name := range []string{"spans.json", "trace.json", "report.html"} {
		b, err := os.ReadFile(filepath.Join(out, name))
		require.NoError(t, err)
		assert.Contains(t, string(b), "captured_kernel", name)
		if name == "trace.json" {
			assert.Contains(t, string(b), `"registers per thread"`, "all that the process stated")
		}
	}
}

func TestCaptureNamesMissingParts(t *testing.T) {
	for want, args := range map[string][]string{
		`"x" is not a process ID`: {"x"},
		"capture takes one process ID (otelcol-gpu capture PID), found 0": {},
		"there is no process 4194305":                                     {"--out", t.TempDir(), "4194305"},
		"without CUDA_INJECTION64_PATH=":                                  {"--out", t.TempDir(), strconv.Itoa(os.Getpid())},
		"--for must be above 0 and at most 1m0s, found 2h0m0s":            {"--for", "2h", "1"},
	} {
		var stderr bytes.Buffer
		cmd := newCaptureCommand()
		cmd.SetOut(&bytes.Buffer{})
		cmd.SetErr(&stderr)
		cmd.SilenceUsage = true
		cmd.SetArgs(args)
		err := cmd.ExecuteContext(t.Context())
		require.Error(t, err, want)
		assert.Contains(t, stderr.String()+err.Error(), want)
	}
}
