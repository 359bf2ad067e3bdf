// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"

	"github.com/otelgpu/otelgpu/internal/sinktest"
)

func TestRejectedSpansOfFilesArriveOnce(t *testing.T) {
	folder := t.TempDir()
	for name, text := range map[string]string{"a.json": job(1, 10), "b.json": job(100, 10), "c.json": "no profile"} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
	}
	sinktest.Receiver(t, sinktest.Input{Factory: NewFactory(), Lasts: 10 * time.Minute, Config: func() component.Config {
		cfg := createDefaultConfig().(*Config)
		cfg.Files.Include, cfg.Files.StableFor = []string{filepath.Join(folder, "*")}, 0
		cfg.Spans.BatchSpans, cfg.Spans.Detail = 4, DetailKernels
		return cfg
	}})
}
