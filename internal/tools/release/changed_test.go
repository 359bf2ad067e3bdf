// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestChangedPackagesSelectTheirDependents(t *testing.T) {
	all := map[string][]string{
		".": {"cmd/otelcol-gpu", "test/browser"}, "semconv": {"gpuspan"}, "examples": nil, "cmd/otelcol-gpu": nil,
		"gpuspan":        {".", "cmd/otelcol-gpu", "examples", "gpuspan/gpuspanyaml"},
		"internal/tools": nil, "test/browser": nil, "test/kubernetes": nil, "gpuspan/gpuspanyaml": {"examples"},
	}
	for _, tt := range []struct {
		files, want []string
	}{
		{nil, []string{}},
		{[]string{"semconv/metrics.go"}, []string{"gpuspan", "semconv"}},
		{
			[]string{"gpuspan/cuda/cuda.go"},
			[]string{".", "cmd/otelcol-gpu", "examples", "gpuspan", "gpuspan/gpuspanyaml"},
		},
		{[]string{"gpuspan/gpuspanyaml/file.go"}, []string{"examples", "gpuspan/gpuspanyaml"}},
		{[]string{"receiver/gpureceiver/config.go"}, []string{".", "cmd/otelcol-gpu"}},
		{[]string{"examples/a/main.go", "internal/tools/x.go"}, []string{"examples", "internal/tools"}},
		{[]string{"test/browser/x_test.go"}, []string{}},
		{[]string{"deploy/helm/otelgpu/values.yaml"}, []string{".", "cmd/otelcol-gpu", "test/kubernetes"}},
		{[]string{"Makefile"}, []string{
			".", "cmd/otelcol-gpu", "examples", "gpuspan", "gpuspan/gpuspanyaml", "internal/tools", "semconv", "test/kubernetes",
		}},
	} {
		require.Equal(t, tt.want, changed(all, tt.files, false), "%v", tt.files)
	}
	require.Len(t, changed(all, nil, true), 8)
}
