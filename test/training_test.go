// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/config"
	traces "github.com/otelgpu/otelgpu/internal/recorded"
)

// lensJob returns the recorded spans of a trainer, the start of the first one, and the end of the
// last one. Rank r is on the device devices[r].
func lensJob(t *testing.T, name string, devices []string) (all []ptrace.Traces, start, end time.Time) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(traces.Path(t, "nemo-lens", name), "traces.jsonl"))
	require.NoError(t, err)
	for line := range bytes.Lines(text) {
		td, err := new(ptrace.JSONUnmarshaler).UnmarshalTraces(line)
		require.NoError(t, err)
		for _, rs := range td.ResourceSpans().All() {
			attrs := rs.Resource().Attributes()
			for _, prefix := range []string{"dl", "nv"} {
				if v, ok := attrs.Get(prefix + ".gpu.uuid"); ok {
					v.SetStr(devices[lensRank(attrs)])
				}
			}
		}
		each(td, func(s ptrace.Span) {
			if from := s.StartTimestamp().AsTime(); start.IsZero() || from.Before(start) {
				start = from
			}
			if to := s.EndTimestamp().AsTime(); to.After(end) {
				end = to
			}
		})
		all = append(all, td)
	}
	return all, start, end
}

func lensRank(attrs pcommon.Map) int64 {
	for _, key := range []string{"nv.dl.rank", "dl.rank"} {
		if v, ok := attrs.Get(key); ok {
			return v.Int()
		}
	}
	return -1
}

