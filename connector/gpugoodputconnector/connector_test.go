// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpugoodputconnector

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/connector/connectortest"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/extension/extensiontest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/processor/processortest"

	"github.com/otelgpu/otelgpu/connector/gpugoodputconnector/internal/metadata"
	"github.com/otelgpu/otelgpu/extension/gpusamplesextension"
	"github.com/otelgpu/otelgpu/internal/configtest"
	"github.com/otelgpu/otelgpu/internal/conformance"
	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/jobspans"
	"github.com/otelgpu/otelgpu/internal/metrictest"
	"github.com/otelgpu/otelgpu/internal/recorded"
	"github.com/otelgpu/otelgpu/processor/gpuderiveprocessor"
)

func TestEveryKeyIsRead(t *testing.T) {
	got, err := configtest.Load[Config](t, "gpu_goodput/all", createDefaultConfig)
	require.NoError(t, err)
	assert.Equal(t, &Config{
		Samples: new(component.MustNewID("gpu_samples")), FlushInterval: 5 * time.Second, Expiry: time.Hour, MaxJobs: 3,
		Spans: []SpanConfig{{Name: "warm*", Bucket: "compilation"}},
	}, got)
	_, err = configtest.Load[Config](t, "gpu_goodput/bad", createDefaultConfig)
	for _, text := range []string{"`max_jobs`", "`spans::0::name`", "`spans::0::bucket` must be one of startup, productive,"} {
		assert.ErrorContains(t, err, text)
	}
}

func newTest(t *testing.T, edit func(*Config)) (*gpuGoodput, *consumertest.MetricsSink, *componenttest.Telemetry) {
	cfg := createDefaultConfig().(*Config)
	edit(cfg)
	sink := new(consumertest.MetricsSink)
	tel := componenttest.NewTelemetry()
	set := connectortest.NewNopSettings(metadata.Type)
	set.TelemetrySettings = tel.NewTelemetrySettings()
	c, err := newConnector(cfg, set, sink)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, tel.Shutdown(context.Background())) })
	return c, sink, tel
}

// account returns the newest points by job and bucket.
func account(t *testing.T, md pmetric.Metrics) map[string]map[string]float64 {
	require.NoError(t, conformance.Metrics(md))
	out := map[string]map[string]float64{}
	for _, m := range md.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().All() {
		for _, p := range m.Sum().DataPoints().All() {
			job, _ := p.Attributes().Get("gpu.job.id")
			if out[job.Str()] == nil {
				out[job.Str()] = map[string]float64{}
			}
			if bucket, ok := p.Attributes().Get("gpu.job.time.bucket"); ok {
				out[job.Str()][bucket.Str()] = p.DoubleValue()
			} else {
				out[job.Str()]["restarts"] = float64(p.IntValue())
			}
		}
	}
	return out
}

// lens passes the recorded spans of a trainer through the preset nemo_lens.
func lens(t *testing.T, c *gpuGoodput, name string, read func(ptrace.Traces)) {
	f := gpuderiveprocessor.NewFactory()
	cfg := f.CreateDefaultConfig().(*gpuderiveprocessor.Config)
	cfg.Presets = []string{"nemo_lens"}
	cfg.AssembleSteps = configoptional.Some(*cfg.AssembleSteps.GetOrInsertDefault())
	p, err := f.CreateTraces(t.Context(), processortest.NewNopSettings(f.Type()), cfg, c)
	require.NoError(t, err)
	require.NoError(t, p.Start(t.Context(), componenttest.NewNopHost()))
	text, err := os.ReadFile(filepath.Join(recorded.Path(t, "nemo-lens", name), "traces.jsonl"))
	require.NoError(t, err)
	for line := range bytes.Lines(text) {
		td, err := new(ptrace.JSONUnmarshaler).UnmarshalTraces(line)
		require.NoError(t, err)
		if read != nil {
			read(td)
		}
		require.NoError(t, p.ConsumeTraces(t.Context(), td))
	}
	require.NoError(t, p.Shutdown(t.Context()))
}

