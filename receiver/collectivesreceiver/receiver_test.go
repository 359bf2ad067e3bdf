// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package collectivesreceiver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/otelgpu/otelgpu/internal/configtest"
	"github.com/otelgpu/otelgpu/internal/conformance"
	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/jobspans"
	"github.com/otelgpu/otelgpu/internal/metrictest"
	"github.com/otelgpu/otelgpu/internal/recorded"
	"github.com/otelgpu/otelgpu/receiver/collectivesreceiver/internal/metadata"
	"github.com/otelgpu/otelgpu/semconv"
)

func TestEveryKeyIsRead(t *testing.T) {
	samples := component.MustNewID("gpu_samples")
	got, err := configtest.Load[Config](t, "collectives/all", createDefaultConfig)
	require.NoError(t, err)
	assert.Equal(t, &Config{
		Inspector: configoptional.Some(InspectorConfig{
			Include: []string{"/shared/inspector/**/*.log"}, StartAt: StartAtBeginning, MaxFiles: 64, RAS: "/shared/inspector/ras.json",
		}),
		FlightRecorder: configoptional.Some(FlightRecorderConfig{
			Include: []string{"/shared/dumps/*/rank_*"}, Settle: 5 * time.Second, MaxAge: time.Hour,
		}),
		Samples: &samples, Interval: 5 * time.Second, CardinalityLimit: 100,
	}, got)
	got, err = configtest.Load[Config](t, "collectives", createDefaultConfig)
	require.NoError(t, err)
	assert.Equal(t, StartAtEnd, got.Inspector.Get().StartAt)
	assert.Nil(t, got.FlightRecorder.Get())
	_, err = configtest.Load[Config](t, "collectives/bad", createDefaultConfig)
	for _, text := range []string{"`interval`", "`inspector::include`", "`inspector::start_at`", "`inspector::max_files`"} {
		assert.ErrorContains(t, err, text)
	}
	assert.ErrorContains(t, (&Config{Interval: 1, CardinalityLimit: 2}).Validate(), "`inspector` or `flight_recorder` must be set")
}

// rig is a receiver that a test polls.
type rig struct {
	*collectives
	tel     *componenttest.Telemetry
	points  consumertest.MetricsSink
	records consumertest.LogsSink
	logged  *observer.ObservedLogs
	now     time.Time
}

func newRig(t *testing.T, change func(*Config)) *rig {
	cfg := createDefaultConfig().(*Config)
	change(cfg)
	require.NoError(t, cfg.Validate())
	r := &rig{tel: componenttest.NewTelemetry(), now: time.Now()}
	set := receivertest.NewNopSettings(metadata.Type)
	set.TelemetrySettings = r.tel.NewTelemetrySettings()
	core, logged := observer.New(zap.WarnLevel)
	set.Logger, r.logged = zap.New(core), logged
	f := NewFactory()
	m, err := f.CreateMetrics(t.Context(), set, cfg, &r.points)
	require.NoError(t, err)
	l, err := f.CreateLogs(t.Context(), set, cfg, &r.records)
	require.NoError(t, err)
	require.Same(t, m, l)
	r.collectives = m.(*collectives)
	t.Cleanup(func() {
		require.NoError(t, r.Shutdown(context.Background()))
		require.NoError(t, r.tel.Shutdown(context.Background()))
		for _, md := range r.points.AllMetrics() {
			assert.NoError(t, conformance.Metrics(md))
		}
		for _, ld := range r.records.AllLogs() {
			assert.NoError(t, conformance.Logs(ld))
		}
	})
	return r
}

func inspector(folder string) func(*Config) {
	return func(c *Config) {
		c.Inspector = configoptional.Some(InspectorConfig{
			Include: []string{filepath.Join(folder, "*.log")}, StartAt: StartAtBeginning, MaxFiles: 100, RAS: filepath.Join(folder, "ras.json"),
		})
	}
}

func (r *rig) step(t *testing.T) {
	r.now = r.now.Add(r.cfg.Interval)
	r.poll(t.Context(), r.now, false)
}

// sum returns the newest sum of a metric over all series with a value of an attribute.
func (r *rig) sum(name, key, value string) (total float64) {
	newest := map[string]float64{}
	for _, md := range r.points.AllMetrics() {
		for _, rm := range md.ResourceMetrics().All() {
			for _, m := range rm.ScopeMetrics().At(0).Metrics().All() {
				if m.Name() != name {
					continue
				}
				for _, p := range m.Sum().DataPoints().All() {
					if v, ok := p.Attributes().Get(key); ok && v.AsString() == value {
						newest[fmt.Sprint(rm.Resource().Attributes().AsRaw(), p.Attributes().AsRaw())] = p.DoubleValue() + float64(p.IntValue())
					}
				}
			}
		}
	}
	for _, v := range newest {
		total += v
	}
	return total
}