// The spans of unmodified trainers, of two generations of names and once with equal IDs on all
// ranks, pass the ready pipeline. The power of each device is constant, so that the energy of each
// step and checkpoint is known, and what is outside of them.
func TestTheTrainingPipelineGivesStepsTheEnergyOfTheirDevices(t *testing.T) {
	if testing.Short() {
		t.Skip("the Collector is not built and run with -short")
	}
	t.Parallel()
	dir := t.TempDir()
	watts := []float64{300, 350, 400, 450, 500, 550, 600, 650}
	ids := recordDevices(t, filepath.Join(dir, "devices.gpurec"), watts)
	ready, err := config.YAML("training")
	require.NoError(t, err)
	p := newPorts(t)
	collector := startCollector(t, buildCollector(t), append(p.env, "OTELGPU_SETTLE=2s",
		"OTELGPU_INSPECTOR="+dir, "OTELGPU_DUMPS="+dir), ready, fmt.Sprintf(`
receivers:
  gpu: {source: replay, replay: {file: %q}}
  collectives: {interval: 1s, flight_recorder: {settle: 2s}}
processors:
  gpu_derive:
    mappings:
      - span: "*.iteration"
        attributes: [{value: "100e12", to: gpu.step.model.flop.count}, {value: bf16, to: gpu.flop.precision}]
connectors:
  gpu_goodput: {flush_interval: 1s}
exporters:
  file: {path: %q, flush_interval: 100ms}
service:
  pipelines:
    traces: {exporters: [gpu_metrics, gpu_goodput, file]}
`, filepath.Join(dir, "devices.gpurec"), filepath.Join(dir, "spans.json")))
	require.NoError(t, collector.WaitFor("Everything is ready", time.Minute))
	begun := time.Now()

	type span struct {
		rank  int
		name  string
		start pcommon.Timestamp
	}
	lengths := map[span]float64{} // s, of the spans of the trainers
	at := begun.Add(time.Second)
	var send []ptrace.Traces
	for i, name := range []string{"b-pypi-idcollision", "c-perstep-late"} {
		all, start, end := lensJob(t, name, ids[4*i:])
		later := at.Sub(start)
		at = end.Add(later).Add(100 * time.Millisecond)
		for _, td := range all {
			for _, rs := range td.ResourceSpans().All() {
				rank := 4*i + int(lensRank(rs.Resource().Attributes()))
				for _, ss := range rs.ScopeSpans().All() {
					for _, s := range ss.Spans().All() {
						s.SetStartTimestamp(pcommon.NewTimestampFromTime(s.StartTimestamp().AsTime().Add(later)))
						s.SetEndTimestamp(pcommon.NewTimestampFromTime(s.EndTimestamp().AsTime().Add(later)))
						lengths[span{rank, s.Name(), s.StartTimestamp()}] = float64(s.EndTimestamp()-s.StartTimestamp()) / 1e9
					}
				}
			}
			send = append(send, td)
		}
	}
	time.Sleep(time.Until(at)) // later spans would have no samples
	for _, td := range send {
		export(t, p.otlp, []*sender{{td: td}})
	}

	steps := 0
	joules, want := make([]float64, len(ids)), make([]float64, len(ids))
	require.Eventually(t, func() bool {
		steps = 0
		clear(joules)
		clear(want)
		b, _ := os.ReadFile(filepath.Join(dir, "spans.json"))
		for line := range bytes.Lines(b) {
			td, err := new(ptrace.JSONUnmarshaler).UnmarshalTraces(line)
			if err != nil {
				return false
			}
			for _, rs := range td.ResourceSpans().All() {
				device := int(lensRank(rs.Resource().Attributes()))
				if _, ok := rs.Resource().Attributes().Get("nv.dl.rank"); ok {
					device += 4
				}
				for _, ss := range rs.ScopeSpans().All() {
					for _, s := range ss.Spans().All() {
						operation, _ := s.Attributes().AsRaw()["gpu.operation.name"].(string)
						length := lengths[span{device, s.Name(), s.StartTimestamp()}]
						if operation != "train" && operation != "checkpoint" || length < 1e-3 {
							continue
						}
						want[device] += length * watts[device]
						joules[device] += value(s, "gpu.energy")
						if operation == "train" {
							steps++
							assert.InEpsilon(t, length*watts[device], value(s, "gpu.energy"), 1e-3)
							assert.InEpsilon(t, 100e12/(length*989e12), value(s, "gpu.step.mfu"), 0.01)
						}
					}
				}
			}
		}
		return steps == 20+32
	}, time.Minute, 200*time.Millisecond, "%s", collector.Output())
	for i := range ids {
		assert.InEpsilon(t, want[i], joules[i], 1e-3, "device %d", i)
	}

	// The example hangs for 325 s, repeats 20 steps after a kill, and waits for a late rank.
	out, err := exec.CommandContext(t.Context(), "python3", filepath.Join("..", "examples", "hang", "job.py"),
		"--otlp", "http://"+p.http, "--dumps", filepath.Join(dir, "demo-job"), "--pause", "0").CombinedOutput()
	require.NoError(t, err, "%s", out)
	bucket := func(name string) []string { return []string{`gpu_job_time_seconds{`, `"demo-job"`, `"` + name + `"`} }
	values := []struct {
		of   []string
		want float64
	}{
		{bucket("hang"), 4 * 325},
		{bucket("lost"), 4 * 20},
		{bucket("idle"), 4 * 10},
		{bucket("startup"), 4 * 70},
		{bucket("checkpoint"), 4 * 15},
		{bucket("rank_wait"), 0.3 * (299 + 20 - 1)},
		{[]string{"gpu_job_restarts{", "demo-job"}, 1},
		{[]string{"gpu_job_hangs_total{", `"missing"`, `gpu_job_rank="2"`}, 1},
	}
	require.Eventually(t, func() bool {
		page := metricsPage(t, p.metrics)
		for _, v := range values {
			found := false
			for line := range strings.Lines(page) {
				if slices.ContainsFunc(v.of, func(part string) bool { return !strings.Contains(line, part) }) {
					continue
				}
				got, err := strconv.ParseFloat(line[strings.LastIndex(line, " ")+1:len(line)-1], 64)
				require.NoError(t, err)
				found = math.Abs(got-v.want) < 1e-3*v.want
			}
			if !found {
				return false
			}
		}
		return true
	}, time.Minute, 200*time.Millisecond, "%s", collector.Output())
	assert.Contains(t, collector.Output(), "rank 2 has not entered all_reduce 11 of default_pg")
}
