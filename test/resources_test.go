// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/connector/connectortest"
	"go.opentelemetry.io/collector/connector/xconnector"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/exporter/exportertest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/connector/gpumetricsconnector"
	"github.com/otelgpu/otelgpu/connector/gpuprofilesconnector"
	"github.com/otelgpu/otelgpu/connector/gpurequestsconnector"
	"github.com/otelgpu/otelgpu/exporter/gpupageexporter"
	"github.com/otelgpu/otelgpu/semconv"
)

// largeText is a request of a service with work of each kind, and a value of that size.
func largeText(i int, attribute string, size int, resource bool) ptrace.Traces {
	td := ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	rs.Resource().Attributes().PutStr("service.name", fmt.Sprint("service ", i))
	rs.Resource().Attributes().PutStr("gpu.job.id", "job")
	rs.Resource().Attributes().PutInt("gpu.job.rank", int64(i))
	long := fmt.Sprint(i, strings.Repeat("x", size))
	if resource {
		rs.Resource().Attributes().PutStr(attribute, long)
	}
	now := time.Now()
	for n, kind := range []string{"section", "kernel", "step", "collective", "request"} {
		s := rs.ScopeSpans().AppendEmpty().Spans().AppendEmpty()
		s.SetName(kind)
		s.SetTraceID(pcommon.TraceID{1, byte(i), byte(i >> 8)})
		s.SetSpanID(pcommon.SpanID{1, byte(i), byte(i >> 8), byte(n)})
		s.SetStartTimestamp(pcommon.NewTimestampFromTime(now.Add(-time.Second)))
		s.SetEndTimestamp(pcommon.NewTimestampFromTime(now))
		s.Attributes().PutStr("gpu.operation.type", kind)
		s.Attributes().PutStr("hw.id", "GPU-a")
		s.Attributes().PutDouble("gpu.energy", 7)
		if !resource {
			s.Attributes().PutStr(attribute, long)
		}
		link := s.Links().AppendEmpty()
		link.SetTraceID(pcommon.TraceID{2, byte(i), byte(i >> 8)})
		link.SetSpanID(pcommon.SpanID{2, byte(i), byte(i >> 8)})
	}
	return td
}

type tracesComponent interface {
	component.Component
	consumer.Traces
}

// A sender with long values must not fill the memory with what components remember.
func TestComponentsRememberLittleOfLongValues(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	ctx := context.Background()
	var attributes []string
	for range 30 { // components read them from resources
		attributes = append(attributes, "service.name", "service.instance.id", "service.version", "service.namespace",
			"host.name", "host.id", "process.command_line", "gpu.job.id", "hw.model")
	}
	for _, a := range semconv.Attributes() {
		attributes = append(attributes, a.Name)
	}
	for name, create := range map[string]func() (tracesComponent, error){
		"gpu_metrics": func() (tracesComponent, error) {
			f := gpumetricsconnector.NewFactory()
			return f.CreateTracesToMetrics(ctx, connectortest.NewNopSettings(f.Type()), f.CreateDefaultConfig(),
				consumertest.NewNop())
		},
		"gpu_requests": func() (tracesComponent, error) {
			f := gpurequestsconnector.NewFactory()
			return f.CreateTracesToTraces(ctx, connectortest.NewNopSettings(f.Type()), f.CreateDefaultConfig(),
				consumertest.NewNop())
		},
		"gpu_profiles": func() (tracesComponent, error) {
			f := gpuprofilesconnector.NewFactory().(xconnector.Factory)
			return f.CreateTracesToProfiles(ctx, connectortest.NewNopSettings(f.Type()), f.CreateDefaultConfig(),
				consumertest.NewNop())
		},
		"gpu_page": func() (tracesComponent, error) {
			f := gpupageexporter.NewFactory()
			cfg := f.CreateDefaultConfig().(*gpupageexporter.Config)
			cfg.NetAddr.Endpoint = "127.0.0.1:0"
			return f.CreateTraces(ctx, exportertest.NewNopSettings(f.Type()), cfg)
		},
	} {
		t.Run(name, func(t *testing.T) {
			remembered := func(size int) int64 {
				c, err := create()
				require.NoError(t, err)
				require.NoError(t, c.Start(ctx, componenttest.NewNopHost()))
				var before, after runtime.MemStats
				runtime.GC()
				runtime.GC() // frees what pools kept from earlier tests
				runtime.ReadMemStats(&before)
				for i, attribute := range attributes {
					require.NoError(t, c.ConsumeTraces(ctx, largeText(2*i, attribute, size, true)))
					require.NoError(t, c.ConsumeTraces(ctx, largeText(2*i+1, attribute, size, false)))
				}
				runtime.GC()
				runtime.GC()
				runtime.ReadMemStats(&after)
				require.NoError(t, c.Shutdown(ctx))
				return int64(after.HeapAlloc) - int64(before.HeapAlloc)
			}
			const limit = 8 << 20
			var short, more int64
			for range 3 { // other tests' memory that is freed meanwhile counts, too
				short = remembered(10)
				if more = remembered(500_000) - short; more < limit {
					break
				}
			}
			assert.Less(t, more, int64(limit), "of %d MB", len(attributes))
			t.Logf("%d kB, %d kB more of long values", short>>10, more>>10)
		})
	}
}