func (r *rig) findings() (out []string) {
	for _, ld := range r.records.AllLogs() {
		for _, rec := range ld.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().All() {
			a := rec.Attributes()
			values := a.AsRaw()
			text := fmt.Sprint(values[string(semconv.GPUFindingKindKey)], " ", values[string(semconv.GPUJobRankKey)])
			if cause, ok := values[string(semconv.GPUHangCauseKey)]; ok {
				text += fmt.Sprint(" ", cause)
			}
			out = append(out, text)
		}
	}
	return out
}

// The files grow by a part in each interval, which ends within a line.
func TestGrowingFilesBecomeMetricsAndAFinding(t *testing.T) {
	from := recorded.Path(t, "nccl-inspector", "late-2.30")
	folder := t.TempDir()
	r := newRig(t, inspector(folder))
	names, err := filepath.Glob(filepath.Join(from, "*"))
	require.NoError(t, err)
	const parts = 20
	for i := range parts {
		for _, name := range names {
			text, err := os.ReadFile(name)
			require.NoError(t, err)
			if filepath.Ext(name) == ".log" {
				text = text[:len(text)*(i+1)/parts]
			}
			require.NoError(t, os.WriteFile(filepath.Join(folder, filepath.Base(name)), text, 0o600))
		}
		r.step(t)
	}
	assert.Equal(t, []string{"late_rank 2"}, r.findings())
	assert.Equal(t, 1, r.logged.FilterField(zap.String("kind", semconv.GPUFindingKindLateRank)).
		FilterMessageSnippet("rank 2 arrives last").Len(), "the Collector's own log has it, too")
	assert.InDelta(t, 320, r.sum(semconv.GPUCollectiveCountName, string(semconv.GPUCollectiveNameKey), "all_reduce"), 0)
	assert.InDelta(t, 320*8388608, r.sum(semconv.GPUCollectiveIOName, string(semconv.GPUCollectiveNameKey), "all_reduce"), 0)
	assert.InDelta(t, 320*8388608*1.5, r.sum(semconv.GPUCollectiveBusIOName, string(semconv.GPUCollectiveNameKey), "all_reduce"), 0)
	assert.InDelta(t, 20*1500e-6, r.sum(semconv.GPUCollectiveLatenessName, string(semconv.GPUJobRankKey), "2"), 0.004)
	assert.Equal(t, map[string]float64{"": 1312}, metrictest.Sum(t, r.tel, "otelcol_receiver_collectives_operations"))
}

func lines(t *testing.T, n int) []byte {
	text, err := os.ReadFile(recorded.Path(t, "nccl-inspector", "healthy-2.30", "node00-pid41000.log"))
	require.NoError(t, err)
	return bytes.Join(bytes.SplitAfter(text, []byte("\n"))[:n], nil)
}

func TestReplacedTruncatedAndRemovedFilesLoseNothing(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "a.log")
	r := newRig(t, inspector(folder))
	write := func(text []byte) { require.NoError(t, os.WriteFile(path, text, 0o600)) }
	records := func() int64 { r.step(t); return r.files.job.Records }

	write(append(lines(t, 3), "{cut"...))
	assert.EqualValues(t, 3, records())
	write(lines(t, 1))
	assert.EqualValues(t, 4, records(), "truncated")
	write(lines(t, 9)[len(lines(t, 1)):])
	assert.EqualValues(t, 12, records(), "truncated, and longer than before")
	write(lines(t, 9)[len(lines(t, 1)):])
	assert.EqualValues(t, 12, records(), "equal")
	write(lines(t, 2))
	require.NoError(t, os.Rename(path, path+".1"))
	write(lines(t, 5))
	assert.EqualValues(t, 19, records(), "the rest of the old file and all of the new one")
	write(append(lines(t, 5), lines(t, 2)...))
	require.NoError(t, os.Remove(path))
	assert.EqualValues(t, 21, records(), "removed")
	write(append(append(bytes.Repeat([]byte("x"), 1<<20), "\nrubbish\n"...), lines(t, 1)...))
	assert.EqualValues(t, 22, records())
	assert.EqualValues(t, 2, r.files.bad)
	r.cfg.Inspector.Get().MaxFiles, r.files.max = 1, 1
	require.NoError(t, os.WriteFile(path+"2.log", lines(t, 1), 0o600))
	assert.EqualValues(t, 22, records())
	assert.EqualValues(t, 1, r.files.refused)
}

