// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
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
	// From the start of the first step to the end of the device's last work the files have
	// 1,065.553 ms and 846.542 ms, six steps each.
	assert.Contains(t, lines[0],
		"a step is 36.5ms (20.6 %) shorter: 177.59ms before, 141.09ms after; idle: loader -57.6 ms")
	assert.Contains(t, lines[4], "-57.550     58.733     1.183  idle: loader")
	assert.Contains(t, out, "aten::cudnn_convolution")
	assert.Contains(t, out, "wgrad_alg0_engine")
	guide, err := os.ReadFile(filepath.Join("..", "..", "docs", "findings.md"))
	require.NoError(t, err)
	_, example, _ := strings.Cut(string(guide), "a step is ")
	example, _, _ = strings.Cut("a step is "+example, "\n```")
	require.Equal(t, strings.Split(example, "\n"), lines[:6], "of docs/findings.md")

	back, err := convertOutput(t, "--compare", with, without)
	require.NoError(t, err)
	assert.Contains(t, back, "longer")
	assert.Contains(t, back, "idle: loader +57.6 ms")

	same, err := convertOutput(t, "--compare", with, with)
	require.NoError(t, err)
	assert.Contains(t, same, "a step is 0s (0 %)")
}

// products returns a trace of two steps with matrix products of one shape and type, as PyTorch
// writes it.
func products(n, rows int, kind string, each float64) string {
	var list []string
	at, id := 1000.0, 0
	put := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	for step := range 2 {
		begin := at
		for range n {
			id++
			put(`{"ph":"X","cat":"cpu_op","name":"aten::mm","pid":1,"tid":1,"ts":%g,"dur":20,"args":{"External id":%d,`+
				`"Input Dims":[[%d,512],[512,512]],"Input type":[%[4]q,%[4]q]}}`, at, id, rows, kind)
			put(`{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":%g,"dur":5,`+
				`"args":{"correlation":%d}}`, at+10, id)
			put(`{"ph":"X","cat":"kernel","name":"gemm","pid":0,"tid":7,"ts":%g,"dur":%g,`+
				`"args":{"device":0,"stream":7,"correlation":%d,"External id":%[3]d}}`, at+20, each, id)
			at += 20 + each
		}
		at += 100
		put(`{"ph":"X","cat":"user_annotation","name":"ProfilerStep#%d","pid":1,"tid":1,"ts":%g,"dur":%g}`,
			step, begin, at-begin)
	}
	return `{"schemaVersion":1,"traceEvents":[` + strings.Join(list, ",") + `]}`
}

func TestCompareDistinguishesMoreWorkFromSlowerWork(t *testing.T) {
	dir := t.TempDir()
	base := writeFile(t, dir, "base.json", products(12, 8, "float", 100))
	for name, c := range map[string]struct{ after, want string }{
		"calls": {
			products(24, 8, "float", 100),
			"+1.200      1.200     2.400  aten::mm (more work: 12 → 24 kernels, 50.3 → 101 MFLOP, 41.9 → 41.9 GFLOP/s)",
		},
		"shapes": {
			products(12, 16, "float", 200),
			"(more work: 50.3 → 101 MFLOP, 41.9 → 41.9 GFLOP/s, f32[8,512] f32[512,512] → f32[16,512] f32[512,512])",
		},
		"type": {
			products(12, 8, "c10::BFloat16", 50),
			"(faster: fp32 → bf16, 41.9 → 83.9 GFLOP/s, f32[8,512] f32[512,512] → bf16[8,512] bf16[512,512])",
		},
		"speed": {products(12, 8, "float", 150), "+0.600      1.200     1.800  aten::mm (slower: 41.9 → 28 GFLOP/s)"},
	} {
		after := writeFile(t, dir, name+".json", c.after)
		out, err := convertOutput(t, "--compare", base, after)
		require.NoError(t, err)
		assert.Contains(t, out, c.want, name)
		_, err = convertOutput(t, "--compare", "--html", "--out", filepath.Join(dir, name), base, after)
		require.NoError(t, err)
		s, _ := reportState(t, filepath.Join(dir, name, "compare.html"))
		_, how, _ := strings.Cut(strings.TrimSuffix(c.want, ")"), "(")
		assert.Equal(t, how, s.Comparison.Operators[0].Reason+": "+s.Comparison.Operators[0].How, name)
	}
}

func TestCompareTakesTwoProfilesWithADevice(t *testing.T) {
	_, err := convertOutput(t, "--compare", "one.json")
	require.EqualError(t, err, "--compare takes two profiles (BEFORE AFTER), found 1")
}
