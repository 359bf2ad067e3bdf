// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package collectivesreceiver

import (
	"context"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/otelgpu/otelgpu/internal/flightrecorder"
	"github.com/otelgpu/otelgpu/internal/ncclinspector"
	"github.com/otelgpu/otelgpu/internal/series"
	"github.com/otelgpu/otelgpu/internal/sharedcomponent"
	"github.com/otelgpu/otelgpu/internal/startpoint"
	"github.com/otelgpu/otelgpu/receiver/collectivesreceiver/internal/metadata"
	"github.com/otelgpu/otelgpu/semconv"
)

// Metrics, by their position in the families of a process.
const (
	metricCount = iota
	metricTime
	metricIO
	metricBusIO
	metricWait
	metricLateness
	metricHangs
	metricsOfProcess
)

var definitions = [metricsOfProcess]struct {
	name string
	form series.Form
}{
	metricCount:    {semconv.GPUCollectiveCountName, series.Count},
	metricTime:     {semconv.GPUCollectiveTimeName, series.Sum},
	metricIO:       {semconv.GPUCollectiveIOName, series.Count},
	metricBusIO:    {semconv.GPUCollectiveBusIOName, series.Count},
	metricWait:     {semconv.GPUCollectiveWaitName, series.Sum},
	metricLateness: {semconv.GPUCollectiveLatenessName, series.Sum},
	metricHangs:    {semconv.GPUJobHangsName, series.Count},
}

// metrics are the series of all processes.
type metrics struct {
	series.Settings
	out       startpoint.Output
	clock     series.Clock
	processes map[ncclinspector.Process]*process
	started   uint64 // unix ns
}

// process has the series of a process; the zero Process has the series of jobs.
type process struct {
	families [metricsOfProcess]series.Family
	written  uint64
	seen     int64
}

const (
	maxProcesses = 10_000
	expiry       = time.Hour
)

func newMetrics(cfg *Config, instance string) *metrics {
	return &metrics{
		Settings: series.Settings{
			Scope: metadata.ScopeName, Instance: instance, Interval: cfg.Interval, CardinalityLimit: cfg.CardinalityLimit,
			MaxSeries: 100 * cfg.CardinalityLimit,
		},
		processes: map[ncclinspector.Process]*process{}, started: uint64(time.Now().UnixNano()),
	}
}

func (m *metrics) process(p ncclinspector.Process, now int64) *process {
	x := m.processes[p]
	if x == nil {
		if len(m.processes) >= maxProcesses {
			p = ncclinspector.Process{}
			if x = m.processes[p]; x != nil {
				return x
			}
		}
		x = &process{}
		for i, d := range definitions {
			x.families[i] = series.Family{Name: d.name, Form: d.form}
		}
		m.processes[p] = x
	}
	x.seen = now
	return x
}

func (m *metrics) add(p *process, metric int, attrs pcommon.Map, v float64, now int64) {
	p.families[metric].Get(&m.Settings, attrs, m.started).Add(v, now)
}

// group writes what identifies a rank of a communicator.
func group(attrs pcommon.Map, id ncclinspector.CommID, name string, rank int, jobRank int64) {
	attrs.PutStr(string(semconv.GPUCollectiveGroupIDKey), id.Hash)
	sharedcomponent.PutText(attrs, semconv.GPUCollectiveGroupNameKey, name)
	attrs.PutInt(string(semconv.GPUCollectiveGroupRankKey), int64(rank))
	attrs.PutInt(string(semconv.GPUCollectiveGroupSizeKey), int64(id.Ranks))
	if jobRank >= 0 {
		attrs.PutInt(string(semconv.GPUJobRankKey), jobRank)
	}
}

// take adds a report of NCCL Inspector.
func (m *metrics) take(r *ncclinspector.Report, now int64) {
	for i := range r.Sums {
		s := &r.Sums[i]
		attrs := pcommon.NewMap()
		attrs.PutStr(string(semconv.GPUCollectiveNameKey), s.Operation)
		group(attrs, s.Comm, s.CommName, s.Rank, s.JobRank)
		p := m.process(s.Process, now)
		m.add(p, metricCount, attrs, float64(s.Count), now)
		m.add(p, metricTime, attrs, s.Seconds, now)
		m.add(p, metricIO, attrs, s.Bytes, now)
		if s.BusBytes > 0 {
			m.add(p, metricBusIO, attrs, s.BusBytes, now)
		}
	}
	for i := range r.Waits {
		w := &r.Waits[i]
		attrs := pcommon.NewMap()
		group(attrs, w.Comm, w.CommName, w.Rank, w.JobRank)
		p := m.process(w.Process, now)
		m.add(p, metricWait, attrs, w.Waited, now)
		m.add(p, metricLateness, attrs, w.Late, now)
	}
}

// hang counts a hang.
func (m *metrics) hang(h *flightrecorder.Hang, now int64) {
	attrs := pcommon.NewMap()
	attrs.PutStr(string(semconv.GPUCollectiveGroupNameKey), h.Group.String())
	attrs.PutStr(string(semconv.GPUHangCauseKey), string(h.Cause))
	if len(h.Ranks) == 1 {
		attrs.PutInt(string(semconv.GPUJobRankKey), int64(h.Ranks[0]))
	}
	m.add(m.process(ncclinspector.Process{}, now), metricHangs, attrs, 1, now)
}

// send writes all series; it returns how many points were refused.
func (m *metrics) send(ctx context.Context, now time.Time, final bool) (lost int, err error) {
	at := m.clock.At(now)
	for key, p := range m.processes {
		if left := 0; at-p.seen > int64(expiry) {
			for i := range p.families {
				p.families[i].Expire(&m.Settings, at-int64(expiry))
				left += p.families[i].Len()
			}
			if left == 0 {
				delete(m.processes, key)
			}
		}
	}
	if m.out.Next == nil {
		return 0, nil
	}
	out := pmetric.NewMetrics()
	m.Output(func(yield func([]series.Family) bool) {
		for _, p := range m.processes {
			if !yield(p.families[:]) {
				return
			}
		}
	})
	for of, p := range m.processes {
		attrs := pcommon.NewMap()
		sharedcomponent.PutText(attrs, semconv.HostNameKey, of.Host)
		if of.PID > 0 {
			attrs.PutInt(string(semconv.ProcessPidKey), of.PID)
		}
		if at, wrote := m.Write(out, attrs, "", p.families[:], uint64(at), p.written); wrote {
			p.written = at
		}
	}
	n := out.DataPointCount()
	if n == 0 {
		return 0, nil
	}
	if err = m.Send(ctx, &m.out, out, final); err != nil {
		lost = n
	}
	return lost, err
}