func TestStartAtTheEndSkipsWhatIsThere(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "a.log")
	text := lines(t, 3)
	require.NoError(t, os.WriteFile(path, text[:len(text)-10], 0o600))
	r := newRig(t, inspector(folder))
	r.files.read(true)
	require.NoError(t, os.WriteFile(path, append(text, lines(t, 2)...), 0o600))
	r.step(t)
	assert.EqualValues(t, 2, r.files.job.Records, "not the line that was cut")
}

// Since version 4.3 of the format, only the first line of a batch says whose lines they are.
func TestStartWithinABatchSkipsItsRest(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "a.log")
	origin, body, found := strings.Cut(string(lines(t, 1)), `"coll_perf"`)
	require.True(t, found)
	text := origin + `"dump_stats":{"coll_records":2,"p2p_records":0}}` + "\n"
	body = `{"coll_perf"` + body
	require.NoError(t, os.WriteFile(path, []byte(text+body), 0o600))
	r := newRig(t, inspector(folder))
	r.files.read(true)
	require.NoError(t, os.WriteFile(path, []byte(text+body+body+text+body), 0o600))
	r.step(t)
	assert.EqualValues(t, 1, r.files.job.Records)
	assert.Zero(t, r.files.bad)
}

func TestDumpsBecomeALogRecordAndAMetric(t *testing.T) {
	for name, want := range map[string]string{
		"flight-recorder-nccl/missing-v2.10": "hung_rank 4 missing", "flight-recorder-nccl/dead-v2.10": "hung_rank 1 dead",
		"flight-recorder-nccl/missing-v2.4": "hung_rank 5 missing", "flight-recorder-gloo/missing-w4": "hung_rank 2 missing",
		"flight-recorder-nccl/healthy-v2.10": "",
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			r := newRig(t, func(c *Config) {
				c.FlightRecorder = configoptional.Some(FlightRecorderConfig{
					Include: []string{filepath.Join(folder, "*")}, Settle: 15 * time.Second, MaxAge: 10 * time.Minute,
				})
			})
			r.spans = new(jobspans.Newest)
			for rank := range int64(8) {
				r.spans.Add("job", rank, -1, jobspans.Span{
					Trace: pcommon.TraceID{byte(rank + 1)}, ID: pcommon.SpanID{byte(rank + 1)}, End: time.Now().UnixNano(),
				})
			}
			files, err := filepath.Glob(filepath.Join(recorded.Path(t, filepath.FromSlash(name)), "*rank_*"))
			require.NoError(t, err)
			for i, file := range files {
				text, err := os.ReadFile(file)
				require.NoError(t, err)
				if filepath.Ext(file) == "" {
					require.NoError(t, os.WriteFile(filepath.Join(folder, filepath.Base(file)), text, 0o600))
				}
				if i%3 == 0 {
					r.step(t)
					require.Empty(t, r.findings(), "ranks still write")
				}
			}
			for range 4 {
				r.step(t)
			}
			if want == "" {
				assert.Empty(t, r.findings())
				return
			}
			assert.Equal(t, []string{want}, r.findings(), "once, within a minute")
			rec := r.records.AllLogs()[0].ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().At(0)
			rank, _ := rec.Attributes().Get(string(semconv.GPUJobRankKey))
			assert.Equal(t, pcommon.TraceID{byte(rank.Int() + 1)}, rec.TraceID(), "the newest span of the rank")
			assert.Equal(t, pcommon.SpanID{byte(rank.Int() + 1)}, rec.SpanID())
			assert.InDelta(t, 1, r.sum(semconv.GPUJobHangsName, string(semconv.GPUHangCauseKey), want[12:]), 0)
			for range 10 {
				r.step(t)
			}
			assert.Len(t, r.findings(), 1)
		})
	}
}

func TestTheExtensionOfSpansMustExist(t *testing.T) {
	r := newRig(t, inspector(t.TempDir()))
	id := component.MustNewID("gpu_samples")
	r.cfg.Samples = &id
	require.ErrorContains(t, r.Start(t.Context(), componenttest.NewNopHost()), "define it under `extensions`")
}

func TestRejectedRecordsAreKept(t *testing.T) {
	l := logs{next: consumertest.NewErr(errors.New("busy"))}
	f := finding.New(semconv.GPUFindingKindLateRank, finding.Low)
	for range maxRecords + 2 {
		l.add(&f, plog.SeverityNumberWarn, time.Now(), time.Now())
	}
	dropped, err := l.send(t.Context(), false)
	require.Error(t, err)
	assert.Zero(t, dropped)
	require.Len(t, l.waiting, maxRecords)
	var sink consumertest.LogsSink
	l.next = &sink
	_, err = l.send(t.Context(), false)
	require.NoError(t, err)
	assert.Equal(t, maxRecords, sink.LogRecordCount())
}
