// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/conformance"
)

// TestHandmadeSpanEqualsTheDocument reads the request of docs/any-language.md.
func TestHandmadeSpanEqualsTheDocument(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "docs", "any-language.md"))
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(text), "-d '")
	require.True(t, ok)
	body, _, ok := strings.Cut(rest, "'\n")
	require.True(t, ok)
	td, err := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces([]byte(strings.ReplaceAll(body, "'$now'", "1800000000")))
	require.NoError(t, err)
	s := td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0)
	v, ok := s.Attributes().Get("gpu.duration")
	require.True(t, ok)
	require.NoError(t, conformance.Traces(td))
	assert.InDelta(t, s.EndTimestamp().AsTime().Sub(s.StartTimestamp().AsTime()).Seconds(), v.Double(), 1e-12)
}

func TestTheExampleInCPlusPlusBuildsAndRuns(t *testing.T) {
	if _, err := exec.LookPath("g++"); err != nil {
		t.Skip("g++ is not installed")
	}
	program := filepath.Join(t.TempDir(), "service")
	out, err := exec.Command("g++", "-std=c++17", "-Wall", "-Wextra", "-Werror",
		"-I"+filepath.Join("..", "receiver", "gpucapturereceiver", "shim"),
		filepath.Join("..", "examples", "capture", "main.cpp"), "-ldl", "-o", program).CombinedOutput()
	require.NoError(t, err, string(out))
	out, err = exec.Command(program).CombinedOutput()
	require.NoError(t, err)
	assert.Equal(t, "served one request\n", string(out))
}
