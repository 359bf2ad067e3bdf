// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetricsconnector

import (
	"testing"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/sinktest"
)

func TestRejectedMetricsAndFindingsArriveOnce(t *testing.T) {
	sinktest.Connector(t, NewFactory(), func() component.Config {
		cfg := createDefaultConfig().(*Config)
		cfg.InstanceID = "me"
		return cfg
	}, func(round byte) (all []ptrace.Traces) {
		for index := range 12 {
			for rank := range 4 {
				backward := 30.
				if rank == 2 {
					backward = 45
				}
				td := trainStepAt(t, uint64(index)*100_000, rank, 4, int(round)*12+index, backward)
				s := td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0)
				id := s.SpanID()
				id[6], id[7] = round+1, byte(index)
				s.SetSpanID(id)
				all = append(all, td)
			}
		}
		return all
	})
}
