// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpurequestsconnector

import (
	"testing"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/sinktest"
)

func TestRejectedUsageRecordsAndMetricsArriveOnce(t *testing.T) {
	sinktest.Connector(t, NewFactory(), func() component.Config {
		cfg := createDefaultConfig().(*Config)
		cfg.InstanceID = "me"
		return cfg
	}, func(round byte) []ptrace.Traces {
		first, second := served(t, 2*round+1), served(t, 2*round+2)
		return []ptrace.Traces{first, second}
	})
}