// The programs that wrote the spans measured the wait of each rank at a barrier, which one rank
// reaches late, with the delay until the host let it go on. Equal IDs of all ranks change nothing.
func TestRanksWaitForTheLateOne(t *testing.T) {
	for _, name := range []string{"b-perstep-late", "c-perstep-late", "b-pypi-idcollision"} {
		t.Run(name, func(t *testing.T) {
			c, sink, _ := newTest(t, func(*Config) {})
			require.NoError(t, c.Start(t.Context(), componenttest.NewNopHost()))
			lens(t, c, name, nil)
			require.NoError(t, c.Shutdown(t.Context()))
			text, err := os.ReadFile(filepath.Join(recorded.Path(t, "nemo-lens", name), "truth.json"))
			require.NoError(t, err)
			var truth struct {
				Ranks []struct {
					Steps []struct {
						First bool
						Wait  float64 `json:"wait_ms"`
					}
				}
			}
			require.NoError(t, json.Unmarshal(text, &truth))
			waited := 0.0
			for i := range truth.Ranks[0].Steps {
				var waits []float64
				for _, r := range truth.Ranks {
					if !r.Steps[i].First {
						waits = append(waits, r.Steps[i].Wait/1e3)
					}
				}
				for _, w := range waits {
					waited += w - slices.Min(waits) // for which all ranks waited, no rank is the cause
				}
			}
			for _, got := range account(t, sink.AllMetrics()[len(sink.AllMetrics())-1]) {
				total := 0.0
				for bucket, v := range got {
					if bucket != "restarts" {
						total += v
					}
				}
				t.Logf("planted %.3f s, found %.3f s of %.3f s", waited, got["rank_wait"], total)
				assert.InDelta(t, waited, got["rank_wait"], 0.015*total)
			}
		})
	}
}

type host map[component.ID]component.Component

func (h host) GetExtensions() map[component.ID]component.Component { return h }

// The device of a rank stays busy after its last span, and another one becomes idle. The newest
// span of the rank is kept for what is found without spans.
func TestARankWhoseDeviceStaysBusyHangs(t *testing.T) {
	f := gpusamplesextension.NewFactory()
	ext, err := f.Create(t.Context(), extensiontest.NewNopSettings(f.Type()), f.CreateDefaultConfig())
	require.NoError(t, err)
	id := component.NewID(f.Type())
	c, sink, _ := newTest(t, func(c *Config) { c.Samples = &id })
	require.ErrorContains(t, c.Start(t.Context(), componenttest.NewNopHost()), "gpu_samples")
	require.NoError(t, c.Start(t.Context(), host{id: ext}))
	now := time.Now().Truncate(time.Second)
	for rank, until := range []int{150, 30} {
		name := fmt.Sprint("GPU-", rank)
		w, err := ext.(devicesamples.Writer).Register(id, devicesamples.Device{ID: name, Interval: time.Second})
		require.NoError(t, err)
		for i := range 151 {
			at := now.Add(time.Duration(i-150) * time.Second)
			sample := devicesamples.Sample{Time: at.UnixNano()}
			sample.Set(devicesamples.Utilization, float64(min(1, max(0, until-i))))
			w.Write([]devicesamples.Sample{sample})
		}
		for i := range 10 {
			td := step("a", int64(rank), int64(i))
			rs := td.ResourceSpans().At(0)
			rs.Resource().Attributes().PutStr("hw.id", name)
			s := rs.ScopeSpans().At(0).Spans().At(0)
			s.SetTraceID(pcommon.TraceID{1, byte(rank)})
			s.SetSpanID(pcommon.SpanID{byte(i + 1)})
			s.SetStartTimestamp(pcommon.NewTimestampFromTime(now.Add(time.Duration(i-140) * time.Second)))
			s.SetEndTimestamp(pcommon.NewTimestampFromTime(now.Add(time.Duration(i-139) * time.Second)))
			require.NoError(t, c.ConsumeTraces(t.Context(), td))
		}
	}
	c.flush(t.Context(), now, false)
	got := account(t, sink.AllMetrics()[0])["a"]
	assert.InDelta(t, 129, got["hang"], 1, "from the last step until now")
	assert.InDelta(t, 10, got["busy"], 1, "the other rank, whose device soon becomes idle")
	assert.InDelta(t, 120, got["idle"], 1)
	newest := ext.(jobspans.Source).JobSpans()
	s, ok := newest.Find("", 2, []int{1}, now)
	assert.True(t, ok)
	assert.Equal(t, []any{pcommon.TraceID{1, 1}, pcommon.SpanID{10}}, []any{s.Trace, s.ID})
	require.NoError(t, c.Shutdown(t.Context()))
}

