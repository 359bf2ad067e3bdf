// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package nsysreceiver

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"

	"github.com/otelgpu/otelgpu/internal/profiletrace/emit"
	"github.com/otelgpu/otelgpu/internal/sinktest"
)

func TestRejectedSpansOfFilesArriveOnce(t *testing.T) {
	folder := t.TempDir()
	statements := []string{strings0, strings1, kernel0, session0, session1}
	for i := range 20 {
		statements = append(statements, fmt.Sprintf(
			"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (%d, %d, 0, 7, 9, 67108864, 1, 2, 3, 4, 32, 1, 1, 40, 100, 28, 5, 6)",
			1000*i, 1000*i+500))
	}
	require.NoError(t, os.Rename(export(t, statements...), filepath.Join(folder, "a.sqlite")))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "b.sqlite"), []byte("not a database"), 0o600))
	sinktest.Receiver(t, sinktest.Input{Factory: NewFactory(), Lasts: 10 * time.Minute, Config: func() component.Config {
		cfg := createDefaultConfig().(*Config)
		cfg.Files.Include, cfg.Files.StableFor = []string{filepath.Join(folder, "*")}, 0
		cfg.Spans.BatchSpans, cfg.Spans.Detail = 4, emit.LevelKernels
		return cfg
	}})
}
