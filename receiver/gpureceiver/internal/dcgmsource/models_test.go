// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64) && !gpuspan_static

package dcgmsource

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/gpuquantity"
	"github.com/otelgpu/otelgpu/internal/recorded"
)

var update = flag.Bool("update", false, "write the golden files again")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", "models", name+".txt")
	if *update {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err, "run with -update")
	assert.Equal(t, string(want), got)
}

// TestModelsOfTheFieldLists opens each model with the fields that it was recorded to support.
func TestModelsOfTheFieldLists(t *testing.T) {
	dir := recorded.Path(t, "dcgm/field-support")
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	require.NoError(t, err)
	require.Len(t, files, 7)
	for _, f := range files {
		name := strings.TrimSuffix(filepath.Base(f), ".yaml")
		t.Run(name, func(t *testing.T) {
			unsupported := unsupportedIDs(t, f)
			m := machine{"gpus": 1, "now": baseTime, "gpm": 1}
			var list []string
			profiling := false
			for _, id := range unsupported {
				list = append(list, fmt.Sprint(id))
				profiling = profiling || id == 1002
			}
			if profiling {
				m["gpm"] = 0 // no profiling
			}
			list = append(list, "1091", "1092", "1611", "0")
			m["unsupported"] = strings.Join(list, ",")
			s := open(t, m, settings())
			read(t, s)
			m.advance(t, time.Second)
			b := read(t, s)
			var got []string
			for q := range gpuquantity.Num {
				if len(of(b, 0, gpuquantity.Quantity(q))) > 0 {
					got = append(got, gpuquantity.Quantity(q).String())
				}
			}
			golden(t, name, strings.Join(got, "\n")+"\n")
		})
	}
}

// fieldIDs are the fields of the lists that the source watches.
var fieldIDs = map[string]uint16{
	"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": 156, "DCGM_FI_DEV_POWER_USAGE": 155, "DCGM_FI_DEV_GPU_UTIL": 203,
	"DCGM_FI_DEV_FB_USED":    252,
	"DCGM_FI_PROF_SM_ACTIVE": 1002, "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": 1004, "DCGM_FI_PROF_DRAM_ACTIVE": 1005,
	"DCGM_FI_PROF_PIPE_FP64_ACTIVE": 1006, "DCGM_FI_PROF_PIPE_FP32_ACTIVE": 1007, "DCGM_FI_PROF_PIPE_FP16_ACTIVE": 1008,
	"DCGM_FI_PROF_PCIE_TX_BYTES": 1009, "DCGM_FI_PROF_PCIE_RX_BYTES": 1010,
	"DCGM_FI_PROF_NVLINK_TX_BYTES": 1011, "DCGM_FI_PROF_NVLINK_RX_BYTES": 1012,
}

func unsupportedIDs(t *testing.T, path string) (ids []uint16) {
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	in := false
	for lines := bufio.NewScanner(f); lines.Scan(); {
		in = in || strings.HasPrefix(lines.Text(), "unsupported_fields")
		if id, ok := fieldIDs[strings.TrimPrefix(strings.TrimSpace(lines.Text()), "- ")]; in && ok {
			ids = append(ids, id)
		}
	}
	return ids
}
