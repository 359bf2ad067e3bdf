// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpureceiver

import (
	"testing"
	"time"

	"go.opentelemetry.io/collector/component"

	"github.com/otelgpu/otelgpu/internal/sinktest"
)

func TestRejectedPointsAndRecordsOfDevicesArriveOnce(t *testing.T) {
	sinktest.Receiver(t, sinktest.Input{Factory: NewFactory(), Lasts: 5*time.Minute + 50*time.Millisecond, Config: func() component.Config {
		cfg := createDefaultConfig().(*Config)
		cfg.Source, cfg.Simulated.Devices = sourceSimulated, 2
		cfg.CollectionInterval = 9973 * time.Millisecond // not at the time of a sample, nor is the end
		return cfg
	}})
}
