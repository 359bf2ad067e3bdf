// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chrometraceexporter

import (
	"errors"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/exporter/exportertest"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/exporter/chrometraceexporter/internal/metadata"
	"github.com/otelgpu/otelgpu/internal/spanfiles/chrometrace/chrometracetest"
)

// The part of a batch that is rejected because the disk is full is sent again, as gpu_join does:
// each span is in the file once.
func TestSpansThatAFullDiskRejectsAreWrittenOnce(t *testing.T) {
	limit, ok := chrometracetest.FullDisk(t)
	if !ok {
		return
	}
	cfg := config(t)
	traces, _, shutdown := start(t, cfg, exportertest.NewNopSettings(metadata.Type))
	td := ptrace.NewTraces()
	for trace := range byte(100) {
		service(trace + 1).ResourceSpans().MoveAndAppendTo(td.ResourceSpans())
	}
	td.MarkReadOnly()
	free := limit(20_000)
	var err error
	rest := td
	for range 20 {
		if err = traces.ConsumeTraces(t.Context(), rest); err == nil {
			continue // the writer has a buffer
		}
		require.False(t, consumererror.IsPermanent(err))
		if part, ok := errors.AsType[consumererror.Traces](err); ok {
			rest = part.Data()
		}
	}
	require.Error(t, err)
	free()
	require.NoError(t, traces.ConsumeTraces(t.Context(), rest))
	require.NoError(t, shutdown())
	data, err := os.ReadFile(cfg.Path)
	require.NoError(t, err)
	file, faults := chrometracetest.Read(data)
	require.Empty(t, faults)
	seen := map[string]int{}
	for _, r := range file.Of("X") {
		seen[r.Name]++
	}
	assert.NotEmpty(t, seen)
	for name, n := range seen {
		assert.Equal(t, 100, n, name)
	}
}
