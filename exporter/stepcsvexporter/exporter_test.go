// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package stepcsvexporter

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/exportertest"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/otelgpu/otelgpu/exporter/stepcsvexporter/internal/metadata"
	"github.com/otelgpu/otelgpu/internal/configtest"
	"github.com/otelgpu/otelgpu/internal/metrictest"
)

func load(t *testing.T, id string) (*Config, error) {
	t.Helper()
	return configtest.Load[Config](t, id, createDefaultConfig)
}

func TestConfig(t *testing.T) {
	require.NoError(t, componenttest.CheckConfigStruct(createDefaultConfig()))
	cfg, err := load(t, "step_csv")
	require.NoError(t, err)
	assert.False(t, cfg.Queue.HasValue())
	cfg, err = load(t, "step_csv/full")
	require.NoError(t, err)
	assert.True(t, cfg.Queue.HasValue())
	_, err = load(t, "step_csv/wrong")
	for _, want := range []string{
		"`path` must name a file, such as logs/steps.csv", "`phases::0` must not be blank",
	} {
		assert.ErrorContains(t, err, want)
	}
}

func steps(rank int64, loop string, from, to int64) ptrace.Traces {
	td := ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	if rank >= 0 {
		rs.Resource().Attributes().PutInt("gpu.job.rank", rank)
	}
	spans := rs.ScopeSpans().AppendEmpty().Spans()
	for n := from; n <= to; n++ {
		s := spans.AppendEmpty()
		s.SetName(loop)
		a := s.Attributes()
		a.PutStr("gpu.operation.type", "step")
		a.PutInt("gpu.step.index", n)
		a.PutInt("gpu.step.items", 10)
		a.PutDouble("gpu.step.duration", .1)
		a.PutDouble("gpu.step.phase.duration.forward", .06)
		a.PutDouble("gpu.step.phase.duration.eval", .05)
		a.PutDouble("gpu.step.overlap.duration", .02)
		a.PutDouble("gpu.step.other.duration", .01)
	}
	section := spans.AppendEmpty()
	section.Attributes().PutStr("gpu.operation.type", "section")
	unknown := spans.AppendEmpty()
	unknown.SetName(loop)
	unknown.Attributes().PutStr("gpu.operation.type", "step")
	return td
}

func run(t *testing.T, cfg *Config, set exporter.Settings, batches ...ptrace.Traces) {
	e, err := NewFactory().CreateTraces(t.Context(), set, cfg)
	require.NoError(t, err)
	require.NoError(t, e.Start(t.Context(), componenttest.NewNopHost()))
	for _, b := range batches {
		require.NoError(t, e.ConsumeTraces(t.Context(), b))
	}
	require.NoError(t, e.Shutdown(context.Background()))
}

func lines(t *testing.T, path string) []string {
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	return strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
}

func TestStepsOfTheMainRankBecomeRowsOverRestarts(t *testing.T) {
	cfg := createDefaultConfig().(*Config)
	cfg.Path = filepath.Join(t.TempDir(), "logs", "steps.csv")
	cfg.Loop = "train"
	tel := componenttest.NewTelemetry()
	set := exportertest.NewNopSettings(metadata.Type)
	set.TelemetrySettings = tel.NewTelemetrySettings()
	core, logs := observer.New(zap.WarnLevel)
	set.Logger = zap.New(core)
	run(t, cfg, set, steps(0, "train", 1, 1), steps(0, "train", 2, 2), steps(3, "train", 1, 2), steps(0, "eval", 1, 1))
	require.Equal(t, 1, logs.Len(), "once, not for every batch")
	assert.Contains(t, logs.All()[0].Message, "phases without a column")
	assert.Equal(t, map[string]float64{"": 2}, metrictest.Sum(t, tel, "otelcol_exporter_step_csv_rows"))
	assert.Equal(t, map[string]float64{"reason=rank": 3, "reason=loop": 2, "reason=no_duration": 2},
		metrictest.Sum(t, tel, "otelcol_exporter_step_csv_steps_skipped"))
	assert.Equal(t, map[string]float64{"": .1}, metrictest.Sum(t, tel, "otelcol_exporter_step_csv_undeclared_time"))
	require.NoError(t, tel.Shutdown(context.Background()))
	run(t, cfg, exportertest.NewNopSettings(metadata.Type), steps(-1, "train", 3, 3))
	assert.Equal(t, []string{
		"step,epoch,t_data_ms,t_fwd_ms,t_bwd_ms,t_opt_ms,t_comm_ms,t_overlap_ms,t_misc_ms,t_step_ms,ips_step",
		"1,,,60.000000,,,,20.000000,60.000000,100.000000,100.000",
		"2,,,60.000000,,,,20.000000,60.000000,100.000000,100.000",
		"3,,,60.000000,,,,20.000000,60.000000,100.000000,100.000",
	}, lines(t, cfg.Path))
}

