// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package heldoutjobs

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/profiletrace"
	"github.com/otelgpu/otelgpu/internal/recorded"
	"github.com/otelgpu/otelgpu/receiver/kinetoreceiver"
	"github.com/otelgpu/otelgpu/receiver/nsysreceiver"
)

// publicTruth is what is true of a file made from a public report, in µs.
type publicTruth struct {
	Kernels   int64   `json:"kernels"`
	Time      float64 `json:"kernel_time_us"`
	Busy      float64 `json:"busy_us"`
	Copies    *int64  `json:"copies"`
	CopyTime  float64 `json:"copy_time_us"`
	CopyBytes int64   `json:"copy_bytes"`
	Steps     int64   `json:"steps"`
	ByName    map[string]struct {
		Kernels int64   `json:"kernels"`
		Time    float64 `json:"kernel_time_us"`
	} `json:"by_name"`
}

// The right value of a file is not always what is true of the job: what the file does not record is
// named instead.
var namedInstead = map[string]struct {
	fault   string // part of a message about the file
	refused bool   // the file is not read
	edit    func(x *publicTruth)
}{
	"ascend_trace_view":        {"Ascend", true, nil},
	"jax_gpu":                  {"JAX", true, nil},
	"lines":                    {"line", true, nil},
	"metadata_only":            {"", false, nil}, // convert has nothing to write
	"interleaved_ranks":        {"only the beginning could be read: broken JSON at byte 20003", false, func(x *publicTruth) { x.Kernels, x.Time, x.Busy = 26, 5200, 5200 }},
	"nsys_startend_only":       {"", false, func(x *publicTruth) { x.Steps = 0 }}, // ranges without a number are no steps
	"utf16":                    {"iconv", true, nil},
	"clock_1e14ns":             {"", false, func(x *publicTruth) { x.Kernels, x.Time, x.Busy = 75, 15000, 15000 }},
	"negative_kernel":          {"", false, func(x *publicTruth) { x.Kernels, x.Time, x.Busy = 77, 15400, 15400 }},
	"graph_kernels_unrecorded": {"", false, func(x *publicTruth) { x.Kernels, x.Time, x.Busy = 200, 1800, 1800 }},
	"proton_ns":                {"nanoseconds", false, nil},
}

func TestPublicCasesHaveTheirRightValues(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(recorded.Path(t, "cases", "profiles"), "*.truth.json"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		base := strings.TrimSuffix(file, ".truth.json")
		name := filepath.Base(base)
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			var want publicTruth
			require.NoError(t, json.Unmarshal(text, &want))
			special := namedInstead[name]
			if special.edit != nil {
				special.edit(&want)
			}
			st, err := readPublic(t, base)
			if special.refused {
				require.ErrorContains(t, err, special.fault)
				return
			}
			require.NoError(t, err)
			assert.Contains(t, strings.Join(st.Faults, "\n"), special.fault)
			var busy, kernelTime, copyTime time.Duration
			var copied int64
			for i := range st.Devices {
				d := &st.Devices[i]
				busy += d.Parts.Computing + d.Parts.CommExposed + d.Parts.CopyExposed
				for _, k := range d.ByKernel {
					kernelTime += k.Time
					if w, ok := want.ByName[k.Name]; ok {
						assert.Equal(t, w.Kernels, k.Count, k.Name)
						assert.InDelta(t, w.Time, micros(k.Time), 0.01, k.Name)
					}
				}
				for _, c := range d.Copies {
					copyTime, copied = copyTime+c.Time, copied+c.Bytes
				}
			}
			assert.Equal(t, want.Kernels, st.Kernels)
			assert.InDelta(t, want.Time, micros(kernelTime), 0.01)
			assert.InDelta(t, want.Busy, micros(busy), 0.01)
			if want.Copies != nil {
				assert.Equal(t, *want.Copies, st.Copies)
				assert.InDelta(t, want.CopyTime, micros(copyTime), 0.01)
				assert.Equal(t, want.CopyBytes, copied)
			}
			if want.Steps > 0 {
				assert.Equal(t, want.Steps, st.Steps)
			}
		})
	}
}

func micros(d time.Duration) float64 { return math.Round(float64(d)) / 1000 }

func readPublic(t *testing.T, base string) (profiletrace.Stats, error) {
	t.Helper()
	none := func(context.Context, ptrace.Traces) error { return nil }
	for _, end := range []string{".sqlite", ".pt.trace.json", ".json"} {
		path := base + end
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			continue
		}
		if end == ".sqlite" {
			return nsysreceiver.ReadFile(t.Context(), path, nsysreceiver.Options{}, none)
		}
		st, err := kinetoreceiver.ReadFile(t.Context(), path, kinetoreceiver.Options{Partial: true}, none)
		return st.Stats, err
	}
	return profiletrace.Stats{}, os.ErrNotExist
}
