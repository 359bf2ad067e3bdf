// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuprofilesconnector

import (
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/sinktest"
)

func TestRejectedProfilesArriveOnce(t *testing.T) {
	f := NewFactory()
	sinktest.Connector(t, f, f.CreateDefaultConfig, func(round byte) []ptrace.Traces {
		td := traces(time.Now())
		for _, s := range td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().All() {
			trace := s.TraceID()
			trace[1] = round
			s.SetTraceID(trace)
		}
		return []ptrace.Traces{td}
	})
}