func TestEveryRankHasItsOwnFile(t *testing.T) {
	cfg := createDefaultConfig().(*Config)
	cfg.Path = filepath.Join(t.TempDir(), "steps.csv")
	cfg.AllRanks, cfg.Phases = true, []string{"eval"}
	seven := steps(7, "train", 1, 2)
	seven.ResourceSpans().At(0).Resource().Attributes().PutStr("gpu.job.rank", "7") // as in OTEL_RESOURCE_ATTRIBUTES
	run(t, cfg, exportertest.NewNopSettings(metadata.Type), steps(0, "train", 1, 1), seven)
	assert.Len(t, lines(t, cfg.Path), 2)
	got := lines(t, strings.TrimSuffix(cfg.Path, ".csv")+"-rank7.csv")
	require.Len(t, got, 3)
	assert.Equal(t, "1,,,60.000000,,,,20.000000,10.000000,100.000000,100.000,50.000000", got[1])
}

func TestForeignFileStopsTheStart(t *testing.T) {
	cfg := createDefaultConfig().(*Config)
	cfg.Path = filepath.Join(t.TempDir(), "steps.csv")
	require.NoError(t, os.WriteFile(cfg.Path, []byte("a,b\n"), 0o644))
	e, err := NewFactory().CreateTraces(t.Context(), exportertest.NewNopSettings(metadata.Type), cfg)
	require.NoError(t, err)
	require.ErrorContains(t, e.Start(t.Context(), componenttest.NewNopHost()), "its header is \"a,b\"")
	require.NoError(t, e.Shutdown(t.Context()))
}

// A retry must not write rows twice: only resources whose file failed are returned.
func TestOnlyFailedSpansAreRetried(t *testing.T) {
	cfg := createDefaultConfig().(*Config)
	dir := t.TempDir()
	cfg.Path = filepath.Join(dir, "steps.csv")
	cfg.AllRanks = true
	require.NoError(t, os.WriteFile(filepath.Join(dir, "steps-rank1.csv"), []byte("taken\n"), 0o644))
	e, err := NewFactory().CreateTraces(t.Context(), exportertest.NewNopSettings(metadata.Type), cfg)
	require.NoError(t, err)
	require.NoError(t, e.Start(t.Context(), componenttest.NewNopHost()))
	both := steps(0, "train", 1, 1)
	steps(1, "train", 1, 1).ResourceSpans().MoveAndAppendTo(both.ResourceSpans())
	err = e.ConsumeTraces(t.Context(), both)
	var failed consumererror.Traces
	require.ErrorAs(t, err, &failed)
	require.Equal(t, 1, failed.Data().ResourceSpans().Len())
	v, _ := failed.Data().ResourceSpans().At(0).Resource().Attributes().Get("gpu.job.rank")
	assert.EqualValues(t, 1, v.Int())
	require.NoError(t, os.Remove(filepath.Join(dir, "steps-rank1.csv")))
	require.NoError(t, e.ConsumeTraces(t.Context(), failed.Data()))
	require.NoError(t, e.Shutdown(t.Context()))
	assert.Len(t, lines(t, cfg.Path), 2)
	assert.Len(t, lines(t, filepath.Join(dir, "steps-rank1.csv")), 2)
}

// Steps that can never be written must not cause the loss of steps that a retry can write.
func TestUnwritableSpansDoNotBlockARetryOfTheRest(t *testing.T) {
	cfg := createDefaultConfig().(*Config)
	cfg.Path, cfg.AllRanks = filepath.Join(t.TempDir(), "steps.csv"), true
	s, err := newSink(cfg, exportertest.NewNopSettings(metadata.Type))
	require.NoError(t, err)
	require.NoError(t, s.start(t.Context(), nil))
	main := s.files[0]
	require.NoError(t, main.Close()) // its writes fail
	for rank := int64(1); len(s.files) < maxRanks; rank++ {
		s.files[rank] = main
	}
	both := steps(maxRanks, "train", 1, 1)
	steps(0, "train", 1, 2).ResourceSpans().MoveAndAppendTo(both.ResourceSpans())
	err = s.consume(t.Context(), both)
	assert.False(t, consumererror.IsPermanent(err))
	var again consumererror.Traces
	require.ErrorAs(t, err, &again)
	require.Equal(t, 1, again.Data().ResourceSpans().Len())
	v, _ := again.Data().ResourceSpans().At(0).Resource().Attributes().Get("gpu.job.rank")
	assert.Zero(t, v.Int())
	assert.True(t, consumererror.IsPermanent(s.consume(t.Context(), steps(maxRanks, "train", 1, 1))))
	require.NoError(t, s.shutdown(t.Context()))
}
