// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"net"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/freeport"
)

// The programs of docs/any-language.md send a span that passes the check.
func TestCheckAcceptsSpansOfOtherLanguages(t *testing.T) {
	programs := filepath.Join("..", "..", "examples", "anylanguage")
	for language, build := range map[string][]string{
		"C++":  {"g++", "-std=c++17", "-Wall", "-Wextra", "-Werror", filepath.Join(programs, "emit.cpp")},
		"Rust": {"rustc", "--edition=2021", "-Dwarnings", filepath.Join(programs, "emit.rs")},
	} {
		t.Run(language, func(t *testing.T) {
			if err := exec.Command(build[0], "--version").Run(); err != nil { // rustup's rustc may have no toolchain
				t.Skipf("%s is not installed: %v", build[0], err)
			}
			program := filepath.Join(t.TempDir(), "emit")
			compile := append(build[1:len(build):len(build)], "-o", program)
			text, err := exec.Command(build[0], compile...).CombinedOutput()
			require.NoError(t, err, string(text))

			grpc, web, err := freeport.Pair()
			require.NoError(t, err)
			args := []string{web}
			if language == "C++" {
				host, port, err := net.SplitHostPort(web)
				require.NoError(t, err)
				args = []string{host, port}
			}
			require.Error(t, exec.Command(program, args...).Run(), "nothing listens yet")

			cmd := newCheckCommand()
			var out bytes.Buffer
			cmd.SetOut(&out)
			cmd.SetErr(&bytes.Buffer{})
			cmd.SetArgs([]string{"--listen", grpc})
			cmd.SilenceUsage, cmd.SilenceErrors = true, true
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			cmd.SetContext(ctx)
			done := make(chan error)
			go func() { done <- cmd.Execute() }()
			require.Eventually(t, func() bool { return exec.Command(program, args...).Run() == nil },
				time.Minute, 50*time.Millisecond)
			cancel()
			require.NoError(t, <-done, out.String())
			assert.Contains(t, out.String(), "1 spans (1 GPU-related)")
		})
	}
}
