// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package benchmarks

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/connector/connectortest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/connector/gpumetricsconnector"
)

// The page of the upstream prometheus exporter with all metrics of gpu_metrics passes the linter of
// `promtool check metrics`.
func TestScrapeIsCleanForPromtool(t *testing.T) {
	exp, page := prometheusPage(t)

	cf := gpumetricsconnector.NewFactory()
	ccfg := cf.CreateDefaultConfig()
	c, err := cf.CreateTracesToMetrics(context.Background(), connectortest.NewNopSettings(cf.Type()), ccfg, exp)
	require.NoError(t, err)
	require.NoError(t, c.Start(context.Background(), componenttest.NewNopHost()))
	for step := range 40 { // fewer do not prove that a rank is late
		for rank := range 4 {
			require.NoError(t, c.ConsumeTraces(context.Background(), everything(rank, step)))
		}
	}
	require.NoError(t, c.Shutdown(context.Background()))

	text, problems := page()
	for _, name := range []string{
		"gpu_operation_count_total", "gpu_operation_duration_seconds_bucket", "gpu_operation_io_bytes_total",
		"gpu_operation_flops_total", "gpu_operation_items_total",
		"gpu_operation_energy_joules_total", "gpu_operation_item_energy_joules", "gpu_step_duration_seconds_count",
		"gpu_step_phase_duration_seconds_sum",
		"gpu_step_items_total", "gpu_step_item_rate", "gpu_activity_time_seconds_total", "gpu_straggler_score",
		"gpu_straggler_delay_seconds",
	} {
		assert.Contains(t, string(text), "\n"+name, "%s is missing", name)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "gpu_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
	if t.Failed() {
		t.Log(string(text))
	}
}

// everything returns a step of one rank that produces every metric of the connector; rank 3 is
// slow.
func everything(rank, step int) ptrace.Traces {
	zero := 1_700_000_000_000_000_000 + pcommon.Timestamp(step)*100_000_000
	td := ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	ra := rs.Resource().Attributes()
	ra.PutStr("service.name", "trainer")
	ra.PutStr("service.instance.id", fmt.Sprint(rank))
	ra.PutStr("gpu.job.id", "j")
	ra.PutInt("gpu.job.rank", int64(rank))
	ra.PutInt("gpu.job.world_size", 4)
	ss := rs.ScopeSpans().AppendEmpty()
	add := func(name string, start, end uint64, attrs map[string]any) {
		s := ss.Spans().AppendEmpty()
		s.SetName(name)
		s.SetTraceID([16]byte{1, byte(rank), byte(step)})
		s.SetSpanID([8]byte{byte(ss.Spans().Len())})
		s.SetStartTimestamp(zero + pcommon.Timestamp(start))
		s.SetEndTimestamp(zero + pcommon.Timestamp(end))
		_ = s.Attributes().FromRaw(attrs)
	}
	slow := 0.0
	if rank == 3 {
		slow = 0.03
	}
	add("prefill", 0, 2_000_000, map[string]any{
		"gpu.operation.type": "section", "gpu.operation.category": "prefill", "hw.id": "GPU-a", "gpu.timing.status": "ok",
		"gpu.io.size":    1000,
		"gpu.flop.count": 5e9, "gpu.flop.precision": "bf16", "gpu.operation.items": 128, "gpu.operation.item.type": "token",
		"gpu.energy": 0.5,
	})
	add("copy", 0, 1_000_000, map[string]any{
		"gpu.operation.type": "copy", "gpu.copy.direction": "host_to_device",
		"gpu.io.size": 77,
	})
	add("step", 0, 100_000_000, map[string]any{
		"gpu.operation.type": "step", "gpu.operation.name": "train", "gpu.step.index": step, "gpu.step.duration": 0.1,
		"gpu.step.items": 64, "gpu.step.item.type": "image",
		"gpu.step.phase.duration.forward": 0.04 + slow, "gpu.step.phase.duration.comm": 0.06 - slow, "gpu.energy": 32.0,
	})
	for i := range uint64(3) {
		add("gemm", i*1000, i*1000+600, map[string]any{
			"gpu.operation.type": "kernel", "gpu.timing.source": "cupti",
			"hw.id": "GPU-a", "gpu.start.delay": 1e-7,
		})
	}
	return td
}
