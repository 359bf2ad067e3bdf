// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package xplanereceiver

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
	for name, b := range map[string][]byte{"a.xplane.pb": profile(), "b.xplane.pb": []byte("no profile")} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), b, 0o600))
	}
	sinktest.Receiver(t, sinktest.Input{Factory: NewFactory(), Lasts: 10 * time.Minute, Config: func() component.Config {
		cfg := createDefaultConfig().(*Config)
		cfg.Files.Include, cfg.Files.StableFor = []string{filepath.Join(folder, "*")}, 0
		cfg.Spans.BatchSpans = 2
		return cfg
	}})
}
