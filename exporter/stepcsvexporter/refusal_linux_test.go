// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package stepcsvexporter

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/exporter/exportertest"
	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/otelgpu/otelgpu/exporter/stepcsvexporter/internal/metadata"
	"github.com/otelgpu/otelgpu/internal/metrictest"
	"github.com/otelgpu/otelgpu/internal/sinktest"
	"github.com/otelgpu/otelgpu/internal/spanfiles/chrometrace/chrometracetest"
)

// A batch that is rejected because the disk is full is sent again, as gpu_join does: each step is
// written once and counted once.
func TestStepsThatAFullDiskRejectsAreWrittenAndCountedOnce(t *testing.T) {
	limit, ok := chrometracetest.FullDisk(t)
	if !ok {
		return
	}
	cfg := createDefaultConfig().(*Config)
	cfg.Path = filepath.Join(t.TempDir(), "steps.csv")
	cfg.Loop, cfg.AllRanks = "train", true
	tel := componenttest.NewTelemetry()
	set := exportertest.NewNopSettings(metadata.Type)
	set.TelemetrySettings = tel.NewTelemetrySettings()
	e, err := NewFactory().CreateTraces(t.Context(), set, cfg)
	require.NoError(t, err)
	require.NoError(t, e.Start(t.Context(), componenttest.NewNopHost()))
	sinktest.Send(t, e, steps(0, "train", 1, 1))
	info, err := os.Stat(cfg.Path)
	require.NoError(t, err)

	td := steps(0, "train", 2, 3)
	for i, s := range td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().All() {
		s.SetTraceID(pcommon.TraceID{1}) // a rejected step is not taken for one that was written
		s.SetSpanID(pcommon.SpanID{byte(i + 1)})
	}
	steps(0, "eval", 1, 1).ResourceSpans().MoveAndAppendTo(td.ResourceSpans())
	td.MarkReadOnly()
	free := limit(uint64(info.Size()) + 4)
	for range 3 {
		err = e.ConsumeTraces(t.Context(), td)
		var part consumererror.Traces
		require.True(t, errors.As(err, &part))
		require.False(t, consumererror.IsPermanent(err))
		td = part.Data()
	}
	free()
	sinktest.Send(t, e, td)
	require.NoError(t, e.Shutdown(t.Context()))
	assert.Len(t, lines(t, cfg.Path), 1+3, "a header and each step")
	assert.Equal(t, map[string]float64{"": 3}, metrictest.Sum(t, tel, "otelcol_exporter_step_csv_rows"))
	assert.Equal(t, map[string]float64{"reason=loop": 2, "reason=no_duration": 2},
		metrictest.Sum(t, tel, "otelcol_exporter_step_csv_steps_skipped"))
	require.NoError(t, tel.Shutdown(t.Context()))
}
