// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package stepcsvexporter

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/exporter/exportertest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/exporter/stepcsvexporter/internal/metadata"
	"github.com/otelgpu/otelgpu/internal/sharedcomponent"
	"github.com/otelgpu/otelgpu/internal/sinktest"
)

func TestRepeatedStepsAreWrittenOnce(t *testing.T) {
	var feed []ptrace.Traces
	for n := range byte(20) {
		td := steps(0, "train", int64(2*n), int64(2*n+1))
		for i, s := range td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().All() {
			s.SetTraceID(pcommon.TraceID{n + 1})
			s.SetSpanID(pcommon.SpanID{byte(i + 1)})
		}
		feed = append(feed, td)
	}
	sinktest.Repeats(t, feed, func(t *testing.T) (func(ptrace.Traces) error, func() any) {
		cfg := createDefaultConfig().(*Config)
		cfg.Path = filepath.Join(t.TempDir(), "steps.csv")
		e, err := NewFactory().CreateTraces(t.Context(), exportertest.NewNopSettings(metadata.Type), cfg)
		require.NoError(t, err)
		require.NoError(t, e.Start(t.Context(), componenttest.NewNopHost()))
		return func(td ptrace.Traces) error { return e.ConsumeTraces(t.Context(), td) }, func() any {
			require.NoError(t, e.Shutdown(t.Context()))
			data, err := os.ReadFile(cfg.Path)
			require.NoError(t, err)
			return string(data)
		}
	})
}

// A write to a disk that does not respond holds the lock.
func TestAShutdownDoesNotWaitForAHangingDisk(t *testing.T) {
	s, err := newSink(createDefaultConfig().(*Config), exportertest.NewNopSettings(metadata.Type))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.mu.Lock()
	require.ErrorIs(t, s.shutdown(ctx), sharedcomponent.ErrRunning)
	s.mu.Unlock()
}
