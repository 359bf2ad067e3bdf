// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpusamplesexporter

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/semconv"
)

// TestSharesOfAnotherCollector writes what a gpu receiver emits of two processes, in four outputs:
// the second process begins with the second one, and the first one ends before the last.
func TestSharesOfAnotherCollector(t *testing.T) {
	r := newRig(t)
	begin := time.Now().Add(-time.Minute)
	at := func(output int) time.Time { return begin.Add(time.Duration(output) * 10 * time.Second) }
	send := func(output int, start map[int64]int, joules map[int64]float64, rest float64) {
		md := pmetric.NewMetrics()
		ms := md.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics()
		add := func(name string, pid int64, from, to time.Time, v float64) {
			m := ms.AppendEmpty()
			m.SetName(name)
			p := m.SetEmptySum().DataPoints().AppendEmpty()
			m.Sum().SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
			p.SetStartTimestamp(pcommon.NewTimestampFromTime(from))
			p.SetTimestamp(pcommon.NewTimestampFromTime(to))
			p.SetDoubleValue(v)
			p.Attributes().PutStr("hw.id", "GPU-1")
			if pid > 0 {
				p.Attributes().PutInt("process.pid", pid)
				p.Attributes().PutStr("container.id", "c")
			}
		}
		for pid, v := range joules {
			from := at(start[pid] - 1)
			if start[pid] == output {
				add(semconv.GPUProcessEnergyName, pid, from, from, 0)
			}
			add(semconv.GPUProcessEnergyName, pid, from, at(output), v)
			add(semconv.GPUProcessEnergyErrorName, pid, from, at(output), v/10)
		}
		add(semconv.GPUUnattributedEnergyName, 0, at(0), at(output), rest)
		require.NoError(t, r.ConsumeMetrics(t.Context(), md))
	}
	send(1, map[int64]int{7: 1}, map[int64]float64{7: 1000}, 0)
	send(2, map[int64]int{7: 1, 8: 2}, map[int64]float64{7: 1300, 8: 100}, 0)
	send(3, map[int64]int{7: 1, 8: 2}, map[int64]float64{7: 1500, 8: 200}, 100)
	send(4, map[int64]int{8: 2}, map[int64]float64{8: 300}, 100)
	windows := r.store.Shares("GPU-1", begin.UnixNano(), at(4).UnixNano(), nil)
	require.Len(t, windows, 3)
	for i, want := range []map[int64]float64{{7: 0.75, 8: 0.25}, {7: 0.5, 8: 0.25}, {8: 1}} {
		w := windows[i]
		assert.Equal(t, []int64{at(i + 1).UnixNano(), at(i + 2).UnixNano()}, []int64{w.From, w.To})
		got := map[int64]float64{}
		for _, u := range w.Users {
			got[u.PID] = u.Share
			assert.InDelta(t, u.Share/10, u.Error, 1e-9)
			assert.Equal(t, devicesamples.MatchGroup, u.Match(&devicesamples.Workload{ContainerID: "c", PID: 1}, "", ""))
		}
		assert.InDeltaMapValues(t, want, got, 1e-9)
	}
}
