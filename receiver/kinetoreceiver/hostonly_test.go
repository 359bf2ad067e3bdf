// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/recorded"
	"github.com/otelgpu/otelgpu/semconv"
)

// A range starts inside the frame that opens it, and outlives it: the thread was in ranges for the
// length of their union.
func TestCrossingRangesOfTheHostCountOnce(t *testing.T) {
	st, err := ReadFile(t.Context(), recorded.Path(t, "cases", "profiles", "hostonly_min.json"), Options{},
		func(context.Context, ptrace.Traces) error { return nil })
	require.NoError(t, err)
	require.NotNil(t, st.Host)
	sum := time.Duration(0)
	for _, at := range st.Host.Where {
		sum += at.Time
	}
	assert.Equal(t, 1_077_962*time.Nanosecond, sum.Round(time.Nanosecond))
}

// 32 modules call one function of the program, each for a time below the threshold.
func TestAFunctionOfManyModulesIsOneEntry(t *testing.T) {
	var events []string
	add := func(cat, name string, tid int, from, length float64, args string) {
		events = append(events, fmt.Sprintf(`{"ph":"X","cat":%q,"name":%q,"pid":%d,"tid":%d,"ts":%.3f,"dur":%.3f,"args":{%s}}`,
			cat, name, map[bool]int{true: 0, false: 9}[cat == "kernel"], tid, from, length, args))
	}
	for i := range 32 {
		at := 1000 + 1000*float64(i)
		add("python_function", fmt.Sprintf("nn.Module: MoELayer_%d", i), 9, at, 900, "")
		add("python_function", "moe/router.py(33): route_on_cpu", 9, at+10, 560, "")
		add("python_function", "<built-in method sort of list object>", 9, at+20, 540, "")
		add("cuda_runtime", "cudaLaunchKernel", 9, at+580, 5, fmt.Sprintf(`"correlation":%d`, i+1))
		add("kernel", "gemm", 7, at+590, 400, fmt.Sprintf(`"device":0,"stream":7,"correlation":%d`, i+1))
	}
	path := filepath.Join(t.TempDir(), "modules.json")
	require.NoError(t, os.WriteFile(path, []byte(`{"traceEvents":[`+strings.Join(events, ",")+`]}`), 0o600))
	v := statsOf(t, path).Devices[0].Findings[0]
	assert.Equal(t, semconv.GPUFindingKindHostWork, v.Kind)
	assert.Contains(t, v.Chain[0], "moe/router.py(33): route_on_cpu")
	require.NotEmpty(t, v.Where)
	assert.Equal(t, "nn.Module: MoELayer", v.Where[0].In)
}
