// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/recorded"
)

func convertOutput(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := newConvertCommand()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(args)
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.SetContext(t.Context())
	err := cmd.Execute()
	return out.String(), err
}

// The pair was recorded for a tutorial: the same training without and with four loader workers.
func TestCompareNamesTheLoader(t *testing.T) {
	without := recorded.Path(t, "kineto", "pytorch/samples/resnet50_num_workers_0/worker0.1623143089861.pt.trace.json.gz")
	with := recorded.Path(t, "kineto", "pytorch/samples/resnet50_num_workers_4/worker0.1623212756351.pt.trace.json.gz")
	out, err := convertOutput(t, "--compare", without, with)
	require.NoError(t, err)
	lines := strings.Split(out, "\n")
	// From the start of the first step to the end of the device's last work the files have 1,065.553 ms and 846.542 ms,
	// six steps each.
	assert.Contains(t, lines[0],
		"a step is 36.5ms (20.6 %) shorter: 177.59ms before, 141.09ms after; idle: loader -57.6 ms")
	assert.Contains(t, lines[3], "-57.550     58.733     1.183  idle: loader")
	assert.Contains(t, out, "aten::cudnn_convolution")
	assert.Contains(t, out, "wgrad_alg0_engine")
	guide, err := os.ReadFile(filepath.Join("..", "..", "docs", "findings.md"))
	require.NoError(t, err)
	_, example, _ := strings.Cut(string(guide), "a step is ")
	example, _, _ = strings.Cut("a step is "+example, "\n```")
	require.Equal(t, strings.Split(example, "\n"), lines[:5], "of docs/findings.md")

	back, err := convertOutput(t, "--compare", with, without)
	require.NoError(t, err)
	assert.Contains(t, back, "longer")
	assert.Contains(t, back, "idle: loader +57.6 ms")

	same, err := convertOutput(t, "--compare", with, with)
	require.NoError(t, err)
	assert.Contains(t, same, "a step is 0s (0 %)")
}

func TestCompareTakesTwoProfilesWithADevice(t *testing.T) {
	_, err := convertOutput(t, "--compare", "one.json")
	require.EqualError(t, err, "--compare takes two profiles (BEFORE AFTER), found 1")
}
