// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"encoding/csv"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/recorded"
)

// Differences from TraceLens in FLOPs and bytes that the receiver's README explains.
var explained = map[string]string{
	"aten::_scaled_dot_product_flash_attention": "flops", // pairs on the diagonal
	"aten::copy_": "flops bytes", "aten::upsample_nearest1d": "flops",
	"aten::silu": "flops", "aten::sigmoid": "flops", "sgl_kernel::silu_and_mul": "flops",
	"aten::mean": "bytes", "aten::sum": "flops bytes", "aten::min": "bytes", "aten::max": "flops", "aten::argmax": "flops",
	"aten::add": "bytes", "aten::add_": "bytes", "aten::mul": "bytes", "aten::div": "bytes", // numbers
	"aten::_fused_rms_norm": "flops bytes", "aiter::_groupnorm_run": "flops bytes", "aten::cumsum": "bytes",
	"aten::convolution_backward":     "flops bytes", // one gradient of the two
	"aten::_fused_rms_norm_backward": "flops bytes", "aten::native_layer_norm_backward": "flops bytes",
	"aten::native_group_norm_backward": "flops bytes", "aten::native_batch_norm_backward": "flops bytes",
	"aten::miopen_batch_norm_backward": "flops bytes",
}

// TestReportsOfTraceLens compares each operator of the reports that accompany TraceLens' traces, by
// the inputs in the report.
func TestReportsOfTraceLens(t *testing.T) {
	root := recorded.Path(t, "kineto", "tracelens")
	var files []string
	for _, folder := range []string{"h100", "mi300", "perf_model", "torch_compile_triton", "inference"} {
		folder, err := filepath.EvalSymlinks(filepath.Join(root, folder))
		if err != nil {
			continue
		}
		require.NoError(t, filepath.WalkDir(folder, func(p string, _ fs.DirEntry, err error) error {
			if filepath.Base(p) == "unified_perf_summary.csv" {
				files = append(files, p)
			}
			return err
		}))
	}
	if len(files) == 0 {
		t.Skip("no reports (unified_perf_summary.csv) beside the traces")
	}
	same, other := 0, 0
	var in inputs
	for _, f := range files {
		for _, r := range reportRows(t, f) {
			name := r["name"]
			count := operators[name]
			if count == nil || r["GFLOPS"] == "" && r["Data Moved (MB)"] == "" {
				continue
			}
			w, ok := in.work(count, fromPython(r["Input type"]), fromPython(r["Input Dims"]), fromPython(r["Concrete Inputs"]))
			differs := ""
			if g, err := strconv.ParseFloat(r["GFLOPS"], 64); err == nil && math.Abs(w.FLOPs-g*1e9) > 1e-6*w.FLOPs+0.5 {
				differs = "flops"
			}
			if m, err := strconv.ParseFloat(r["Data Moved (MB)"], 64); err == nil &&
				math.Abs(float64(w.Read+w.Written)-m*(1<<20)) > 0.5 {
				differs += " bytes"
			}
			if !ok && r["GFLOPS"] != "" {
				differs = "unknown"
			}
			if differs == "" {
				same++
				continue
			}
			other++
			for word := range strings.FieldsSeq(differs) {
				assert.True(t, slices.Contains(strings.Fields(explained[name]), word), "%s of %s %s: %v, there %s GFLOP, %s MiB",
					word, name, r["Input Dims"], w, r["GFLOPS"], r["Data Moved (MB)"])
			}
		}
	}
	assert.Greater(t, same, other)
	t.Log(len(files), "reports,", same, "operators the same,", other, "with a reason")
}

func reportRows(t testing.TB, path string) (rows []map[string]string) {
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	all, err := csv.NewReader(f).ReadAll()
	require.NoError(t, err)
	for _, r := range all[1:] {
		m := map[string]string{}
		for i, k := range all[0] {
			m[k] = r[i]
		}
		rows = append(rows, m)
	}
	return rows
}

var trailingComma = regexp.MustCompile(`,\s*\]`)

// fromPython reads a tuple as JSON.
func fromPython(s string) []byte {
	s = strings.NewReplacer("(", "[", ")", "]", "'", `"`).Replace(s)
	return []byte(trailingComma.ReplaceAllString(s, "]"))
}