// The two attempts of a recorded job: it was killed after step 7, and goes on from step 4.
func TestAKilledJobThroughNeMoLens(t *testing.T) {
	for _, name := range []string{"b-restart", "c-restart"} {
		t.Run(name, func(t *testing.T) {
			c, sink, _ := newTest(t, func(*Config) {})
			require.NoError(t, c.Start(t.Context(), componenttest.NewNopHost()))
			var start, end, lost, productive float64
			for _, attempt := range []string{"attempt0", "attempt1"} {
				lens(t, c, name+"/"+attempt, func(td ptrace.Traces) {
					for _, rs := range td.ResourceSpans().All() {
						for _, ss := range rs.ScopeSpans().All() {
							for _, s := range ss.Spans().All() {
								from, to := float64(s.StartTimestamp())/1e9, float64(s.EndTimestamp())/1e9
								if start == 0 {
									start = from
								}
								start, end = min(start, from), max(end, to)
								if strings.HasSuffix(s.Name(), "training.iteration") || strings.HasSuffix(s.Name(), "train.iteration") {
									index := index(s)
									if attempt == "attempt0" && index >= first(name) {
										lost += to - from
									} else {
										productive += to - from
									}
								}
							}
						}
					}
				})
			}
			require.NoError(t, c.Shutdown(t.Context()))
			all := account(t, sink.AllMetrics()[len(sink.AllMetrics())-1])
			require.Len(t, all, 1)
			for _, got := range all {
				t.Log(got)
				assert.InDelta(t, 1, got["restarts"], 0)
				assert.Positive(t, got["idle"])
				assert.Positive(t, got["startup"])
				assert.Positive(t, got["checkpoint"])
				assert.Zero(t, got["hang"])
				assert.InDelta(t, lost, got["lost"], 0.02*lost)
				assert.InDelta(t, productive, got["productive"]+got["compilation"]+got["rank_wait"], 0.02*productive)
				delete(got, "restarts")
				total := 0.0
				for _, v := range got {
					total += v
				}
				assert.InDelta(t, 2*(end-start), total, 0.02*total, "two ranks")
			}
		})
	}
}

func index(s ptrace.Span) int64 {
	for _, key := range []string{"megatron.iteration", "nv.dl.training.step"} {
		if v, ok := s.Attributes().Get(key); ok {
			return v.Int()
		}
	}
	return -1
}

// first is the number of the first step after the restart: steps count from 0, or from 1.
func first(name string) int64 {
	if name == "c-restart" {
		return 5
	}
	return 4
}

func step(job string, rank, i int64) ptrace.Traces {
	td := ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	_ = rs.Resource().Attributes().FromRaw(map[string]any{"gpu.job.rank": rank, "process.pid": 7, "gpu.job.world_size": 2})
	if job != "" {
		rs.Resource().Attributes().PutStr("gpu.job.id", job)
	}
	s := rs.ScopeSpans().AppendEmpty().Spans().AppendEmpty()
	s.SetName("train")
	_ = s.Attributes().FromRaw(map[string]any{"gpu.operation.type": "step", "gpu.step.index": i, "gpu.step.phase.duration.data": 0.25})
	s.SetStartTimestamp(1_790_000_000_000_000_000 + 1)
	s.SetEndTimestamp(1_790_000_001_000_000_000 + 1)
	return td
}

func TestLimitsAndMissingJobsAreCounted(t *testing.T) {
	c, sink, tel := newTest(t, func(c *Config) { c.MaxJobs = 1 })
	for _, td := range []ptrace.Traces{step("a", 0, 1), step("b", 0, 1), step("", 0, 1), step("a", -1, 1), step("a", 0, 1)} {
		require.NoError(t, c.ConsumeTraces(t.Context(), td))
	}
	c.flush(t.Context(), time.Now(), false)
	got := account(t, sink.AllMetrics()[0])["a"]
	assert.InDelta(t, 1, got["unknown"], 1e-9, "the silent rank")
	assert.InDelta(t, 1, got["productive"]+got["data"], 1e-9)
	assert.Equal(t, map[string]float64{"reason=no_job": 1, "reason=max_jobs": 1}, metrictest.Sum(t, tel, "otelcol_connector_gpu_goodput_dropped"))

	c.flush(t.Context(), time.Now().Add(25*time.Hour), false)
	assert.Empty(t, c.jobs)
	assert.Len(t, sink.AllMetrics(), 1)
	c.Metrics.Next = consumertest.NewErr(errors.New("busy"))
	require.NoError(t, c.ConsumeTraces(t.Context(), step("a", 0, 1)))
	c.flush(t.Context(), time.Now(), false)
	assert.Greater(t, metrictest.Sum(t, tel, "otelcol_connector_gpu_goodput_dropped")["reason=metrics"], 10.0)
	c.Metrics.Next = sink
	require.NoError(t, c.Shutdown(context.Background()))
}
