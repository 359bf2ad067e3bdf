// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package collectivesreceiver

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configoptional"

	"github.com/otelgpu/otelgpu/internal/recorded"
	"github.com/otelgpu/otelgpu/internal/sinktest"
)

func TestRejectedMetricsAndFindingsOfCollectivesArriveOnce(t *testing.T) {
	folder := t.TempDir()
	files, err := filepath.Glob(filepath.Join(recorded.Path(t, "flight-recorder-nccl", "missing-v2.10"), "*rank_*"))
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		if filepath.Ext(file) == "" {
			require.NoError(t, os.WriteFile(filepath.Join(folder, filepath.Base(file)), text, 0o600))
		}
	}
	sinktest.Receiver(t, sinktest.Input{
		Factory: NewFactory(), Lasts: 5 * time.Minute, Cumulative: true, Config: func() component.Config {
			cfg := createDefaultConfig().(*Config)
			cfg.FlightRecorder = configoptional.Some(FlightRecorderConfig{
				Include: []string{filepath.Join(folder, "*")}, Settle: 15 * time.Second, MaxAge: 10 * time.Minute,
			})
			return cfg
		},
	})
}
