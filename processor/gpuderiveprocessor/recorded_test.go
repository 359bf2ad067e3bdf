// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuderiveprocessor

import (
	"context"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/conformance"
	"github.com/otelgpu/otelgpu/internal/recorded"
	"github.com/otelgpu/otelgpu/receiver/kinetoreceiver"
)

func recordedTraces(t *testing.T) (files []string) {
	require.NoError(t, filepath.WalkDir(recorded.Path(t, "kineto"), func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".json.gz") {
			files = append(files, path)
		}
		return err
	}))
	return files
}

// Compares copies on real devices with the peaks of the table: large ones, which do not fit into
// caches, never exceed them, and the largest within a V100 is near the peak. A wrong link, a wrong
// unit or a peak of both directions would fail.
func TestRecordedCopiesFitThePeaks(t *testing.T) {
	if testing.Short() {
		t.Skip("recorded traces are read without -short")
	}
	const large = 16 << 20
	compared, best := 0, 0.0
	for _, path := range recordedTraces(t) {
		d := newTestDeriver(t, nil)
		_, err := kinetoreceiver.ReadFile(t.Context(), path, kinetoreceiver.Options{Detail: kinetoreceiver.DetailKernels},
			func(_ context.Context, td ptrace.Traces) error {
				process(t, d, td)
				require.NoError(t, conformance.Traces(td), path)
				for _, rs := range td.ResourceSpans().All() {
					for _, ss := range rs.ScopeSpans().All() {
						for _, s := range ss.Spans().All() {
							size, _ := s.Attributes().Get("gpu.io.size")
							used, ok := s.Attributes().Get("gpu.io.utilization")
							if kind, _ := s.Attributes().Get("gpu.operation.type"); !ok || kind.Str() != "copy" || size.Int() < large {
								continue
							}
							compared++
							assert.LessOrEqual(t, used.Double(), 1.0, "%s: %v", path, s.Attributes().AsRaw())
							best = max(best, used.Double())
						}
					}
				}
				return nil
			})
		if err != nil {
			t.Logf("not read: %v", err)
		}
	}
	assert.Greater(t, compared, 10)
	// 238,682,112 bytes in 607 µs on a Tesla V100-SXM2-16GB of 900 GB/s.
	assert.InEpsilon(t, 2*238_682_112/607e-6/900e9, best, 1e-9)
}
